//! The store itself: one value, one way in. What each input does is in `ops`, one file each;
//! what several of them need is in `lookup`, `holding`, `room` and `removal`.

use std::collections::BTreeSet;

use foldhash::quality::FixedState;
use kvd_proto::refusal::Refusal;

use crate::batch::Lookups;
use crate::config::StoreConfig;
use crate::disk::{Limits, Tier};
use crate::effects::{Effects, Outcome};
use crate::events::TierChanges;
use crate::evict::{Evict, Lru};
use crate::evidence::Evidence;
use crate::holding::Holdings;
use crate::index::Index;
use crate::input::Input;
use crate::ledger::Ledger;
use crate::namespaces::Namespaces;
use crate::ops::{Asked, Lookup};
use crate::promises::Promises;
use crate::rights::Rights;
use crate::room::Evictable;
use crate::rows::{RowId, Rows};
use crate::sessions::Sessions;
use crate::space::{Layout, Search, Space};
use crate::stats::Totals;
use crate::time::Timestamp;

/// All decisions about blocks in the arena. Not thread-safe by itself: it lives behind one lock.
#[derive(Debug)]
pub struct Store {
    pub(crate) config: StoreConfig,
    pub(crate) hasher: FixedState,
    pub(crate) rows: Rows,
    pub(crate) index: Index,
    /// One row of each family: rows of a model whose 8-byte keys begin alike.
    pub(crate) families: Index,
    pub(crate) namespaces: Namespaces,
    pub(crate) space: Space,
    /// More of the arena is about to be ready.
    pub(crate) arena_grows: bool,
    pub(crate) evict: Box<dyn Evict>,
    pub(crate) evictable: Evictable,
    pub(crate) rights: Rights,
    pub(crate) holdings: Holdings,
    pub(crate) sessions: Sessions,
    pub(crate) promises: Promises,
    /// Rows with a time to live, the next to end first.
    pub(crate) expiries: BTreeSet<(Timestamp, RowId)>,
    pub(crate) evidence: Evidence,
    pub(crate) totals: Totals,
    pub(crate) disk: Tier,
    pub(crate) ledger: Ledger,
    /// What the input that is being applied has changed; empty unless that is asked for.
    pub(crate) tiers: TierChanges,
    /// Payload bytes of all rows.
    pub(crate) host_bytes: u64,
    pub(crate) lineage_bytes: u64,
    /// Version of the latest reservation.
    pub(crate) version: u32,
    pub(crate) scratch: Scratch,
}

/// Memory that calls reuse. Means nothing between two calls.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) lookups: Lookups,
    pub(crate) victims: Vec<RowId>,
    pub(crate) search: Search,
}

impl Store {
    /// An empty store. No byte of the arena is usable before [`Input::ArenaReady`].
    #[must_use]
    pub fn new(config: StoreConfig) -> Self {
        let hasher = FixedState::with_seed(config.hash_seed);
        let ledger = Ledger::new(config.ledger);
        Self {
            config,
            hasher,
            rows: Rows::new(),
            index: Index::new(),
            families: Index::new(),
            namespaces: Namespaces::new(FixedState::with_seed(config.hash_seed)),
            space: Space::new(Layout::ARENA),
            arena_grows: true,
            evict: Box::new(Lru::new()),
            evictable: Evictable::default(),
            rights: Rights::new(ledger.rights()),
            holdings: Holdings::default(),
            sessions: Sessions::new(),
            promises: Promises::default(),
            expiries: BTreeSet::new(),
            evidence: Evidence::new(config.evidence_slots),
            totals: Totals::default(),
            disk: Tier::new(&config.disk),
            ledger,
            tiers: TierChanges::default(),
            host_bytes: 0,
            lineage_bytes: 0,
            version: 0,
            scratch: Scratch::default(),
        }
    }

