//! What the index knows from one daemon: its lives, its messages, its snapshots.

mod ahead;
mod apply;

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use kvd_proto::events::{
    Batch, CacheTier, Event, Replayed, Shard, SnapshotItem, Tally, TierFigures,
};

use super::doubt::{DOUBTED_CREDIT, Doubt};
use super::families::Families;
use super::in_order::InOrder;
use super::rows::{Rows, SpaceKey, SpaceName};
use super::sequence::{Arrival, Need, Sequence};
use super::{Counts, Moment};
use crate::index::Index;

pub use ahead::{Ahead, Keys};

/// Whose events, and what the daemon offers.
#[derive(Clone, Debug)]
pub struct HostSource {
    /// The host.
    pub host: Arc<str>,
    /// Whether it has a replay socket.
    pub can_replay: bool,
    /// Whether it has snapshots.
    pub can_snapshot: bool,
}

/// How much of a tier a view holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    All,
    /// Nothing, until there is room in the index.
    LeftOut,
    /// Nothing for good: it has more rows than a view may have.
    TooMany,
}

/// Rows of one namespace in one tier, and what they are parts of.
#[derive(Debug)]
struct Space {
    rows: Rows,
    /// Nothing if there are too many families.
    family: Option<usize>,
    /// Which part this namespace stores, if the events don't say.
    shard: Shard,
}

/// What the index knows from one daemon.
#[derive(Debug)]
pub struct HostView {
    source: HostSource,
    epoch: Option<u64>,
    /// The life that figures named last; looked at when time passes.
    told_epoch: Option<u64>,
    sequence: Sequence,
    doubt: Doubt,
    spaces: HashMap<SpaceKey, Space, FixedState>,
    families: Families,
    row_count: usize,
    /// Rows of the snapshot that is being read.
    snapshot_rows: u64,
    generation: u32,
    /// What an earlier life left in pools was not seen since.
    are_pools_unverified: bool,
    /// How much of each tier is held.
    shares: [Share; CacheTier::ALL.len()],
    figures: Vec<TierFigures>,
    counts: Counts,
}

impl HostView {
    /// A view that knows nothing yet.
    #[must_use]
    pub fn new(source: HostSource) -> Self {
        Self {
            epoch: None,
            told_epoch: None,
            sequence: Sequence::new(source.can_replay, source.can_snapshot),
            doubt: Doubt::default(),
            spaces: HashMap::default(),
            families: Families::default(),
            row_count: 0,
            snapshot_rows: 0,
            generation: 0,
            are_pools_unverified: false,
            shares: [Share::All; CacheTier::ALL.len()],
            figures: Vec::new(),
            counts: Counts::default(),
            source,
        }
    }

    /// Whose events these are.
    #[must_use]
    pub const fn source(&self) -> &HostSource {
        &self.source
    }

    /// What to ask for when the subscription stands.
    pub fn begin(&mut self) -> Option<Need> {
        self.sequence.begin()
    }

    /// A message from the daemon's topic of events.
    pub fn live(&mut self, index: &Index, seq: u64, payload: &[u8], now: Moment) -> Option<Need> {
        if let Some(epoch) = epoch_of(payload) {
            let _the_sequence_begins_anew = self.enter(index, epoch);
        }
        let mut arrival = self.sequence.live(seq, payload);
        if arrival == Arrival::Restarted {
            self.counts.restarts += 1;
            self.sequence.restart();
            arrival = self.sequence.live(seq, payload);
        }
        let need = self.take(index, arrival, payload, now);
        self.show_credit(index);
        need
    }

    /// A message from the daemon's topic of figures; true if it said something.
    pub fn figure(&mut self, payload: &[u8]) -> bool {
        let Ok(batch) = Batch::decode(payload) else {
            self.counts.malformed += 1;
            return false;
        };
        let stats = batch.events().filter_map(|event| match event {
            Event::Stats(stats) => Some(stats),
            Event::Stored(_) | Event::Removed(_) | Event::Cleared(_) | Event::Digest(_) => None,
        });
        let Some(stats) = stats.last() else {
            return false;
        };
        self.told_epoch = stats.owner.epoch;
        self.figures.clear();
        self.figures.extend(stats.tiers.iter().take(CacheTier::ALL.len()));
        true
    }

    /// The last measured figures of its tiers.
    #[must_use]
    pub fn figures(&self) -> &[TierFigures] {
        &self.figures
    }

    /// An answer of the replay socket. Nothing more is awaited after [`Replayed::End`] and [`Replayed::TooOld`].
    pub fn replayed(&mut self, index: &Index, answer: &Replayed<'_>, now: Moment) -> Option<Need> {
        match answer {
            Replayed::Message { seq, payload, epoch } => {
                let epoch = epoch.or_else(|| epoch_of(payload));
                if epoch.is_some() && self.epoch.is_some() && epoch != self.epoch {
                    // The numbers are of another life.
                    return self.replay_failed(index, now);
                }
                self.take_older(index, *seq, now);
                let arrival = self.sequence.replayed(*seq)?;
                self.take(index, arrival, payload, now)
            }
            Replayed::End => {
                if !self.sequence.replay_ended() {
                    return None;
                }
                self.catch_up(index, now)
            }
            Replayed::TooOld => self.replay_failed(index, now),
        }
    }

    /// No replay came, or not all of it.
    pub fn replay_failed(&mut self, index: &Index, now: Moment) -> Option<Need> {
        let was_missing = self.sequence.is_recovering() && self.sequence.last().is_some();
        if let Some(need) = self.sequence.replay_failed() {
            return Some(need);
        }
        if was_missing {
            self.doubt.raise(now);
        }
        self.catch_up(index, now)
    }

