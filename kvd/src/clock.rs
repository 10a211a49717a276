//! The tick: promises that end, grace times that pass, rows whose time is over; and the drain.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use kvd_store::{Effects, Input, Outcome};

use crate::daemon::Daemon;

/// Pause between ticks. Short against the shortest grace time (1 s); a tick that has nothing to do
/// costs less than a microsecond.
const TICK: Duration = Duration::from_millis(50);

/// Starts the tick thread; it ends when the daemon's stop flag is raised.
///
/// # Errors
/// The thread could not be started.
pub fn start(daemon: &Arc<Daemon>) -> io::Result<JoinHandle<()>> {
    let daemon = Arc::clone(daemon);
    Builder::new().name("kvd-clock".into()).spawn(move || {
        let mut effects = Effects::default();
        while !daemon.stop.wait(TICK) {
            loop {
                daemon.brain.apply(Input::Tick, &mut effects);
                if effects.outcome != (Outcome::Ticked { more: true }) {
                    break;
                }
            }
            daemon.overhang.tick(&daemon.brain, &mut effects);
            daemon.drain.tick(&daemon);
        }
    })
}
