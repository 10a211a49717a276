//! A running `infera-register`, and the mock engine that it looks after (`tests/python/mock_engine.py`).

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use super::client::send;
use super::etcd::free_port;
use crate::log::{self, Log};
use crate::until::until_true;
use crate::{PATIENCE, binaries};

/// The words that start a mock engine on `address`, and `more`.
#[must_use]
pub fn mock_engine(address: SocketAddr, more: &[&str]) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/mock_engine.py");
    let script = script.to_str().expect("a path of text").to_owned();
    let port = address.port().to_string();
    let words = ["--port", &port].into_iter().chain(more.iter().copied());
    let words = words.map(str::to_owned);
    ["python3".to_owned(), script].into_iter().chain(words).collect()
}

/// Runs a sidecar that is expected to end by itself: its exit code, and what it said.
///
/// # Panics
/// If it can't be started.
#[must_use]
pub fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let mut sidecar = Command::new(binaries::path_of("infera-register"));
    let output = sidecar.args(arguments).output().expect("starting the sidecar");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Changes what the mock engine at `address` does.
///
/// # Panics
/// If it does not answer, and was not told to end.
pub fn control(address: SocketAddr, change: &Value) {
    let answer = send(address, "POST", "/control", &[], &change.to_string());
    if change.get("exit").is_none() {
        assert_eq!(answer.expect("an answer").status, 200);
    }
}

/// An engine that runs by itself. It ends with this value.
#[derive(Debug)]
pub struct Alone(Child);

impl Alone {
    /// Starts one on `address` and waits until it answers.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn start(address: SocketAddr, more: &[&str]) -> Self {
        let words = mock_engine(address, more);
        let started = Command::new(&words[0]).args(&words[1..]).stdout(Stdio::null()).spawn();
        let engine = Self(started.expect("starting the mock engine: is python3 installed?"));
        until_true("the mock engine answers", || send(address, "GET", "/health", &[], "").is_ok());
        engine
    }

    /// Whether it runs.
    ///
    /// # Panics
    /// If it can't be asked.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("asking for its exit").is_none()
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _may_be_gone = self.0.kill();
        let _killed = self.0.wait();
    }
}

/// A running sidecar. Its log, in which its engine's output is too, must not hold a WARN or ERROR line that nobody announced.
#[derive(Debug)]
pub struct Sidecar {
    child: Child,
    log: Log,
    engine: SocketAddr,
    announced: Vec<String>,
}

impl Sidecar {
    /// Starts one with `flags` for a mock engine with `more` on a free port.
    ///
    /// # Panics
    /// If it can't be started.
    #[must_use]
    pub fn with_engine(etcd: SocketAddr, flags: &[&str], more: &[&str]) -> Self {
        let engine = free_port();
        let words = mock_engine(engine, more);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Self::start(etcd, engine, &[flags, &["--"], &words].concat())
    }

    /// Starts one with `flags` for the engine at `engine`, which runs already.
    ///
    /// # Panics
    /// If it can't be started.
    #[must_use]
    pub fn beside(etcd: SocketAddr, engine: SocketAddr, flags: &[&str]) -> Self {
        let url = format!("http://{engine}");
        Self::start(etcd, engine, &[&["--url", &url], flags].concat())
    }

    fn start(etcd: SocketAddr, engine: SocketAddr, words: &[&str]) -> Self {
        let mut command = Command::new(binaries::path_of("infera-register"));
        command.args(["--etcd-endpoint", &etcd.to_string(), "--advertise", "127.0.0.1"]);
        command.args(["--health-interval-s", "0.2"]).args(words);
        let (read, write) = std::io::pipe().expect("a pipe for the log");
        command.stdin(Stdio::null()).stdout(write.try_clone().expect("a second end")).stderr(write);
        let child = command.spawn().expect("starting the sidecar");
        // It holds the writing ends, and the log ends when the last one is closed.
        drop(command);
        // A mock without events says so; that is not what most tests are about.
        let announced = vec!["the engine publishes no cache events".to_owned()];
        Self { child, log: Log::of(read), engine, announced }
    }

    /// Where the engine answers.
    #[must_use]
    pub fn engine(&self) -> SocketAddr {
        self.engine
    }

    /// What it is called in etcd.
    #[must_use]
    pub fn worker_id(&self) -> String {
        self.engine.to_string()
    }

    /// What it and its engine said so far.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// WARN and ERROR lines that hold `part` are expected.
    pub fn announce(&mut self, part: impl Into<String>) {
        self.announced.push(part.into());
    }

    /// The process of the engine that it has started.
    #[must_use]
    pub fn engine_pid(&self) -> Option<Pid> {
        let lines = self.log.lines();
        let line = lines.iter().find_map(|line| Some(line.split_once("the engine starts pid=")?.1));
        line?.split(' ').next()?.parse().ok().map(Pid::from_raw)
    }

    /// Kills it alone, as a crash would.
    ///
    /// # Panics
    /// If it is gone.
    pub fn crash(&mut self) {
        self.child.kill().expect("killing the sidecar");
        self.child.wait().expect("waiting for the sidecar");
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it is gone.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("sending a signal");
    }

    /// Whether it runs.
    ///
    /// # Panics
    /// If it can't be asked.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("asking for its exit").is_none()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it goes on, or said something that nobody announced.
    pub fn finish(&mut self) -> ExitStatus {
        let mut ended = None;
        crate::until::until("the sidecar ends", PATIENCE, || {
            ended = self.child.try_wait().expect("asking for its exit");
            ended
        });
        assert!(self.log.wait_for_end(PATIENCE), "somebody holds its output:\n{}", self.log.text());
        let unexpected = log::unexpected(&self.log.lines(), &self.announced);
        assert!(unexpected.is_empty(), "{unexpected:#?}\n{}", self.log.text());
        ended.expect("it has ended")
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _may_be_gone = self.child.kill();
        let _killed = self.child.wait();
        // A sidecar that is killed can't take its engine along.
        if let Some(engine) = self.engine_pid() {
            let _may_be_gone = killpg(engine, Signal::SIGKILL);
        }
    }
}
