//! Load in flight: what has been sent to a target and a host and is not done yet.
//!
//! Plain values; whoever sends requests keeps one [`TargetLoad`] beside each target and one [`HostLoad`] beside each
//! host. A request's part in them is a value too: [`Waiting`] until the first byte, then [`Answering`]. Both are given
//! back once, by being moved.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::score::ettft::Terms;
use crate::score::facts::{LOWER_TIERS, Load, Speed, Way};

/// What a recent block is worth after another request was placed, anywhere.
const RECENT_KEPT: f64 = 0.97;
/// Less than this is nothing.
const RECENT_MIN: f64 = 0.001;
/// Images that are remembered for each target.
const IMAGES_MAX: usize = 256;
/// Weight of the newest request in the mean of their sizes.
const NEWEST: f64 = 1.0 / 16.0;

/// A request that was placed, as far as load is concerned.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    /// What the target computes for it, as that many tokens at the beginning of a prompt.
    pub work_tokens: f64,
    /// Seconds that it loads before it computes.
    pub load_seconds: f64,
    /// Bytes that it loads from L2, L3 and L4.
    pub loaded_bytes: [f64; LOWER_TIERS.len()],
    /// Names of its blocks, as far as they are known.
    pub blocks: Arc<[u64]>,
    /// Whether somebody asks for distinct blocks in flight.
    pub counts_blocks: bool,
}

impl Placed {
    /// What was predicted.
    #[must_use]
    pub const fn new(terms: &Terms, blocks: Arc<[u64]>) -> Self {
        let Terms { work_tokens, load_seconds, loaded_bytes, .. } = *terms;
        Self { work_tokens, load_seconds, loaded_bytes, blocks, counts_blocks: false }
    }
}

/// A request whose first byte has not come. It has to be given back.
#[derive(Debug)]
#[must_use = "load that is not given back stays for good"]
pub struct Waiting {
    number: u64,
    placed: Placed,
}

/// A request whose answer has begun. It has to be given back.
#[derive(Debug)]
#[must_use = "load that is not given back stays for good"]
pub struct Answering {
    blocks: Arc<[u64]>,
    counts_blocks: bool,
}

/// What a worker says of itself when asked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Polled {
    /// Requests that wait.
    pub waiting: u32,
    /// Requests that run.
    pub running: u32,
    /// Share of its memory for blocks that is in use.
    pub memory_used: f64,
}

/// What one target has in flight.
#[derive(Clone, Debug, Default)]
pub struct TargetLoad {
    /// By their numbers: in the order in which they came, which is that in which engines begin them.
    waiting: BTreeMap<u64, InLine>,
    next_number: u64,
    /// Since when the first one is that.
    first_since: f64,
    queued_tokens: f64,
    answering: u32,
    /// Distinct blocks in flight, and of how many requests each.
    blocks: HashMap<u64, u32, FixedState>,
    /// Blocks in flight, those of several requests as often.
    blocks_of_all: u64,
    recent: Recent,
    /// Mean of the tokens' worth that a request has to compute.
    work_mean: f64,
    polled: Option<Polled>,
    images: VecDeque<u64>,
}

/// What a score asks of a request that waits.
#[derive(Clone, Debug)]
struct InLine {
    work_tokens: f64,
    load_seconds: f64,
    blocks: Arc<[u64]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    blocks: f64,
    turn: u64,
}

impl TargetLoad {
    /// A request is sent at `now`, in seconds of any clock that the target keeps to. `turn` numbers the requests of all
    /// targets, `missed_blocks` are those that the target does not have, nothing if they are not known.
    pub fn begin(
        &mut self,
        placed: Placed,
        turn: u64,
        missed_blocks: Option<f64>,
        now: f64,
    ) -> Waiting {
        if self.waiting.is_empty() {
            self.first_since = now;
        }
        let number = self.next_number;
        self.next_number += 1;
        let Placed { work_tokens, load_seconds, .. } = placed;
        let blocks = Arc::clone(&placed.blocks);
        self.blocks_of_all += blocks.len() as u64;
        self.waiting.insert(number, InLine { work_tokens, load_seconds, blocks });
        self.queued_tokens += work_tokens;
        let change = work_tokens - self.work_mean;
        self.work_mean += if self.work_mean > 0.0 { NEWEST * change } else { change };
        if placed.counts_blocks {
            for name in &*placed.blocks {
                *self.blocks.entry(*name).or_insert(0) += 1;
            }
        }
        let blocks = self.recent(turn) + missed_blocks.unwrap_or(1.0);
        self.recent = Recent { blocks, turn };
        Waiting { number, placed }
    }

