//! Processes that help a measurement: this program again, in another role. They say `ready` when they are, and are
//! killed when they are dropped.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::floor::ping_pong::{self, Kind};
use crate::floor::transfer;
use crate::l2::many_clients;
use crate::l3::load;
use crate::router::relay;

/// What a helper says when it can be used.
pub const READY: &str = "ready";

/// What a helper does.
#[derive(Clone, Debug, Subcommand)]
pub enum Role {
    /// Answers small messages.
    Ping {
        /// On what its loop is built.
        kind: Kind,
        /// The socket to serve.
        socket: PathBuf,
    },
    /// Takes and gives large messages.
    Transfer {
        /// The socket to serve.
        socket: PathBuf,
    },
    /// Looks up batches of keys, as fast as it can, for as long as it is told.
    LookUp {
        /// The daemon's socket.
        socket: PathBuf,
        /// Number of this client.
        index: u64,
    },
    /// Stores blocks and reads others from the device while it is told to.
    Churn {
        /// The daemon's socket.
        socket: PathBuf,
    },
    /// Copies memory while it is told to.
    Copy,
    /// Answers requests with streams of events.
    StreamWorker,
    /// Asks for streams of events, many at once.
    StreamLoad(relay::load::Load),
}

impl Role {
    /// Plays the role to its end.
    ///
    /// # Errors
    /// If a socket or a pipe fails.
    pub fn play(&self) -> anyhow::Result<()> {
        match self {
            Self::Ping { kind, socket } => ping_pong::serve(*kind, socket),
            Self::Transfer { socket } => transfer::serve(socket),
            Self::LookUp { socket, index } => many_clients::look_up(socket, *index),
            Self::Churn { socket } => load::churn(socket),
            Self::Copy => load::copy(),
            Self::StreamWorker => relay::worker::serve(),
            Self::StreamLoad(load) => load.put(),
        }
    }

    /// The arguments that make this program play the role.
    fn arguments(&self) -> Vec<OsString> {
        let (words, last) = match self {
            Self::Ping { kind, socket } => {
                (vec!["ping".into(), kind.as_str().into(), socket.into()], None)
            }
            Self::Transfer { socket } => (vec!["transfer".into(), socket.into()], None),
            Self::LookUp { socket, index } => (vec!["look-up".into(), socket.into()], Some(index)),
            Self::Churn { socket } => (vec!["churn".into(), socket.into()], None),
            Self::Copy => (vec!["copy".into()], None),
            Self::StreamWorker => (vec!["stream-worker".into()], None),
            Self::StreamLoad(load) => {
                let words = ["stream-load".to_owned()].into_iter().chain(load.words());
                (words.map(OsString::from).collect(), None)
            }
        };
        words.into_iter().chain(last.map(|index| index.to_string().into())).collect()
    }
}

/// A process in a role.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts it on the cores of this thread and waits until it is ready.
    ///
    /// # Errors
    /// If it does not start, or says something else.
    pub fn start(role: &Role) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        Self::spawn(Command::new(program).arg("role").args(role.arguments()))
    }

    /// The same with another program that speaks as a role does.
    ///
    /// # Errors
    /// If it does not start, or says something else.
    pub fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a helper")?;
        let input = child.stdin.take().context("a helper's input")?;
        let output = BufReader::new(child.stdout.take().context("a helper's output")?);
        let mut helper = Self { child, input, output };
        let said = helper.listen()?;
        if said != READY {
            bail!("a helper said {said:?}");
        }
        Ok(helper)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it one line.
    ///
    /// # Errors
    /// If it is gone.
    pub fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.input, "{line}").context("telling a helper")
    }

    /// Stops it in its tracks, or lets it go on: some never sleep, and would measure themselves along with others.
    ///
    /// # Errors
    /// If it is gone.
    pub fn hold(&self, still: bool) -> anyhow::Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).context("a process id")?);
        let signal = if still { Signal::SIGSTOP } else { Signal::SIGCONT };
        kill(pid, signal).context("signalling a helper")
    }

    /// Waits for one line.
    ///
    /// # Errors
    /// If it is gone.
    pub fn listen(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line).context("listening to a helper")? == 0 {
            bail!("a helper ended: {}", self.child.wait().context("waiting for it")?);
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Both fail if it has ended, and there is nothing left to do then.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Says that this helper can be used.
///
/// # Errors
/// If nobody listens.
pub fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