    /// Takes one step. Empties `effects` first and fills it with the answer.
    ///
    /// # Panics
    /// If an input breaks a rule that its documentation states.
    pub fn apply(&mut self, input: Input<'_>, now: Timestamp, effects: &mut Effects) {
        let out = effects;
        out.clear();
        match input {
            Input::ArenaReady { bytes } => self.arena_ready(bytes),
            Input::ArenaGivenUp => self.arena_given_up(),
            Input::Open { session, peer, process } => self.open(session, peer, process),
            Input::Close { session } => self.close(session, now),
            Input::PeerGone { session } => self.peer_gone(session),
            Input::ReleaseQuarantine { session } => out.outcome = self.release_quarantine(session),
            Input::NextRequest { session } => self.next_request(session, now),
            Input::Fetch { session, namespace, keys, prefix, hold } => {
                let lookup = Lookup { namespace, keys, prefix };
                self.fetch(session, lookup, hold, now, out);
            }
            Input::Touch { session, leases } => self.touch_leases(session, leases),
            Input::Locate { session, namespace, keys, prefix, family, unloaded_bytes } => {
                out.unloaded_bytes = unloaded_bytes;
                let lookup = Lookup { namespace, keys, prefix };
                self.locate(session, lookup, family, now, out);
            }
            Input::Release { session, leases } => out.outcome = self.release(session, leases),
            Input::TakeUp { session, rights } => out.outcome = self.take_up(session, rights),
            Input::Renounce { session, earlier } => out.outcome = self.renounce(session, earlier),
            Input::ForgetProcess { session } => self.forget_process(session),
            Input::CheckSet { namespace, key, len_bytes, retention } => {
                let checked = self.check_set(namespace, key, len_bytes, retention, now);
                out.outcome = Outcome::Checked(checked);
            }
            Input::Reserve { session, len_bytes, class, writer } => {
                let asked = Asked { len_bytes, class, writer };
                out.outcome = self.reserve(session, asked, now, &mut out.headers);
            }
            Input::Commit(commit) => self.commit(&commit, now, out),
            Input::Cancel { session, ticket, linger } => {
                out.outcome = self.cancel(session, ticket, linger, now);
            }
            Input::Clear { scope, cursor } => self.clear(scope, cursor, out),
            Input::CountSet => self.totals.sets_total += 1,
            Input::CountRefusedSet { refusal } => self.totals.count_refused_set(refusal),
            Input::StopWaiting { session, given_up } => self.stop_waiting(session, given_up),
            Input::Prefetch { session, namespace, keys, deadline_ms } => {
                self.prefetch(session, namespace, keys, deadline_ms, now);
            }
            Input::TablespaceReady { device, tablespace } => {
                self.tablespace_ready(device, tablespace);
            }
            Input::DeviceFailed { device, fault } => self.fail_device(device.0, fault),
            Input::DeviceSpace { device, bytes, expected_bytes } => {
                self.device_space(device, bytes, expected_bytes);
            }
            Input::DeviceReads { device, bytes_per_s } => self.device_reads(device, bytes_per_s),
            Input::TakeWork { device, loads_max, writes_max, write_bytes_max } => {
                let (loads, writes, write_bytes) = (loads_max, writes_max, write_bytes_max);
                self.take_work(device, Limits { loads, writes, write_bytes }, now, out);
            }
            Input::WorkDone { device, done } => self.work_done(device, done, now),
            Input::Verdict { wait, give_up } => {
                out.outcome = Outcome::Verdict(self.disk.waits.verdict(wait, give_up));
            }
            Input::Drain { on } => self.set_drain(on),
            Input::DropCorrupt { namespace, key, version } => {
                self.drop_corrupt(namespace, key, version);
            }
            Input::Tick => out.outcome = Outcome::Ticked { more: self.tick(now) },
        }
        self.hand_out(out);
    }

    /// What the input brought about beside its answer.
    fn hand_out(&mut self, out: &mut Effects) {
        out.forgotten.append(&mut self.sessions.forgotten);
        self.disk.tell(out);
        // Both keep their memory.
        core::mem::swap(&mut out.ledger, &mut self.ledger.writes);
        core::mem::swap(&mut out.tiers, &mut self.tiers);
    }

    fn arena_ready(&mut self, bytes: u64) {
        let most = self.config.arena_bytes;
        assert!(bytes <= most, "{bytes} bytes are ready of an arena of {most}");
        // What a store took over may be touched already.
        if bytes > self.space.end() {
            self.space.grow_to(bytes);
            self.ledger.mark_ready(self.space.end());
        }
        self.arena_grows &= bytes < most;
        self.feed_the_starved();
    }

    fn arena_given_up(&mut self) {
        self.arena_grows = false;
        self.feed_the_starved();
    }

    /// Counts a refusal on its way out.
    pub(crate) fn counted<T>(&mut self, answer: Result<T, Refusal>) -> Result<T, Refusal> {
        answer.inspect_err(|&refusal| self.totals.count_refusal(refusal))
    }
}