    /// The first byte came.
    pub fn first_byte(
        &mut self,
        host: Option<&mut HostLoad>,
        waiting: Waiting,
        now: f64,
    ) -> Answering {
        let Waiting { number, placed } = waiting;
        if self.waiting.first_key_value().is_some_and(|(first, _)| *first == number) {
            self.first_since = now;
        }
        self.waiting.remove(&number);
        self.answering += 1;
        self.queued_tokens -= placed.work_tokens;
        if self.waiting.is_empty() {
            // Sums of fractions leave crumbs.
            self.queued_tokens = 0.0;
        }
        if let Some(host) = host {
            host.end(&placed);
        }
        Answering { blocks: placed.blocks, counts_blocks: placed.counts_blocks }
    }

    /// The answer is over.
    pub fn finish(&mut self, answering: Answering) {
        let Answering { blocks, counts_blocks } = answering;
        self.answering = self.answering.saturating_sub(1);
        self.blocks_of_all -= blocks.len() as u64;
        for name in blocks.iter().filter(|_| counts_blocks) {
            if let Some(count) = self.blocks.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.blocks.remove(name);
                }
            }
        }
    }

    /// The request was given up before its first byte.
    pub fn abandon(&mut self, host: Option<&mut HostLoad>, waiting: Waiting, now: f64) {
        let answering = self.first_byte(host, waiting, now);
        self.finish(answering);
    }

    /// What the worker said of itself; nothing, if it no longer does.
    pub const fn set_polled(&mut self, polled: Option<Polled>) {
        self.polled = polled;
    }

    /// What a score needs of it at `now`. Of the first one in line a part is computed by then; requests that others sent
    /// there count as far as the worker says so.
    #[must_use]
    pub fn load(&self, decodes_max: u32, speed: &Speed, now: f64) -> Load {
        let polled = self.polled.unwrap_or_default();
        let of_others = f64::from(polled.waiting) * self.work_mean;
        let waiting = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        let running = polled.running.saturating_sub(waiting).max(self.answering);
        let load = Load {
            queued_tokens: self.queued_tokens,
            decodes: f64::from(running),
            decodes_max: f64::from(decodes_max),
            memory_used: polled.memory_used,
        };
        let done = self.waiting.first_key_value().map_or(0.0, |(_, first)| {
            let seconds = now - self.first_since - first.load_seconds;
            load.tokens_in(seconds, speed).clamp(0.0, first.work_tokens)
        });
        Load { queued_tokens: (self.queued_tokens - done).max(of_others), ..load }
    }

    /// How many of these blocks, from the first one on, are those of a request that waits: engines keep what they compute,
    /// so whoever comes behind it finds them. At least `known`.
    #[must_use]
    pub fn blocks_to_come(&self, names: &[u64], known: u32) -> u32 {
        let mut most = known as usize;
        for InLine { blocks, .. } in self.waiting.values() {
            let is_same = |at: usize| blocks.get(at) == names.get(at);
            let end = blocks.len().min(names.len());
            if most >= end || !is_same(most) {
                continue;
            }
            // The name of a block stands for all before it: the same up to some block, and others from there on.
            let (mut low, mut high) = (most + 1, end);
            while low < high {
                let middle = low.midpoint(high);
                if is_same(middle) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            most = low;
        }
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// The reference's load, in blocks: distinct ones in flight, and recent ones.
    #[must_use]
    pub fn reference_load(&self, turn: u64) -> f64 {
        self.blocks.len() as f64 + self.recent(turn)
    }

    fn recent(&self, turn: u64) -> f64 {
        let turns = i32::try_from(turn.saturating_sub(self.recent.turn)).unwrap_or(i32::MAX);
        let left = self.recent.blocks * RECENT_KEPT.powi(turns);
        if left < RECENT_MIN { 0.0 } else { left }
    }

    /// How many of these images it has seen.
    #[must_use]
    pub fn images_held(&self, images: &[u64]) -> u32 {
        let held = images.iter().filter(|image| self.images.contains(image)).count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// It sees these images now; the oldest ones are forgotten.
    pub fn see_images(&mut self, images: &[u64]) {
        for image in images {
            self.images.retain(|known| known != image);
            self.images.push_back(*image);
        }
        let over = self.images.len().saturating_sub(IMAGES_MAX);
        self.images.drain(..over);
    }

    /// Requests in flight.
    #[must_use]
    pub fn requests(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX).saturating_add(self.answering)
    }

    /// Blocks of requests in flight: distinct ones, if they are counted.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        if self.blocks.is_empty() { self.blocks_of_all } else { self.blocks.len() as u64 }
    }
}

