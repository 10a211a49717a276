//! How a daemon is started: flags, environment, and what stands around it (another namespace, another user).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::log::Log;
use crate::{PATIENCE, binaries};

/// A start that is being prepared. The log must stay free of WARN and ERROR lines that were not announced.
#[derive(Debug, Default)]
pub struct Launch {
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    wrapper: Vec<OsString>,
    announced: Vec<String>,
    socket: Option<PathBuf>,
    program: Option<PathBuf>,
}

/// A process that ran to its end.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it printed, on both outputs.
    pub output: String,
}

impl Launch {
    /// A start with no arguments but a socket in a folder of its own. The arena is not pinned.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the environment. The `INFERA_` variables of the test itself are never passed on.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Runs the daemon by way of another program: `under(["unshare", "--pid", "--fork"])`.
    #[must_use]
    pub fn under<T: Into<OsString>>(mut self, wrapper: impl IntoIterator<Item = T>) -> Self {
        self.wrapper.extend(wrapper.into_iter().map(Into::into));
        self
    }

    /// WARN and ERROR lines that hold `part` are expected.
    #[must_use]
    pub fn announce(mut self, part: impl Into<String>) -> Self {
        self.announced.push(part.into());
        self
    }

    /// Serves `socket` instead of one in the daemon's own folder.
    #[must_use]
    pub fn socket(mut self, socket: impl Into<PathBuf>) -> Self {
        self.socket = Some(socket.into());
        self
    }

    /// Starts this program instead of the one that was built with the tests: the daemon of another build.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Starts it and waits until its socket accepts.
    ///
    /// # Panics
    /// If it ends before, or never accepts; the message holds its log.
    #[must_use]
    pub fn start(self) -> Daemon {
        let folder = folder();
        let socket = self.socket_in(&folder);
        let (child, log) = self.spawn(&folder, &socket);
        Daemon::adopt(child, log, folder, socket, self.announced)
    }

    /// Starts it while another daemon serves the same socket, and waits until it has taken over from that one.
    ///
    /// # Panics
    /// If it does not; the message holds its log.
    #[must_use]
    pub fn start_as_successor(self) -> Daemon {
        let folder = folder();
        let socket = self.socket_in(&folder);
        let (child, log) = self.spawn(&folder, &socket);
        let _said = log.wait_for("serving socket=");
        Daemon::adopt(child, log, folder, socket, self.announced)
    }

    /// Starts it and waits until it ends by itself: for starts that must fail.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn run(self) -> Finished {
        let folder = folder();
        let socket = self.socket_in(&folder);
        let (mut child, mut log) = self.spawn(&folder, &socket);
        if !log.wait_for_end(PATIENCE) {
            child.kill().expect("killing it");
            panic!("it goes on:\n{}", log.text());
        }
        log.join();
        let code = child.wait().expect("waiting for it").code();
        Finished { code, output: log.text() }
    }

    fn socket_in(&self, folder: &TempDir) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| folder.path().join("kvd.sock"))
    }

    fn spawn(&self, folder: &TempDir, socket: &Path) -> (Child, Log) {
        let mut words = self.wrapper.clone();
        let program = self.program.clone();
        words.push(program.unwrap_or_else(|| binaries::path_of("infera-kvd")).into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("--socket").arg(socket).arg("--no-shared-arena-pin");
        command.args(&self.arguments).current_dir(folder.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("INFERA_") {
                command.env_remove(name);
            }
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let (read, write) = std::io::pipe().expect("a pipe for the log");
        command.stdin(Stdio::null()).stdout(write.try_clone().expect("a second end")).stderr(write);
        let child = command.spawn().unwrap_or_else(|trouble| panic!("{command:?}: {trouble}"));
        // `command` holds the writing ends, and the log ends when the last one is closed.
        drop(command);
        (child, Log::of(read))
    }
}

/// A new folder whose path leaves room for a socket's name, of which a path has 108 bytes in all.
fn folder() -> TempDir {
    tempfile::Builder::new().prefix("kvd-").tempdir_in("/tmp").expect("a folder in /tmp")
}
