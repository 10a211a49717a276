//! A stand-in of the service manager: a datagram socket that hears what the daemon says, keeps the descriptors that it is
//! given, and passes them to the next daemon. As systemd does it: in the order in which they came, each with its name, the
//! same file only once.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use kvd_shm::descriptor::receive_with_descriptors;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::fstat;
use tempfile::TempDir;

use crate::until::until_true;
use crate::{Daemon, Launch};

/// The lowest number under which a descriptor waits for its daemon: above all that the test itself opens.
const NUMBERS_FROM: i32 = 500;

/// A service manager for one service.
#[derive(Debug)]
pub struct Supervisor {
    folder: TempDir,
    heard: Arc<Mutex<Heard>>,
    listener: Option<JoinHandle<()>>,
    watchdog: Option<Duration>,
}

#[derive(Debug, Default)]
struct Heard {
    /// Every line of every message.
    lines: Vec<String>,
    store: Vec<(String, OwnedFd)>,
}

impl Supervisor {
    /// A manager that has heard nothing and keeps nothing.
    ///
    /// # Panics
    /// If its socket or its thread cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("kvd-").tempdir_in("/tmp");
        let folder = folder.expect("a folder in /tmp");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("its socket");
        let heard = Arc::new(Mutex::new(Heard::default()));
        let into = Arc::clone(&heard);
        let listener = std::thread::Builder::new()
            .name("supervisor".to_owned())
            .spawn(move || while hear(&socket, &into) {})
            .expect("starting its thread");
        Self { folder, heard, listener: Some(listener), watchdog: None }
    }

    /// Wants to hear from the daemon at least so often.
    #[must_use]
    pub fn watchdog(mut self, limit: Duration) -> Self {
        self.watchdog = Some(limit);
        self
    }

    /// The socket path that every daemon of this service serves.
    #[must_use]
    pub fn service_socket(&self) -> PathBuf {
        self.folder.path().join("kvd.sock")
    }

    /// Starts a daemon, passes it what is kept, and waits until it is ready: all that it said before has been heard then.
    ///
    /// # Panics
    /// As [`Launch::start`], or if it never gets ready.
    #[must_use]
    pub fn start(&self, launch: Launch) -> Daemon {
        let before = self.count("READY=1");
        let daemon = self.supervised(launch, Launch::start);
        self.wait_for("READY=1", before + 1);
        daemon
    }

    /// Passes `launch` what is kept, while `run` starts it.
    ///
    /// # Panics
    /// If descriptors cannot be passed.
    pub fn supervised<T>(&self, launch: Launch, run: impl FnOnce(Launch) -> T) -> T {
        let kept: Vec<(String, OwnedFd)> = {
            let heard = self.lock();
            let copy = |(name, file): &(String, OwnedFd)| (name.clone(), clone(file));
            heard.store.iter().map(copy).collect()
        };
        let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
        let mut launch = launch
            .socket(self.service_socket())
            .env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        if !kept.is_empty() {
            launch = launch.env("LISTEN_FDS", kept.len().to_string());
            launch = launch.env("LISTEN_FDNAMES", names.join(":"));
        }
        if let Some(limit) = self.watchdog {
            launch = launch.env("WATCHDOG_USEC", limit.as_micros().to_string());
        }
        // Open in every program that is started now. A shell moves them to where they are looked for, and becomes the
        // daemon: so it can say for whom they are meant.
        let mut script = "export LISTEN_PID=$$; exec \"$@\"".to_owned();
        let mut numbers = Vec::new();
        for (place, (_, file)) in kept.iter().enumerate() {
            let number = fcntl(file, FcntlArg::F_DUPFD(NUMBERS_FROM)).expect("a number for it");
            script.push_str(&format!(" {}<&{number}", 3 + place));
            numbers.push(number);
        }
        numbers.iter().for_each(|number| script.push_str(&format!(" {number}<&-")));
        let started = run(launch.under(["bash", "-c", &script, "bash"]));
        for number in numbers {
            nix::unistd::close(number).expect("closing what was passed");
        }
        started
    }

    /// The names of what is kept, in the order in which it came.
    #[must_use]
    pub fn kept(&self) -> Vec<String> {
        self.lock().store.iter().map(|(name, _)| name.clone()).collect()
    }

    /// What is kept under this name, first one first.
    #[must_use]
    pub fn descriptors(&self, name: &str) -> Vec<OwnedFd> {
        let heard = self.lock();
        let called = heard.store.iter().filter(|(kept, _)| kept == name);
        called.map(|(_, descriptor)| clone(descriptor)).collect()
    }

    /// Keeps a descriptor that no daemon asked for.
    pub fn keep(&self, name: &str, descriptor: impl Into<OwnedFd>) {
        self.lock().store.push((name.to_owned(), descriptor.into()));
    }

    /// Loses what is kept under this name.
    pub fn lose(&self, name: &str) {
        self.lock().store.retain(|(kept, _)| kept != name);
    }

    /// How often a line was heard.
    #[must_use]
    pub fn count(&self, line: &str) -> usize {
        self.lock().lines.iter().filter(|heard| *heard == line).count()
    }

    /// Waits until a line has been heard so often in all.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn wait_for(&self, line: &str, times: usize) {
        until_true(line, || self.count(line) >= times);
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Supervisor {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let end = UnixDatagram::unbound().and_then(|socket| {
            socket.connect(self.folder.path().join("notify"))?;
            socket.send(END.as_bytes())
        });
        if let (Ok(_), Some(listener)) = (end, self.listener.take()) {
            let _ended = listener.join();
        }
    }
}

/// Ends the listener.
const END: &str = "END";

/// Deals with one message; `false` if it was the last.
fn hear(socket: &UnixDatagram, into: &Mutex<Heard>) -> bool {
    let mut buffer = [0; 4096];
    let received = receive_with_descriptors(socket.as_fd(), &mut buffer, 1);
    let (len, descriptors) = received.expect("hearing the daemon");
    let message = String::from_utf8_lossy(&buffer[..len]).into_owned();
    if message == END {
        return false;
    }
    let lines: Vec<String> = message.lines().map(str::to_owned).collect();
    let has = |line: &str| lines.iter().any(|heard| heard == line);
    let name = lines.iter().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or("stored");
    let mut heard = into.lock().unwrap_or_else(PoisonError::into_inner);
    if has("FDSTOREREMOVE=1") {
        heard.store.retain(|(kept, _)| kept != name);
    }
    if has("FDSTORE=1") {
        for descriptor in descriptors {
            let is_known = |(_, kept): &(String, OwnedFd)| is_same(kept, &descriptor);
            if !heard.store.iter().any(is_known) {
                heard.store.push((name.to_owned(), descriptor));
            }
        }
    }
    // Of a barrier, closing what came with it is the answer.
    heard.lines.extend(lines);
    true
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let (one, other) = (fstat(one).expect("looking at it"), fstat(other).expect("looking at it"));
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn clone(descriptor: &OwnedFd) -> OwnedFd {
    descriptor.try_clone().expect("a copy of a descriptor")
}
