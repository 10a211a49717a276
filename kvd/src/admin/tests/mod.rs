//! The admin interface over a real socket, with a real store in a small arena behind it.

mod contents;
mod interface;
mod prefetch;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::SessionId;
use kvd_proto::retention::Retention;
use kvd_store::{Commit, CommitRules, Effects, Input, Outcome, Peer, Writer};
use serde_json::Value;

use super::{Admin, Sockets};
use crate::config::{self, Host, Invocation};
use crate::daemon::Daemon;
use crate::succession::Succession;

const ARENA_BYTES: u64 = 1 << 20;

/// A daemon without engine sessions, and its admin interface.
struct Rig {
    daemon: Arc<Daemon>,
    admin: Admin,
    folder: tempfile::TempDir,
}

/// Status code and body of an answer.
type Answer = (u16, String);

impl Rig {
    fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = format!("--socket={}", folder.path().join("kvd.sock").display());
        let fixed = ["infera-kvd", "--shared-arena-bytes=1M", "--no-shared-arena-pin", &socket];
        let arguments = fixed.iter().chain(more).map(Into::into);
        let Ok(Invocation::Serve(settings)) = config::load(arguments, [], Host::real()) else {
            panic!("the settings of the test are wrong");
        };
        let daemon = Arc::new(Daemon::prepare(*settings, Succession::default()).unwrap());
        let sockets = Sockets::open(&daemon.settings, None, None).unwrap();
        let admin = Admin::start(Arc::clone(&daemon), sockets).unwrap();
        let rig = Self { daemon, admin, folder };
        rig.apply(Input::ArenaReady { bytes: ARENA_BYTES });
        rig
    }

    fn apply(&self, input: Input<'_>) -> Effects {
        let mut effects = Effects::default();
        self.daemon.brain.apply(input, &mut effects);
        effects
    }

    fn open(&self, id: u64) -> SessionId {
        let session = SessionId(id);
        self.apply(Input::Open { session, peer: Peer::Unknowable, process: None });
        session
    }

    fn store(&self, session: SessionId, namespace: Namespace<'_>, key: &[u8], len_bytes: u64) {
        let retention = Retention::Short;
        let reserve =
            Input::Reserve { session, len_bytes, class: Some(retention), writer: Writer::Client };
        let Outcome::Reserved(Ok(granted)) = self.apply(reserve).outcome else {
            panic!("no room");
        };
        let commit = Input::Commit(Commit {
            session,
            ticket: granted.ticket,
            namespace,
            key,
            len_bytes,
            retention,
            ttl_ms: None,
            lineage: None,
            checksum: None,
            rules: CommitRules::Lease,
        });
        assert_eq!(self.apply(commit).outcome, Outcome::Committed(Ok(())));
    }

    fn socket(&self) -> PathBuf {
        self.daemon.settings.admin_socket.clone()
    }

    fn ask(&self, method: &str, path: &str) -> Answer {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        exchange(&mut stream, method, path)
    }

    fn get(&self, path: &str) -> Value {
        let (code, body) = self.ask("GET", path);
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    fn refused(&self, method: &str, path: &str) -> (u16, Value) {
        let (code, body) = self.ask(method, path);
        let body: Value = serde_json::from_str(&body).unwrap();
        (code, body["error"].clone())
    }
}

fn exchange(
    stream: &mut (impl std::io::Read + std::io::Write),
    method: &str,
    path: &str,
) -> Answer {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: kvd\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {text:?}"));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
    (code, body.to_owned())
}

const NAMESPACE: Namespace<'static> = Namespace { model: "org/m", compat_key: "tp0of1" };
