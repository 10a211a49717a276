//! Who may connect: the owner of the socket and root, unless more are let in, and fewer if there is a list.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use kvd_tests::client::{ClientLaunch, ClientProcess};
use kvd_tests::figures::wait_warm;
use kvd_tests::{Daemon, Launch, binaries};
use tempfile::TempDir;

/// Nobody's user, and a group of nobody.
const OTHER: u32 = 65_534;

/// A folder that every user may enter, with a socket that decides by itself, and a client that every user may run.
struct Place {
    folder: TempDir,
    client: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("kvd-").tempdir_in("/tmp").unwrap();
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), everybody).unwrap();
        // Where the project lies may be closed to others.
        let client = folder.path().join("client");
        std::fs::copy(binaries::path_of("kvd-test-client"), &client).unwrap();
        Self { folder, client }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("kvd.sock")
    }

    fn daemon(&self, arguments: &[&str]) -> Daemon {
        let launch = Launch::new().args(["--max-bytes", "16M"]).args(arguments.iter().copied());
        let daemon = launch.socket(self.socket()).start();
        wait_warm(&daemon);
        daemon
    }

    /// A client that runs as `uid` with no group but `gid`.
    fn client_as(&self, uid: u32, gid: u32) -> ClientProcess {
        let socket = self.socket();
        let words = [socket.as_os_str(), "attach".as_ref(), "2".as_ref()];
        ClientLaunch::program(&self.client, words)
            .under([
                "setpriv".to_owned(),
                format!("--reuid={uid}"),
                format!("--regid={gid}"),
                "--clear-groups".to_owned(),
                "--".to_owned(),
            ])
            .start()
    }

    /// Whether a client of that user gets the arena; what it was told if not.
    fn attempt(&self, uid: u32, gid: u32) -> Result<(), String> {
        let said = self.client_as(uid, gid).finish().said;
        let last = said.last().cloned().unwrap_or_default();
        if last == "ready" { Ok(()) } else { Err(last) }
    }
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn another_user_cannot_connect() {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    assert_eq!(mode_of(daemon.socket()), 0o700);
    assert_eq!(mode_of(&daemon.admin_socket()), 0o600);
    assert_eq!(place.attempt(0, 0), Ok(()));
    let refused = place.attempt(OTHER, OTHER).unwrap_err();
    assert!(refused.starts_with("refused: Permission denied"), "{refused}");
    // The admin socket is the owner's as well.
    let socket = daemon.admin_socket();
    let words = [socket.as_os_str(), "attach".as_ref(), "2".as_ref()];
    let curious = ClientLaunch::program(&place.client, words)
        .under(["setpriv", "--reuid=65534", "--clear-groups", "--"])
        .start();
    assert!(curious.finish().said[0].starts_with("refused: Permission denied"));
}

#[test]
fn a_group_can_be_let_in() {
    let place = Place::new();
    let daemon = place.daemon(&["--socket-mode", "0770", "--socket-group", "65534"]);
    assert_eq!(mode_of(daemon.socket()), 0o770);
    assert_eq!(place.attempt(OTHER, OTHER), Ok(()));
    let refused = place.attempt(OTHER, 65_533).unwrap_err();
    assert!(refused.starts_with("refused: Permission denied"), "{refused}");
}

#[test]
fn a_list_of_users_is_asked_even_where_the_socket_lets_everybody_in() {
    let place = Place::new();
    let list = ["--socket-mode", "0777", "--allow-uid", "65534", "--allow-uid", "65532"];
    let mut daemon = place.daemon(&list);
    daemon.announce("uid is not on the allow-list");
    assert_eq!(place.attempt(OTHER, OTHER), Ok(()));
    assert_eq!(place.attempt(65_532, 0), Ok(()));
    assert_eq!(place.attempt(65_533, OTHER), Err("closed".to_owned()));
    // Not even the daemon's own user, if it is not on the list.
    assert_eq!(place.attempt(0, 0), Err("closed".to_owned()));
    let refused = daemon.metric(r#"infera_kvd_connections_refused_total{reason="uid"}"#);
    assert!(refused.is_some_and(|count| count >= 2.0), "{refused:?}");
}

#[test]
fn a_daemon_without_root_serves_its_own_user() {
    let place = Place::new();
    chown(place.folder.path(), Some(OTHER), Some(OTHER)).unwrap();
    let binary = place.folder.path().join("infera-kvd");
    std::fs::copy(binaries::path_of("infera-kvd"), binary).unwrap();
    let folder = place.folder.path().to_str().unwrap();
    // `sh` takes the path of the daemon as $0 and starts the copy instead, which that user can reach.
    let script = format!(r#"shift; exec {folder}/infera-kvd "$@""#);
    let daemon = Launch::new()
        .args(["--max-bytes", "16M"])
        .socket(place.socket())
        .under(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .under(["sh", "-c", &script, "sh"])
        .start();
    wait_warm(&daemon);
    assert_eq!(place.attempt(OTHER, OTHER), Ok(()));
    let refused = place.attempt(65_533, 65_533).unwrap_err();
    assert!(refused.starts_with("refused: Permission denied"), "{refused}");
    assert!(daemon.stop().success());
}
