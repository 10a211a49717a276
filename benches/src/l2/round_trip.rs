//! The stage for round trips: a daemon, two clients and two floors, with both ends on chosen cores.

use std::time::Instant;

use kvd_client::Client;
use kvd_proto::column::KeyColumnBuf;
use kvd_proto::ids::LeaseId;
use kvd_proto::v1::get::{Get, GetSharedResponse};
use kvd_proto::v2::fetch::{Fetch, FetchedRow, FetchedRows};

use crate::affinity::{self, Pinned};
use crate::daemon::Daemon;
use crate::floor::ping_pong::{Kind, PingPong, Sizes};
use crate::keys::{self, NAMESPACE};
use crate::percentile;
use crate::reference::Reference;

/// Blocks that are looked up; few enough to be warm, so that the round trip is what is measured.
pub const BLOCKS: u64 = 1024;
const BLOCK_BYTES: usize = 4096;

/// Where the two ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// For people and for ids.
    pub name: &'static str,
    server: usize,
    client: usize,
}

/// Both ends on one core, and, where there are two, on two.
///
/// # Errors
/// If the kernel does not say which cores there are.
pub fn places() -> anyhow::Result<Vec<Place>> {
    let cores = affinity::cores()?;
    let together = Place { name: "one core", server: cores[0], client: cores[0] };
    let apart =
        cores.get(1).map(|second| Place { name: "two cores", server: cores[0], client: *second });
    Ok([Some(together), apart].into_iter().flatten().collect())
}

/// Everything that is running.
#[derive(Debug)]
pub struct Stage {
    /// The client library, attached.
    pub client: Client,
    /// A protocol-1 client, attached with the arena.
    pub reference: Reference,
    /// The floor that counts.
    pub tokio: PingPong,
    /// The floor beside it.
    pub blocking: PingPong,
    /// The keys of all blocks.
    pub keys: Vec<keys::Key>,
    _daemon: Daemon,
    _pinned: Pinned,
}

impl Stage {
    /// Starts everything; this thread stays on the client's core.
    ///
    /// # Errors
    /// If something does not start.
    pub fn set(place: Place) -> anyhow::Result<Self> {
        let server = affinity::pin(place.server)?;
        let daemon = Daemon::start(&["--max-bytes", "64M"])?;
        let tokio = PingPong::start(Kind::Tokio)?;
        let blocking = PingPong::start(Kind::Blocking)?;
        drop(server);
        let pinned = affinity::pin(place.client)?;
        let client = daemon.client("kvd-bench");
        keys::store(&client, 0..BLOCKS, BLOCK_BYTES)?;
        let reference = Reference::connect(&daemon.socket(), true)?;
        let keys = (0..BLOCKS).map(keys::key).collect();
        Ok(Self { client, reference, tokio, blocking, keys, _daemon: daemon, _pinned: pinned })
    }
}

/// Frame sizes of a protocol-2 fetch of `count` keys that are all there.
#[must_use]
pub fn fetch_sizes(count: u64) -> Sizes {
    let mut keys = KeyColumnBuf::new();
    let mut rows = FetchedRows::default();
    for number in 0..count {
        // Keys are shorter than the limit, and there are fewer than a frame takes.
        let pushed = keys.push(&keys::key(number));
        debug_assert!(pushed.is_ok());
        rows.push(FetchedRow::Hit { lease: LeaseId(1 << 32), offset: 1 << 20, len_bytes: 4096 });
    }
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    let fetch = Fetch {
        id: 1000,
        namespace: NAMESPACE,
        keys: keys.as_column(),
        prefix: false,
        deadline_ms: 1000,
    };
    fetch.encode(&mut request);
    rows.reply(1000).encode(&mut reply);
    Sizes { request: request.len(), reply: reply.len() }
}

/// Frame sizes of a protocol-1 get that hits the arena.
#[must_use]
pub fn get_sizes() -> Sizes {
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    Get { key: &keys::key(0), namespace: NAMESPACE }.encode(&mut request);
    let found = GetSharedResponse {
        slot_offset: 1 << 20,
        length: 4096,
        version: 2000,
        retention: Some(kvd_client::Retention::Short),
        slot_size: 0,
    };
    found.encode(&mut reply);
    Sizes { request: request.len(), reply: reply.len() }
}

/// Calls `call` with numbers from 0 on and tells how long each took, in microseconds.
///
/// # Errors
/// The first of a call.
pub fn sample(
    count: usize,
    mut call: impl FnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<f64>> {
    let mut took = Vec::with_capacity(count);
    for index in 0..count {
        let begun = Instant::now();
        call(index)?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(took)
}

/// Interleaved samples of ours and of the floor: their percentiles, pair by pair.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    ours: [Vec<f64>; 2],
    floor: [Vec<f64>; 2],
}

/// The percentiles that are kept of each sample.
const SHARES: [f64; 2] = [0.5, 0.99];

impl Pairs {
    /// Adds one pair of samples.
    pub fn add(&mut self, mut ours: Vec<f64>, mut floor: Vec<f64>) {
        for (which, share) in SHARES.into_iter().enumerate() {
            self.ours[which].push(percentile::of(&mut ours, share));
            self.floor[which].push(percentile::of(&mut floor, share));
        }
    }

    /// The median over all pairs of ours divided by the floor: for the 50th and for the 99th percentile.
    #[must_use]
    pub fn ratios(&self) -> [f64; 2] {
        [0, 1].map(|which| {
            let pairs = self.ours[which].iter().zip(&self.floor[which]);
            percentile::median(&mut pairs.map(|(ours, floor)| ours / floor).collect::<Vec<_>>())
        })
    }

    /// Ours and the floor's percentiles for people, medians over all pairs.
    #[must_use]
    pub fn texts(&self) -> [String; 2] {
        [&self.ours, &self.floor].map(|side| {
            let [middle, high] = [0, 1].map(|which| percentile::median(&mut side[which].clone()));
            format!("{middle:.1} / {high:.1} µs")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_over_pairs_and_not_the_ratio_of_medians() {
        let mut pairs = Pairs::default();
        for (ours, floor) in [(10.0, 10.0), (30.0, 20.0), (20.0, 10.0)] {
            pairs.add(vec![ours], vec![floor]);
        }
        assert!(pairs.ratios().iter().all(|ratio| (ratio - 1.5).abs() < 1e-9));
    }

    #[test]
    fn batches_are_larger_than_single_keys() {
        let (one, many) = (fetch_sizes(1), fetch_sizes(64));
        assert!(
            many.request > one.request + 63 * keys::KEY_BYTES && many.reply > one.reply + 63 * 24
        );
        assert!(get_sizes().request > keys::KEY_BYTES);
    }
}
