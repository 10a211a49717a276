//! Tells the service manager that the daemon lives, as long as it really does.
//!
//! A thread of its own would be alive in a daemon that serves nobody. So it first gets the store's lock, which every
//! request needs, and looks whether the accept thread still goes round. If the lock can't be had, this thread waits with
//! all others, and the manager hears nothing: that is the message.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::daemon::Daemon;

/// A thread that goes round at least once a second is stuck if it has not for so long.
const PULSE_PATIENCE: Duration = Duration::from_secs(3);

/// When a thread last went round.
#[derive(Debug)]
pub struct Pulse {
    since: Instant,
    last_ms: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { since: Instant::now(), last_ms: AtomicU64::new(0) }
    }
}

impl Pulse {
    /// The thread goes round.
    pub fn beat(&self) {
        self.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// How long ago that was, or since when it is awaited.
    #[must_use]
    pub fn age(&self) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed)))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Starts the thread if the service manager wants to hear it; it ends when the daemon's stop flag is raised.
///
/// # Errors
/// The thread could not be started.
pub fn start(daemon: &Arc<Daemon>) -> io::Result<Option<JoinHandle<()>>> {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return Ok(None);
    };
    let daemon = Arc::clone(daemon);
    let thread = Builder::new().name("kvd-watchdog".into()).spawn(move || {
        run(limit / 2, &daemon);
    })?;
    Ok(Some(thread))
}

fn run(pause: Duration, daemon: &Daemon) {
    let mut was_alive = true;
    loop {
        let is_alive = is_alive(daemon);
        if is_alive {
            daemon.manager.alive();
        } else if was_alive {
            tracing::error!("nobody is accepted any more: the service manager is told nothing");
        }
        was_alive = is_alive;
        if daemon.stop.wait(pause) {
            return;
        }
    }
}

/// Waits for the store's lock, for ever if need be.
fn is_alive(daemon: &Daemon) -> bool {
    daemon.brain.inspect(|_store, _now| ());
    // Both have deadlines of their own.
    let is_draining = daemon.status.draining.load(Ordering::Relaxed);
    let is_handing_over = daemon.parking.is_called();
    is_draining || is_handing_over || daemon.accept_pulse.age() < PULSE_PATIENCE
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::sync::mpsc;

    use super::*;
    use crate::config::{self, Host, Invocation};
    use crate::succession::Succession;
    use crate::succession::notify::Manager;

    /// A daemon whose threads do not run, and what its manager hears.
    fn daemon(folder: &tempfile::TempDir) -> (Arc<Daemon>, UnixDatagram) {
        let arguments = ["infera-kvd", "--shared-arena-bytes=1M", "--no-shared-arena-pin"];
        let arguments = arguments.iter().map(Into::into);
        let Ok(Invocation::Serve(settings)) = config::load(arguments, [], Host::real()) else {
            panic!("the settings of the test are wrong");
        };
        let path = folder.path().join("notify");
        let heard = UnixDatagram::bind(&path).unwrap();
        let manager = Manager::at(path);
        let succession = Succession { manager, ..Succession::default() };
        (Arc::new(Daemon::prepare(*settings, succession).unwrap()), heard)
    }

    fn hears_life(heard: &UnixDatagram) -> bool {
        let mut buffer = [0; 200];
        heard.recv(&mut buffer).is_ok_and(|len| &buffer[..len] == b"WATCHDOG=1")
    }

    #[test]
    fn a_store_whose_lock_cannot_be_had_is_not_reported_alive() {
        let folder = tempfile::tempdir().unwrap();
        let (daemon, heard) = daemon(&folder);
        // Arena and ledger were given to keep.
        let mut buffer = [0; 200];
        for _ in 0..2 {
            let len = heard.recv(&mut buffer).unwrap();
            assert!(buffer[..len].starts_with(b"FDSTORE=1"));
        }
        daemon.accept_pulse.beat();
        let (hold, held) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(|| run(Duration::from_millis(5), &daemon));
            assert!(hears_life(&heard));
            let (stuck, is_stuck) = mpsc::channel();
            let of_store = Arc::clone(&daemon);
            scope.spawn(move || {
                of_store.brain.inspect(|_store, _now| {
                    stuck.send(()).unwrap();
                    held.recv().unwrap();
                });
            });
            is_stuck.recv().unwrap();
            // What was said before the lock was taken, and at most one that was on its way.
            heard.set_nonblocking(true).unwrap();
            let pause = Instant::now();
            while pause.elapsed() < Duration::from_millis(100) {
                hears_life(&heard);
            }
            let pause = Instant::now();
            while pause.elapsed() < Duration::from_millis(300) {
                assert!(!hears_life(&heard));
            }
            hold.send(()).unwrap();
            heard.set_nonblocking(false).unwrap();
            daemon.accept_pulse.beat();
            assert!(hears_life(&heard));
            daemon.stop.raise();
        });
    }

    #[test]
    fn a_pulse_grows_old_until_it_beats() {
        let pulse = Pulse { since: Instant::now() - Duration::from_secs(60), ..Pulse::default() };
        assert!(pulse.age() >= PULSE_PATIENCE);
        pulse.beat();
        assert!(pulse.age() < PULSE_PATIENCE);
    }
}
