//! A running daemon: its socket, its log, its process, its admin answers, and its end.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

pub use crate::http::Answer;
use crate::launch::Launch;
use crate::log::{self, Log};
use crate::process::ProcessFacts;
use crate::until::until_true;
use crate::wire::Wire;
use crate::{PATIENCE, http};

/// A daemon that ends with this value. Its log must not hold a WARN or ERROR line that nobody announced.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    pid: i32,
    log: Log,
    folder: TempDir,
    socket: PathBuf,
    announced: Vec<String>,
    finished: bool,
}

impl Daemon {
    /// Starts a daemon with `arguments` on a socket in a folder of its own; see [`Launch`] for more.
    ///
    /// # Panics
    /// As [`Launch::start`].
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        Launch::new().args(arguments.iter().copied()).start()
    }

    /// Takes over a process that was just started.
    pub(crate) fn adopt(
        mut child: Child,
        log: Log,
        folder: TempDir,
        socket: PathBuf,
        announced: Vec<String>,
    ) -> Self {
        let deadline = Instant::now() + PATIENCE;
        let probe = loop {
            if let Ok(probe) = UnixStream::connect(&socket) {
                break probe;
            }
            let exited = child.try_wait().expect("asking for its exit");
            if exited.is_some() || Instant::now() > deadline {
                // It may be gone already.
                let _gone = child.kill();
                panic!("no socket ({exited:?}):\n{}", log.text());
            }
            log.wait_a_moment();
        };
        // The one that listens, whatever was started around it.
        let pid = listener_of(&probe);
        Self { child, pid, log, folder, socket, announced, finished: false }
    }

    /// The socket that engines connect to.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The folder that is removed with this value.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The daemon's process id, as seen here.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Goes on with the process that has taken over from this one and says what it says into the same log.
    ///
    /// # Panics
    /// If none has.
    pub fn follow(&mut self) {
        let before = self.pid;
        until_true("another process serves the socket", || {
            self.pid = listener(&self.socket);
            self.pid != before
        });
    }

    /// Its descriptors, memory and threads.
    #[must_use]
    pub fn facts(&self) -> ProcessFacts {
        ProcessFacts::of(self.pid)
    }

    /// What it said so far.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// WARN and ERROR lines that hold `part` are expected from now on and were before.
    pub fn announce(&mut self, part: impl Into<String>) {
        self.announced.push(part.into());
    }

    /// A bare connection that has not said anything.
    ///
    /// # Panics
    /// If the daemon does not accept.
    #[must_use]
    pub fn connect(&self) -> Wire {
        Wire::connect(&self.socket)
    }

    /// The admin socket, beside the other one.
    #[must_use]
    pub fn admin_socket(&self) -> PathBuf {
        self.socket.with_extension("admin.sock")
    }

    /// `GET target` on the admin socket, whatever the status.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    pub fn admin_get(&self, target: &str) -> Answer {
        http::ask(&self.admin_socket(), "GET", target)
    }

    /// `POST target` on the admin socket, without a body.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    pub fn admin_post(&self, target: &str) -> Answer {
        http::ask(&self.admin_socket(), "POST", target)
    }

    /// The JSON that `GET target` on the admin socket answers with.
    ///
    /// # Panics
    /// If the status is not 200 or the body is not JSON.
    #[must_use]
    pub fn admin_json(&self, target: &str) -> Value {
        let answer = self.admin_get(target);
        assert_eq!(answer.status, 200, "{target}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("JSON")
    }

    /// The sample of `/metrics` that `series` names: a name, and labels as they are printed. `None` if it is not there.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    pub fn metric(&self, series: &str) -> Option<f64> {
        let page = self.admin_get("/metrics").body;
        let sample = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        sample.map(|value| value.trim().parse().expect("a number"))
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).expect("signalling the daemon");
    }

    /// Ends it as the kernel would, and waits.
    ///
    /// # Panics
    /// If an unexpected line stands in the log.
    pub fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        let _killed = self.finish();
        self.judge_log();
    }

    /// Ends it as an operator would, and waits.
    ///
    /// # Panics
    /// If it goes on, or an unexpected line stands in the log.
    #[must_use]
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        let status = self.finish();
        self.judge_log();
        status
    }

    /// Waits for the end of its own accord, or of a signal that was sent before.
    ///
    /// # Panics
    /// As [`Daemon::stop`].
    #[must_use]
    pub fn wait(mut self) -> ExitStatus {
        let status = self.finish();
        self.judge_log();
        status
    }

    fn finish(&mut self) -> ExitStatus {
        self.finished = true;
        if !self.log.wait_for_end(PATIENCE) {
            let _may_be_gone = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
            let _may_be_gone = self.child.kill();
            panic!("it goes on:\n{}", self.log.text());
        }
        self.log.join();
        self.child.wait().expect("waiting for it")
    }

    fn judge_log(&self) {
        let unexpected = log::unexpected(&self.log.lines(), &self.announced);
        assert!(unexpected.is_empty(), "unexpected in the log:\n{}", unexpected.join("\n"));
    }
}

fn listener(socket: &Path) -> i32 {
    listener_of(&UnixStream::connect(socket).expect("somebody accepts"))
}

fn listener_of(probe: &UnixStream) -> i32 {
    getsockopt(probe, PeerCredentials).expect("the daemon's credentials").pid()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !self.finished {
            let _may_be_gone = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
            let _killed = self.finish();
        }
        if std::thread::panicking() {
            tell(&self.log.lines());
        } else {
            self.judge_log();
        }
    }
}

/// Lines of the log that a failure shows: the last ones tell.
const LINES_TOLD: usize = 100;

#[expect(clippy::print_stderr, reason = "whoever reads the failure of a case wants the log")]
fn tell(lines: &[String]) {
    let left_out = lines.len().saturating_sub(LINES_TOLD);
    let told = lines.iter().skip(left_out).cloned().collect::<Vec<_>>().join("\n");
    eprintln!("--- the daemon's log, {left_out} lines left out ---\n{told}\n---");
}