    /// An item of a snapshot.
    pub fn snapshot(
        &mut self,
        index: &Index,
        item: &SnapshotItem<'_>,
        now: Moment,
    ) -> Option<Need> {
        match item {
            SnapshotItem::Header { epoch, seq, .. } => {
                let was_awaited = self.sequence.awaits_snapshot();
                if self.enter(index, *epoch) {
                    // Whoever reads a snapshot goes on reading it.
                    let need = self.sequence.begin();
                    if !was_awaited {
                        return need;
                    }
                }
                if self.sequence.snapshot_began(*seq) {
                    self.snapshot_rows = 0;
                    self.generation = self.generation.wrapping_add(1);
                }
                None
            }
            SnapshotItem::Row(stored) => {
                if self.sequence.is_in_snapshot() {
                    self.snapshot_rows += 1;
                    self.store(index, stored);
                }
                None
            }
            SnapshotItem::Skipped => {
                self.snapshot_rows += 1;
                None
            }
            SnapshotItem::End { count } => {
                if *count != self.snapshot_rows {
                    return self.snapshot_failed();
                }
                if !self.sequence.snapshot_ended() {
                    return None;
                }
                self.sweep(index);
                self.doubt.settle();
                self.are_pools_unverified = false;
                self.catch_up(index, now)
            }
        }
    }

    /// No snapshot came, or not all of it. Wait a little before asking again.
    pub fn snapshot_failed(&mut self) -> Option<Need> {
        self.sequence.snapshot_failed()
    }

    /// The daemon's life, as an event or a header says it. Whether it is another one than before.
    fn enter(&mut self, index: &Index, epoch: u64) -> bool {
        let before = self.epoch.replace(epoch);
        if before.is_none_or(|before| before == epoch) {
            return false;
        }
        self.counts.restarts += 1;
        self.drop_rows(index, |space| space.tier != CacheTier::L4);
        self.are_pools_unverified = true;
        self.shares = [Share::All; CacheTier::ALL.len()];
        self.sequence.restart();
        true
    }

    /// Time passes: doubts end, lower tiers make room or come back. A daemon that is idle in a new life says so by its
    /// figures long before it has an event to tell.
    pub fn tick(&mut self, index: &Index, now: Moment) -> Option<Need> {
        self.doubt.tick(now);
        // Figures of the former life may still be on their way when a snapshot has named the new one.
        let later = self.told_epoch.take().filter(|told| self.epoch.is_some_and(|it| it < *told));
        if later.is_some_and(|epoch| self.enter(index, epoch)) {
            let need = self.sequence.begin();
            self.show_credit(index);
            return need;
        }
        if let Some(tier) = index.must_shed() {
            self.leave_out(index, tier, Share::LeftOut);
        }
        let may_return =
            |tier: &CacheTier| self.share(*tier) == Share::LeftOut && index.has_plenty_for(*tier);
        let back = CacheTier::ALL.into_iter().find(may_return);
        let mut need = None;
        if let Some(tier) = back {
            self.set_share(tier, Share::All);
            need = self.resynchronise(now);
        }
        self.show_credit(index);
        need
    }

    /// A tier is no longer held.
    fn leave_out(&mut self, index: &Index, tier: CacheTier, share: Share) {
        self.set_share(tier, share);
        self.drop_rows(index, |space| space.tier == tier);
    }

    fn set_share(&mut self, tier: CacheTier, share: Share) {
        if let Some(place) = self.shares.get_mut(tier as usize - 1) {
            *place = share;
        }
    }

    fn share(&self, tier: CacheTier) -> Share {
        self.shares.get(tier as usize - 1).copied().unwrap_or(Share::TooMany)
    }

    /// Leaves the index, before the view is dropped.
    pub fn leave(&mut self, index: &Index) {
        self.drop_rows(index, |_| true);
        self.families.leave(index);
        self.spaces.clear();
    }

    /// Whether something may have been missed, or is being asked for.
    #[must_use]
    pub const fn is_doubted(&self) -> bool {
        self.doubt.is_raised() || self.sequence.is_recovering()
    }

    /// What is held of a namespace in a tier.
    #[must_use]
    pub fn tally(&self, model: &str, compat_key: &str, tier: CacheTier) -> Tally {
        let name = SpaceName { pool: None, model, compat_key, tier };
        self.spaces.get(&name).map(|space| space.rows.tally()).unwrap_or_default()
    }

    /// The daemon's life, once it is known.
    #[must_use]
    pub const fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// What happened to the view.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// The life that the first event of a payload names.
fn epoch_of(payload: &[u8]) -> Option<u64> {
    let owner = match Batch::decode(payload).ok()?.events().next()? {
        Event::Stored(stored) => stored.owner,
        Event::Removed(removed) => removed.owner,
        Event::Cleared(cleared) => cleared.owner,
        Event::Stats(stats) => stats.owner,
        Event::Digest(digest) => digest.owner,
    };
    owner.epoch
}

impl InOrder for HostView {
    fn course(&mut self) -> (&mut Sequence, &mut Doubt, &mut Counts) {
        (&mut self.sequence, &mut self.doubt, &mut self.counts)
    }

    fn apply(&mut self, index: &Index, payload: &[u8], now: Moment) -> Option<Need> {
        self.apply_events(index, payload, now)
    }

    fn show_credit(&self, index: &Index) {
        for (tier, id) in self.families.holders() {
            let is_unverified = tier == CacheTier::L4 && self.are_pools_unverified;
            let is_worth_half = self.is_doubted() || is_unverified;
            index.set_credit(id, if is_worth_half { DOUBTED_CREDIT } else { 1.0 });
        }
    }
}
