//! What the daemon publishes: which blocks can be read in which tier, how fast its tiers are, and where all that is to
//! be had. For routers, which choose a host by it; byte by byte: `docs/events.md`.
//!
//! [`log`] is filled under the store's lock and emptied by the thread `kvd-events` ([`thread`]), which makes numbered
//! batches of it ([`stream`]), sends them, and answers who missed some ([`replay`]). [`figures`] adds what is measured,
//! and the sums by which a reader finds that it has something else than the daemon. [`doors`] are the sockets, [`keys`] who
//! may come in. [`snapshot`] reads everything, slice by slice, for who begins; [`register`] tells etcd that all this
//! is there.
//!
//! Nobody waits for a reader: a log that is full, a reader that is slow and a replay that is too long ago all end in a
//! number that is missing, and the reader begins again with a snapshot.

pub mod doors;
pub mod figures;
pub mod keys;
pub mod log;
pub mod register;
pub mod replay;
pub mod snapshot;
pub mod stream;
pub mod thread;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// What the threads of one daemon share about its events.
#[derive(Debug)]
pub struct Events {
    /// Names this life of the publisher: numbers of another one mean nothing. Microseconds since 1970 at its start, so
    /// larger than that of the life before, a hand-over included.
    pub epoch: u64,
    /// The last message that is made, whether sent or not.
    pub published: AtomicU64,
    /// Where the sockets are, once they are there.
    pub endpoints: OnceLock<Endpoints>,
    /// What happened.
    pub meters: Meters,
}

/// Where the sockets listen, as ZeroMQ writes it.
#[derive(Clone, Debug, Serialize)]
pub struct Endpoints {
    /// Events and figures.
    pub events: String,
    /// Replays.
    pub replay: String,
    /// The server's public key, Z85; none without CURVE.
    pub curve_server_key: Option<String>,
}

/// Counters of the threads that publish.
#[derive(Debug, Default)]
pub struct Meters {
    /// Messages with events.
    pub batches: AtomicU64,
    /// Events in them.
    pub events: AtomicU64,
    /// Changes for which the log had no room.
    pub lost: AtomicU64,
    /// Numbers that were left out, so that readers begin again.
    pub gaps: AtomicU64,
    /// Replays that were asked for.
    pub replays: AtomicU64,
    /// Replays of what is no longer kept.
    pub replays_too_old: AtomicU64,
    /// Replays that nobody took to their end.
    pub replays_given_up: AtomicU64,
    /// Snapshots that were begun.
    pub snapshots: AtomicU64,
    /// Connections whose key is not on the list.
    pub keys_refused: AtomicU64,
    /// The record is in etcd.
    pub is_registered: AtomicBool,
    /// Attempts to register that failed.
    pub registrations_failed: AtomicU64,
}

impl Events {
    /// A life that begins now.
    #[must_use]
    pub fn new() -> Self {
        let micros = u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX);
        Self {
            epoch: micros.max(1),
            published: AtomicU64::new(0),
            endpoints: OnceLock::new(),
            meters: Meters::default(),
        }
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// Seconds since 1970, as batches carry them.
fn timestamp() -> f64 {
    since_1970().as_secs_f64()
}
