//! The engine as a child process, in a process group of its own: what ends it takes all of it along.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use kvd_etcd::Password;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// What an engine leaves behind (workers, what cleans up shared memory) gets this long to end by itself.
const REMAINS_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A running engine.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
}

impl Process {
    /// Starts it. It shares our outputs and nothing else.
    ///
    /// # Errors
    /// The system can't.
    pub(crate) fn start(words: &[String]) -> io::Result<Self> {
        let (program, arguments) =
            words.split_first().ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).process_group(0);
        // Ours, not the engine's.
        command.env_remove(Password::VARIABLE);
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok(Self { child, pid: Pid::from_raw(pid) })
    }

    /// Whom to send signals to.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks it to end, and makes it after `patience`, or as soon as `hurry` is there.
    pub(crate) async fn stop(
        &mut self,
        patience: Duration,
        hurry: impl Future<Output = ()>,
    ) -> io::Result<ExitStatus> {
        send(self.pid, Signal::SIGTERM);
        tokio::select! {
            ended = timeout(patience, self.child.wait()) => {
                if let Ok(status) = ended {
                    return status;
                }
                tracing::warn!("the engine is killed: it did not end within --stop-timeout-s");
            }
            () = hurry => tracing::warn!("the engine is killed, as another signal asked for it"),
        }
        let _may_be_gone = killpg(self.pid, Signal::SIGKILL);
        self.child.wait().await
    }

    /// Ends what is left of its group after its own end, so that nobody holds its devices.
    pub(crate) async fn sweep(&self) {
        // The number is nobody else's for as long as anybody is left in the group.
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            if killpg(self.pid, signal) == Err(Errno::ESRCH) || self.is_gone().await {
                return;
            }
            tracing::warn!(%signal, "processes that the engine left behind do not end");
        }
    }

    /// Whether its whole group ends within a while.
    async fn is_gone(&self) -> bool {
        let until = Instant::now() + REMAINS_PATIENCE;
        while killpg(self.pid, None) != Err(Errno::ESRCH) {
            if Instant::now() > until {
                return false;
            }
            sleep(LOOK_AGAIN).await;
        }
        true
    }
}

/// Sends a signal to an engine that may be gone.
pub(crate) fn send(pid: Pid, signal: Signal) {
    if let Err(error) = kill(pid, signal) {
        tracing::debug!(%error, %signal, "the engine is not there for a signal");
    }
}

/// The exit code that says the same, as shells have it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let signal = || status.signal().and_then(|signal| u8::try_from(signal).ok());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or_else(|| Some(128 + signal()?)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(15)), 143);
    }
}
