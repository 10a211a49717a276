//! Touches the arena while the socket is already open.
//!
//! The first touch of memory is by far the slowest thing at start (0.1 to 1.5 s a GiB), and a page
//! belongs to the memory cgroup of whoever touches it first. So the daemon touches every page
//! itself, in parallel, lowest first; the store hands out memory only below the end of the part
//! that is ready without a gap.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use kvd_store::{Effects, Input};

use crate::daemon::Daemon;

/// More threads than this gain nothing: memory bandwidth is the limit.
const THREADS_MAX: usize = 16;

/// Starts the touch threads of a daemon; they end when all is touched or its stop flag is raised.
///
/// # Errors
/// A thread could not be started.
pub fn start(daemon: &Arc<Daemon>) -> io::Result<Vec<JoinHandle<()>>> {
    let pieces = usize::try_from(daemon.warm_up.pieces()).unwrap_or(usize::MAX);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (0..cores.min(THREADS_MAX).min(pieces))
        .map(|number| {
            let daemon = Arc::clone(daemon);
            Builder::new().name(format!("kvd-touch-{number}")).spawn(move || run(&daemon))
        })
        .collect()
}

fn run(daemon: &Daemon) {
    let mut effects = Effects::default();
    while !daemon.stop.is_raised() {
        let Some(piece) = daemon.warm_up.next_piece() else {
            return;
        };
        let touched = daemon.arena.touch(piece.range);
        for note in daemon.arena.take_notes() {
            daemon.status.note(note.to_string());
        }
        if let Err(error) = touched {
            // The rest of the arena stays unused; what is ready serves.
            daemon.status.note(format!("arena memory could not be touched: {error}"));
            daemon.warm_up.give_up(|| daemon.brain.apply(Input::ArenaGivenUp, &mut effects));
            return;
        }
        daemon.warm_up.finish(piece.number, |bytes| {
            daemon.brain.apply(Input::ArenaReady { bytes }, &mut effects);
        });
    }
}
