//! What is measured, and the sums of what is held.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kvd_proto::block_key::Namespace;
use kvd_proto::events::figures::Tiers;
use kvd_proto::events::{BatchWriter, CacheTier, Event, Owner, Stats, TierFigures};
use kvd_store::{DeviceHealth, DeviceInfo, Store, TierChange};

use super::timestamp;
use crate::brain::Brain;

/// Figures are sent so often, whether they changed or not.
const FIGURES_EVERY: Duration = Duration::from_secs(1);
/// And looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Sums are sent so often.
const DIGESTS_EVERY: Duration = Duration::from_secs(10);
/// Namespaces whose sums are told under one hold of the store's lock.
const DIGESTS_AT_ONCE: usize = 64;

/// When which figures are due, and what they were.
#[derive(Debug)]
pub struct Figures {
    host_id: String,
    epoch: u64,
    sent: Vec<TierFigures>,
    send_at: Instant,
    look_at: Instant,
    digests_at: Instant,
    /// Namespaces of the digests before: one that holds nothing any more is told once more.
    told: BTreeSet<(String, String)>,
}

impl Figures {
    /// Nothing was sent yet.
    #[must_use]
    pub fn new(host_id: &str, epoch: u64) -> Self {
        let now = Instant::now();
        Self {
            host_id: host_id.to_owned(),
            epoch,
            sent: Vec::new(),
            send_at: now,
            look_at: now,
            digests_at: now + DIGESTS_EVERY,
            told: BTreeSet::new(),
        }
    }

    /// The payload of figures that are due: every second, or because something changed by a fifth.
    pub fn take(&mut self, brain: &Brain, as_of_seq: u64) -> Option<Vec<u8>> {
        let now = Instant::now();
        if now < self.look_at {
            return None;
        }
        self.look_at = now + LOOK_EVERY;
        let tiers = brain.inspect(|store, _| of(store));
        if now < self.send_at && !differ(&self.sent, &tiers) {
            return None;
        }
        self.send_at = now + FIGURES_EVERY;
        let owner = Owner { id: Some(&self.host_id), epoch: Some(self.epoch) };
        let stats = Stats { owner, as_of_seq, tiers: Tiers::Slice(&tiers) };
        let mut payload = Vec::new();
        let mut batch = BatchWriter::begin(&mut payload, timestamp());
        batch.push(&Event::Stats(stats));
        batch.finish();
        self.sent = tiers;
        Some(payload)
    }

    /// Whether it is time for sums.
    #[must_use]
    pub fn digests_are_due(&self) -> bool {
        Instant::now() >= self.digests_at
    }

    /// Puts the sum of each namespace into the stream of changes, where it is true.
    pub fn put_digests(&mut self, brain: &Brain) {
        self.digests_at = Instant::now() + DIGESTS_EVERY;
        let mut held = BTreeSet::new();
        brain.inspect(|store, _| {
            store.tier_namespaces(|namespace| {
                held.insert((namespace.model.to_owned(), namespace.compat_key.to_owned()));
            });
        });
        let names: Vec<&(String, String)> = held.union(&self.told).collect();
        for names in names.chunks(DIGESTS_AT_ONCE) {
            brain.remark(|store, changes| {
                for (model, compat_key) in names {
                    let namespace = Namespace { model, compat_key };
                    let digest = store.tier_digest(namespace);
                    changes.push(TierChange::Digest(namespace, CacheTier::L2, digest.l2));
                    if let Some(l3) = digest.l3 {
                        changes.push(TierChange::Digest(namespace, CacheTier::L3, l3));
                    }
                }
            });
        }
        self.told = held;
    }
}

/// The figures of all tiers that there are.
#[must_use]
pub fn of(store: &Store) -> Vec<TierFigures> {
    let stats = store.stats();
    let mut tiers = vec![TierFigures {
        tier: CacheTier::L2,
        bytes: stats.space.arena_bytes,
        used: stats.host_bytes,
        // Engines read memory by themselves.
        read_bw: None,
        read_lat_us: None,
        queue_bytes: 0,
    }];
    let devices = store.devices();
    let of_use: Vec<&DeviceInfo> =
        devices.iter().filter(|device| device.health == DeviceHealth::Ready).collect();
    if !of_use.is_empty() {
        let sum = |read: fn(&DeviceInfo) -> u64| -> u64 {
            of_use.iter().map(|device| read(device)).sum()
        };
        let bandwidth = sum(|device| device.read_bytes_per_s);
        let measured = of_use.iter().filter(|device| device.read_latency_us > 0);
        let latencies: Vec<u32> = measured.map(|device| device.read_latency_us).collect();
        let latency = latencies.iter().copied().map(f64::from).sum::<f64>();
        let count = u32::try_from(latencies.len()).unwrap_or(u32::MAX);
        tiers.push(TierFigures {
            tier: CacheTier::L3,
            bytes: sum(|device| device.capacity_bytes),
            used: sum(|device| device.payload_bytes),
            read_bw: (bandwidth > 0).then(|| as_f64(bandwidth)),
            read_lat_us: (count > 0).then(|| latency / f64::from(count)),
            queue_bytes: sum(|device| device.load_bytes),
        });
    }
    tiers
}

/// Whether anything changed by more than a fifth.
fn differ(before: &[TierFigures], now: &[TierFigures]) -> bool {
    let by_tier: BTreeMap<CacheTier, &TierFigures> =
        before.iter().map(|figures| (figures.tier, figures)).collect();
    before.len() != now.len()
        || now.iter().any(|figures| {
            by_tier.get(&figures.tier).is_none_or(|before| {
                let is_other = |read: fn(&TierFigures) -> f64| {
                    let (before, now) = (read(before), read(figures));
                    (now - before).abs() > 0.2 * before.max(1.0)
                };
                is_other(|figures| as_f64(figures.used))
                    || is_other(|figures| as_f64(figures.queue_bytes))
                    || is_other(|figures| figures.read_bw.unwrap_or_default())
                    || is_other(|figures| figures.read_lat_us.unwrap_or_default())
            })
        })
}

#[expect(clippy::cast_precision_loss, reason = "figures of hardware, compared roughly")]
const fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(used: u64, read_bw: Option<f64>) -> Vec<TierFigures> {
        let (tier, bytes, read_lat_us, queue_bytes) = (CacheTier::L3, 1 << 30, None, 0);
        vec![TierFigures { tier, bytes, used, read_bw, read_lat_us, queue_bytes }]
    }

    #[test]
    fn a_fifth_is_a_change() {
        let before = figures(1_000, Some(1e9));
        assert!(!differ(&before, &figures(1_199, Some(1.1e9))));
        assert!(differ(&before, &figures(1_201, Some(1e9))));
        assert!(differ(&before, &figures(1_000, Some(0.7e9))));
        assert!(differ(&before, &figures(1_000, None)));
        assert!(differ(&before, &[]));
    }
}
