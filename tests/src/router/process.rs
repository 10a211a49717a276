//! A running router: its address, its log, its end.

use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::client::get;
use crate::log::{self, Log};
use crate::process::ProcessFacts;
use crate::until::until_true;
use crate::{PATIENCE, binaries};

/// A router that ends with this value. Its log must not hold a WARN or ERROR line that nobody announced.
#[derive(Debug)]
pub struct Router {
    child: Child,
    address: SocketAddr,
    log: Log,
    announced: Vec<String>,
    is_finished: bool,
}

/// Runs a router that is expected to end by itself.
///
/// # Panics
/// If it can't be started.
#[must_use]
pub fn run(arguments: &[&str]) -> Output {
    let mut router = Command::new(binaries::path_of("infera-router"));
    router.args(arguments).output().expect("starting the router")
}

impl Router {
    /// Starts one with `arguments` on a free port.
    ///
    /// # Panics
    /// If it does not serve.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        let delay = ["--shutdown-delay-s", "0"];
        Self::start_on(0, &[&delay, arguments].concat())
    }

    /// Starts one with `arguments` on this port: where another was.
    ///
    /// # Panics
    /// If it does not serve.
    #[must_use]
    pub fn start_on(port: u16, arguments: &[&str]) -> Self {
        let mut router = Command::new(binaries::path_of("infera-router"));
        router.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        let mut child =
            router.args(arguments).stderr(Stdio::piped()).spawn().expect("starting the router");
        let log = Log::of(child.stderr.take().expect("its standard error"));
        let line = log.wait_for("serving address=");
        let address = line.rsplit('=').next().and_then(|address| address.trim().parse().ok());
        let address = address.expect("an address in the log");
        Self { child, address, log, announced: Vec::new(), is_finished: false }
    }

    /// Starts one for these workers, and waits until it knows them.
    ///
    /// # Panics
    /// If it does not serve.
    #[must_use]
    pub fn for_workers(workers: &[&super::Worker], arguments: &[&str]) -> Self {
        let urls: Vec<String> = workers.iter().map(|worker| worker.url()).collect();
        let mut all: Vec<&str> = urls.iter().flat_map(|url| ["--worker", url]).collect();
        all.extend(arguments);
        let router = Self::start(&all);
        until_true("the router is ready", || get(router.address, "/ready").0 == 200);
        router
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it said so far.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Its descriptors, memory and threads.
    ///
    /// # Panics
    /// If it is gone.
    #[must_use]
    pub fn facts(&self) -> ProcessFacts {
        ProcessFacts::of(self.child.id().cast_signed())
    }

    /// WARN and ERROR lines that hold `part` are expected.
    pub fn announce(&mut self, part: impl Into<String>) {
        self.announced.push(part.into());
    }

    /// The sample of `/metrics` that `series` names: a name, and labels as they are printed. `None` if it is not there.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    pub fn metric(&self, series: &str) -> Option<f64> {
        let page = get(self.address, "/metrics").1;
        let sample = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        sample.map(|value| value.trim().parse().expect("a number"))
    }

    /// The same for whole numbers.
    ///
    /// # Panics
    /// If it is not there, or no whole number.
    #[must_use]
    pub fn count(&self, series: &str) -> u64 {
        let page = get(self.address, "/metrics").1;
        let sample = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = sample.unwrap_or_else(|| panic!("no {series} in {page}"));
        value.trim().parse().expect("a whole number")
    }

    /// Requests whose last byte has not gone out.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.count("infera_request_inflight{router=\"mixed\"}")
    }

    /// The workers that it knows.
    ///
    /// # Panics
    /// If the answer is none.
    #[must_use]
    pub fn workers(&self) -> Vec<Value> {
        let page: Value = serde_json::from_str(&get(self.address, "/v1/workers").1).expect("JSON");
        page["workers"].as_array().expect("a list").clone()
    }

    /// Their names.
    ///
    /// # Panics
    /// As [`Router::workers`].
    #[must_use]
    pub fn worker_ids(&self) -> Vec<String> {
        let id = |worker: &Value| worker["worker_id"].as_str().expect("a name").to_owned();
        self.workers().iter().map(id).collect()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("signalling the router");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it goes on, or an unexpected line stands in the log.
    #[must_use]
    pub fn wait(mut self) -> ExitStatus {
        let status = self.finish();
        self.judge_log();
        status
    }

    fn finish(&mut self) -> ExitStatus {
        self.is_finished = true;
        if !self.log.wait_for_end(PATIENCE) {
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

impl Drop for Router {
    fn drop(&mut self) {
        if !self.is_finished {
            let _may_be_gone = self.child.kill();
            let _killed = self.finish();
        }
        if std::thread::panicking() {
            tell(&self.log.text());
        } else {
            self.judge_log();
        }
    }
}

#[expect(clippy::print_stderr, reason = "whoever reads the failure of a case wants the log")]
fn tell(log: &str) {
    eprintln!("--- the router's log ---\n{log}\n---");
}
