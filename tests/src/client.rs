//! Client processes: started, listened to, told to go on, killed. What they can do is in `src/bin/kvd-test-client.rs`.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::log::Log;
use crate::{PATIENCE, binaries};

/// A client process. It is killed with this value, if it has not ended before.
#[derive(Debug)]
pub struct ClientProcess {
    child: Child,
    said: Log,
    input: Option<ChildStdin>,
    ended: bool,
}

/// How a client process ended, and when that was seen.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// The moment after which it was surely gone.
    pub at: Instant,
    /// All that it said.
    pub said: Vec<String>,
}

/// A start that is being prepared.
#[derive(Debug)]
pub struct ClientLaunch {
    program: PathBuf,
    wrapper: Vec<OsString>,
    arguments: Vec<OsString>,
    input: Option<OwnedFd>,
}

impl ClientLaunch {
    /// The test client against the daemon at `socket`; `words` say what it does.
    #[must_use]
    pub fn new<T: Into<OsString>>(socket: &Path, words: impl IntoIterator<Item = T>) -> Self {
        let mut launch = Self::program(binaries::path_of("kvd-test-client"), words);
        launch.arguments.insert(0, socket.into());
        launch
    }

    /// Any program.
    #[must_use]
    pub fn program<T: Into<OsString>>(
        program: impl Into<PathBuf>,
        words: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            program: program.into(),
            wrapper: Vec::new(),
            arguments: words.into_iter().map(Into::into).collect(),
            input: None,
        }
    }

    /// Starts it by way of another program.
    #[must_use]
    pub fn under<T: Into<OsString>>(mut self, wrapper: impl IntoIterator<Item = T>) -> Self {
        self.wrapper.extend(wrapper.into_iter().map(Into::into));
        self
    }

    /// Gives it a descriptor as its standard input, instead of a pipe that [`ClientProcess::finish`] closes.
    #[must_use]
    pub fn input(mut self, descriptor: OwnedFd) -> Self {
        self.input = Some(descriptor);
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(self) -> ClientProcess {
        let mut words = self.wrapper;
        words.push(self.program.into());
        words.extend(self.arguments);
        let mut command = Command::new(&words[0]);
        let (read, write) = std::io::pipe().expect("a pipe for what it says");
        let input = self.input.map_or_else(Stdio::piped, Stdio::from);
        command
            .args(&words[1..])
            .stdin(input)
            .stdout(write.try_clone().expect("a second end"))
            .stderr(write);
        let mut child = command.spawn().unwrap_or_else(|trouble| panic!("{command:?}: {trouble}"));
        // `command` holds the writing ends, and what is said ends when the last one is closed.
        drop(command);
        let input = child.stdin.take();
        ClientProcess { child, said: Log::of(read), input, ended: false }
    }
}

impl ClientProcess {
    /// Starts the test client; see [`ClientLaunch`] for more.
    ///
    /// # Panics
    /// As [`ClientLaunch::start`].
    #[must_use]
    pub fn start(socket: &Path, words: &[&str]) -> Self {
        ClientLaunch::new(socket, words).start()
    }

    /// Waits for a line that holds `part`, and gives it back.
    ///
    /// # Panics
    /// If it ends, or [`PATIENCE`] is over, before that.
    #[must_use]
    pub fn heard(&self, part: &str) -> String {
        self.said.wait_for(part)
    }

    /// Sends it a line.
    ///
    /// # Panics
    /// If it has ended.
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input is a pipe");
        writeln!(input, "{line}").expect("telling it");
    }

    /// The process itself, whatever was started around it.
    ///
    /// # Panics
    /// If it has ended.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.innermost().expect("it has ended")
    }

    fn innermost(&self) -> Option<i32> {
        let mut pid = i32::try_from(self.child.id()).ok()?;
        loop {
            let path = format!("/proc/{pid}/task/{pid}/children");
            let children = std::fs::read_to_string(path).ok()?;
            match children.split_whitespace().next() {
                Some(child) => pid = child.parse().ok()?,
                None => return Some(pid),
            }
        }
    }

    /// Ends it as the kernel would, and waits until it is gone.
    ///
    /// # Panics
    /// If it has ended before.
    pub fn kill(mut self) -> Ended {
        kill(Pid::from_raw(self.pid()), Signal::SIGKILL).expect("killing it");
        self.wait()
    }

    /// Closes its input, which tells it to come to an end, and waits for that.
    ///
    /// # Panics
    /// If it goes on.
    pub fn finish(mut self) -> Ended {
        self.input = None;
        self.wait()
    }

    fn wait(&mut self) -> Ended {
        if !self.said.wait_for_end(PATIENCE) {
            panic!("it goes on:\n{}", self.said.text());
        }
        self.said.join();
        let status = self.child.wait().expect("waiting for it");
        self.ended = true;
        Ended { status, at: Instant::now(), said: self.said.lines() }
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        if let Some(pid) = self.innermost() {
            let _may_be_gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _may_be_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Ended {
    /// The number behind `name=` in what it said.
    ///
    /// # Panics
    /// If it did not say one.
    #[must_use]
    pub fn figure(&self, name: &str) -> u64 {
        let prefix = format!("{name}=");
        let mut words = self.said.iter().flat_map(|line| line.split_whitespace());
        let figure = words.find_map(|word| word.strip_prefix(&prefix)?.parse().ok());
        figure.unwrap_or_else(|| panic!("no {name} in {:?}", self.said))
    }
}