/// What the workers of one host have asked of its tiers and not got yet.
#[derive(Clone, Debug, Default)]
pub struct HostLoad {
    loads: [Outstanding; LOWER_TIERS.len()],
    all: Outstanding,
}

#[derive(Clone, Copy, Debug, Default)]
struct Outstanding {
    loads: u32,
    bytes: f64,
}

impl Outstanding {
    fn add(&mut self, bytes: f64) {
        self.loads += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: f64) {
        self.loads = self.loads.saturating_sub(1);
        self.bytes = if self.loads == 0 { 0.0 } else { self.bytes - bytes };
    }
}

impl HostLoad {
    /// A request is sent to a worker of the host.
    pub fn begin(&mut self, placed: &Placed) {
        self.change(placed, Outstanding::add);
    }

    fn end(&mut self, placed: &Placed) {
        self.change(placed, Outstanding::remove);
    }

    fn change(&mut self, placed: &Placed, change: impl Fn(&mut Outstanding, f64)) {
        for (load, bytes) in self.loads.iter_mut().zip(placed.loaded_bytes) {
            if bytes > 0.0 {
                change(load, bytes);
            }
        }
        let bytes: f64 = placed.loaded_bytes.iter().sum();
        if bytes > 0.0 {
            change(&mut self.all, bytes);
        }
    }

    /// `way` with the queues that its links have: what the daemon measured, or what is known here if that is more.
    #[must_use]
    pub fn queued(&self, mut way: Way) -> Way {
        for (link, load) in way.tiers.iter_mut().zip(&self.loads) {
            link.queued_bytes = link.queued_bytes.max(load.bytes);
        }
        way.device.queued_bytes = way.device.queued_bytes.max(self.all.bytes);
        way
    }

