//! The tick: promises that end, grace times that pass, rows whose time is over.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use kvd_store::{Effects, Input, Outcome};

use crate::brain::Brain;
use crate::stop::Stop;

/// Pause between ticks. Short against the shortest grace time (1 s); a tick that has nothing to do
/// costs less than a microsecond.
const TICK: Duration = Duration::from_millis(50);

/// Starts the tick thread; it ends when `stop` is raised.
///
/// # Errors
/// The thread could not be started.
pub fn start(brain: Arc<Brain>, stop: Arc<Stop>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("kvd-clock".into()).spawn(move || {
        let mut effects = Effects::default();
        while !stop.wait(TICK) {
            loop {
                brain.apply(Input::Tick, &mut effects);
                if effects.outcome != (Outcome::Ticked { more: true }) {
                    break;
                }
            }
        }
    })
}
