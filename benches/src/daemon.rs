//! An `infera-kvd` of its own for a measurement: the real binary, on a socket in a folder of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use kvd_client::{Client, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::figures::{self, Figures};
use crate::patience::PATIENCE;

/// A running daemon. Killed if it is dropped without [`Daemon::stop`].
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    folder: TempDir,
}

impl Daemon {
    /// Starts a daemon with these arguments and waits until its whole arena is there. It runs on the cores of this
    /// thread.
    ///
    /// # Errors
    /// If the binary has not been built, does not start or does not answer; with its log.
    pub fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut daemon = Self::launch(arguments)?;
        daemon.wait_for_arena()?;
        Ok(daemon)
    }

    /// The same without waiting for anything.
    ///
    /// # Errors
    /// If the binary has not been built or does not start.
    pub fn launch(arguments: &[&str]) -> anyhow::Result<Self> {
        let program =
            std::env::current_exe().context("finding this program")?.with_file_name("infera-kvd");
        let folder = tempfile::Builder::new()
            .prefix("kvd-bench-")
            .tempdir_in("/tmp")
            .context("making a folder")?;
        let log = File::create(folder.path().join("log")).context("making a log")?;
        let child = Command::new(&program)
            .args(arguments)
            .arg("--socket")
            .arg(socket_in(&folder))
            // What it measures of itself would be measured along.
            .env("INFERA_KVD_STORAGE_SELFCHECK", "0")
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("a second end of the log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { child, folder })
    }

    /// Waits until its whole arena is there.
    ///
    /// # Errors
    /// If it ends, or that takes too long; with its log.
    pub fn wait_for_arena(&mut self) -> anyhow::Result<()> {
        let socket = self.socket();
        let is_alive = |_: Option<&Figures>| self.child.try_wait().is_ok_and(|end| end.is_none());
        figures::wait_until_ready(&socket, is_alive).map(drop).with_context(|| self.log())
    }

    /// The socket that clients connect to.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket_in(&self.folder)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A client of it that is patient enough for a busy machine.
    #[must_use]
    pub fn client(&self, name: &str) -> Client {
        client_of(&self.socket(), name)
    }

    /// Its counters and gauges.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn figures(&self) -> anyhow::Result<Figures> {
        Figures::read(&self.client("figures")).with_context(|| self.log())
    }

    /// Ends it as an operator would.
    ///
    /// # Errors
    /// If it ends with anything but 0; with its log.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()).context("a process id")?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).context("signalling the daemon")?;
        let status = self.child.wait().context("waiting for the daemon")?;
        if !status.success() {
            bail!("the daemon ended with {status}:\n{}", self.log());
        }
        Ok(())
    }

    /// What it has written so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail if it was stopped, and there is nothing left to do then.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// A client that is patient enough for a busy machine.
#[must_use]
pub fn client_of(socket: &Path, name: &str) -> Client {
    let mut options = Options::new(socket, name);
    options.deadline = PATIENCE;
    Client::new(options)
}

fn socket_in(folder: &TempDir) -> PathBuf {
    folder.path().join("kvd.sock")
}