    /// Loads that have not come, from L2, L3 and L4.
    #[must_use]
    pub fn outstanding(&self) -> [u32; LOWER_TIERS.len()] {
        self.loads.map(|load| load.loads)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "sums of small whole numbers, and what stays as it was")]

    use super::*;

    const SPEED: Speed = Speed::of_tokens_per_second(100.0);

    fn placed(work_tokens: f64, blocks: &[u64]) -> Placed {
        Placed {
            work_tokens,
            load_seconds: 0.0,
            loaded_bytes: [0.0, 100.0, 0.0],
            blocks: blocks.into(),
            counts_blocks: true,
        }
    }

    #[test]
    fn blocks_in_flight_are_distinct_and_go_with_their_last_request() {
        let mut load = TargetLoad::default();
        let first = load.begin(placed(10.0, &[1, 2, 3]), 0, Some(0.0), 0.0);
        let second = load.begin(placed(20.0, &[2, 3, 4]), 0, Some(0.0), 0.0);
        assert_eq!(load.reference_load(0), 4.0);
        let first = load.first_byte(None, first, 0.0);
        assert_eq!(load.load(0, &SPEED, 0.0).queued_tokens, 20.0);
        assert_eq!((load.reference_load(0), load.requests()), (4.0, 2));
        load.finish(first);
        assert_eq!(load.reference_load(0), 3.0);
        load.abandon(None, second, 0.0);
        assert_eq!((load.reference_load(0), load.requests()), (0.0, 0));
        assert_eq!(load.load(0, &SPEED, 0.0), Load::default());
    }

    #[test]
    fn what_is_computed_of_the_first_one_is_not_waited_for() {
        let mut load = TargetLoad::default();
        let first = load.begin(placed(300.0, &[]), 0, None, 10.0);
        let work = Placed { load_seconds: 1.0, ..placed(200.0, &[]) };
        let second = load.begin(work, 0, None, 11.0);
        let queued = |load: &TargetLoad, now| load.load(0, &SPEED, now).queued_tokens;
        assert_eq!([10.0, 12.0, 99.0].map(|now| queued(&load, now)), [500.0, 300.0, 200.0]);
        let first = load.first_byte(None, first, 14.0);
        // The second one is loaded before it is computed.
        assert_eq!([14.0, 15.0, 16.0].map(|now| queued(&load, now)), [200.0, 200.0, 100.0]);
        // Who overtakes does not begin the first one anew.
        let third = load.begin(placed(100.0, &[]), 0, None, 16.0);
        let third = load.first_byte(None, third, 16.0);
        assert_eq!(queued(&load, 16.0), 100.0);
        load.abandon(None, second, 17.0);
        assert_eq!(queued(&load, 17.0), 0.0);
        let again = load.begin(placed(300.0, &[]), 0, None, 20.0);
        assert_eq!(queued(&load, 21.0), 200.0);
        load.abandon(None, again, 21.0);
        load.finish(first);
        load.finish(third);
    }

    #[test]
    fn blocks_of_a_request_that_waits_are_to_come() {
        let mut load = TargetLoad::default();
        let to_come = |load: &TargetLoad, names: &[u64], known| load.blocks_to_come(names, known);
        assert_eq!(to_come(&load, &[1, 2], 1), 1);
        let first = load.begin(placed(1.0, &[1, 2, 3, 4, 5]), 0, None, 0.0);
        let second = load.begin(placed(1.0, &[1, 2, 7]), 0, None, 0.0);
        for (names, known, expected) in [
            (&[1, 2, 3, 4, 5, 6][..], 0, 5),
            (&[1, 2, 3, 9, 9], 0, 3),
            (&[1, 2, 3, 4], 2, 4),
            (&[1, 2, 7, 8], 1, 3),
            (&[9, 9, 9], 0, 0),
            (&[1, 2, 3], 3, 3),
            (&[], 0, 0),
        ] {
            assert_eq!(to_come(&load, names, known), expected, "{names:?}");
        }
        let first = load.first_byte(None, first, 0.0);
        assert_eq!(to_come(&load, &[1, 2, 3], 0), 2);
        assert_eq!(load.blocks(), 6);
        load.finish(first);
        load.abandon(None, second, 0.0);
        assert_eq!(load.blocks(), 0);
    }

    #[test]
    fn recent_blocks_fade_with_every_request_placed_anywhere() {
        let mut load = TargetLoad::default();
        let waiting = load.begin(placed(0.0, &[]), 5, Some(8.0), 0.0);
        assert!((load.reference_load(6) - 8.0 * 0.97).abs() < 1e-9);
        assert!((load.reference_load(15) - 8.0 * 0.97_f64.powi(10)).abs() < 1e-9);
        assert_eq!(load.reference_load(u64::MAX), 0.0);
        load.abandon(None, waiting, 0.0);
        let waiting = load.begin(placed(0.0, &[]), 6, None, 0.0);
        assert!((load.reference_load(6) - (8.0 * 0.97 + 1.0)).abs() < 1e-9);
        load.abandon(None, waiting, 0.0);
    }

    #[test]
    fn what_others_sent_counts_as_far_as_the_worker_says() {
        let mut load = TargetLoad::default();
        let waiting = load.begin(placed(100.0, &[]), 0, None, 0.0);
        load.set_polled(Some(Polled { waiting: 3, running: 5, memory_used: 0.5 }));
        let now = load.load(8, &SPEED, 0.0);
        assert_eq!((now.queued_tokens, now.decodes, now.memory_used), (300.0, 4.0, 0.5));
        load.set_polled(None);
        assert_eq!(load.load(8, &SPEED, 0.0).queued_tokens, 100.0);
        load.abandon(None, waiting, 0.0);
    }

    #[test]
    fn links_are_taken_until_the_first_byte() {
        let (mut target, mut host) = (TargetLoad::default(), HostLoad::default());
        let work = placed(1.0, &[]);
        host.begin(&work);
        let waiting = target.begin(work, 0, None, 0.0);
        let way = host.queued(Way::default());
        assert_eq!(host.outstanding(), [0, 1, 0]);
        assert_eq!(way.tiers.map(|link| link.queued_bytes), [0.0, 100.0, 0.0]);
        assert_eq!(way.device.queued_bytes, 100.0);
        let answering = target.first_byte(Some(&mut host), waiting, 0.0);
        assert_eq!(host.queued(Way::default()), Way::default());
        target.finish(answering);
    }

    #[test]
    fn the_oldest_images_are_forgotten() {
        let mut load = TargetLoad::default();
        let images: Vec<u64> = (0..300).collect();
        load.see_images(&images);
        load.see_images(&[44]);
        load.see_images(&[1000]);
        assert_eq!(load.images_held(&[43, 44, 45, 299, 1000]), 3);
    }
}
