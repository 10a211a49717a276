//! Bar: values from 4 KiB to 128 MiB of three models in one arena, for a long time: how much of it is wasted when rows
//! are forced out, and whether anything is refused that could be had.
//!
//! The store decides alone, without an arena's bytes behind it, so that 4 GiB cost nothing and the run repeats exactly.

use kvd_client::{Namespace, Retention};
use kvd_proto::ids::{LeaseId, SessionId};
use kvd_store::{
    Commit, CommitRules, Effects, Found, Held, Hold, Ids, Input, Keys, Outcome, Peer, Store,
    StoreConfig, Timestamp, Writer,
};

use super::Effort;
use crate::bar::Bar;
use crate::content::Content;
use crate::keys;
use crate::report::Report;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const ARENA_BYTES: u64 = 4 << 30;
const SESSION: SessionId = SessionId(1);

/// What each of the models stores.
const MODELS: [(Namespace<'static>, &[u64]); 3] = [
    // A hybrid model: pages, and small states beside them.
    (Namespace { model: "hybrid", compat_key: "r0" }, &[64 * KIB, 4 * KIB]),
    // Pages of three attention layouts.
    (Namespace { model: "paged", compat_key: "r0" }, &[624 * KIB, 2_873_098, 4 * MIB]),
    // Whole chunks.
    (Namespace { model: "chunked", compat_key: "r0" }, &[128 * MIB]),
];

/// Share of the arena's bytes that is wasted, at worst.
const WASTE_BOUND: f64 = 0.10;
/// One put in so many is a chunk: enough that chunks hold about half of all bytes.
const CHUNK_EVERY: u64 = 40;

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let puts = effort.of(300_000, 40_000);
    let mut full = Churn::new(ARENA_BYTES, 1);
    full.run(puts, 0);
    let mut nearly = Churn::new(ARENA_BYTES * 95 / 100, 2);
    nearly.run(puts, 0);
    let mut pinned = Churn::new(ARENA_BYTES * 90 / 100, 3);
    pinned.run(puts, ARENA_BYTES * 5 / 100);
    for (what, churn) in
        [("mixed sizes", &full), ("  95 % fill", &nearly), ("  90 % fill, 5 % pinned", &pinned)]
    {
        report.note(format!("{what}, {puts} puts"), churn.text());
    }
    report.bar(Bar::at_most("l2.mixed.waste", full.worst_waste, WASTE_BOUND));
    report.bar(Bar::at_most("l2.mixed.refused", full.refused, 0.0));
    report.bar(Bar::at_most("l2.mixed.fill95.waste", nearly.worst_waste, WASTE_BOUND));
    report.bar(Bar::at_most("l2.mixed.fill95.refused", nearly.refused, 0.0));
    report.bar(Bar::at_most("l2.mixed.fill90_pinned5.refused", pinned.refused, 0.0));
    Ok(())
}

/// A store under churn, and what was seen.
struct Churn {
    store: Store,
    effects: Effects,
    random: Content,
    drawn: usize,
    puts: u64,
    pins: Vec<LeaseId>,
    refused: f64,
    worst_waste: f64,
    sum_waste: f64,
    forced: f64,
}

impl Churn {
    fn new(budget_bytes: u64, seed: u8) -> Self {
        let mut churn = Self {
            store: Store::new(StoreConfig::new(ARENA_BYTES, budget_bytes)),
            effects: Effects::default(),
            random: Content::of(&[seed]),
            drawn: 0,
            puts: 0,
            pins: Vec::new(),
            refused: 0.0,
            worst_waste: 0.0,
            sum_waste: 0.0,
            forced: 0.0,
        };
        churn.apply(Input::ArenaReady { bytes: ARENA_BYTES });
        churn.apply(Input::Open { session: SESSION, peer: Peer::Watched, process: None });
        churn
    }

    /// Stores blocks, looks some of the latest up again, and keeps up to so many bytes pinned.
    fn run(&mut self, puts: usize, pinned_bytes: u64) {
        for _ in 0..puts {
            self.put();
            if self.below(2) == 0 || pinned_bytes > 0 {
                self.get(pinned_bytes > 0);
            }
            while self.store.stats().leased_bytes > pinned_bytes {
                let any = self.below(self.pins.len() as u64);
                self.unpin(usize::try_from(any).unwrap_or(0));
            }
        }
    }

    fn put(&mut self) {
        let (namespace, len_bytes) = self.draw();
        let before = self.store.stats();
        let (class, writer) = (Some(Retention::Short), Writer::Client);
        self.apply(Input::Reserve { session: SESSION, len_bytes, class, writer });
        if self.store.stats().totals.evictions_total > before.totals.evictions_total {
            let waste = 1.0 - before.space.payload_bytes as f64 / ARENA_BYTES as f64;
            self.worst_waste = self.worst_waste.max(waste);
            self.sum_waste += waste;
            self.forced += 1.0;
        }
        let Outcome::Reserved(Ok(granted)) = self.effects.outcome else {
            self.refused += 1.0;
            return;
        };
        let key = keys::key(self.puts);
        self.puts += 1;
        self.apply(Input::Commit(Commit {
            session: SESSION,
            ticket: granted.ticket,
            namespace,
            key: &key,
            len_bytes,
            retention: Retention::Short,
            ttl_ms: None,
            lineage: None,
            checksum: None,
            rules: CommitRules::Lease,
        }));
        if self.effects.outcome != Outcome::Committed(Ok(())) {
            self.refused += 1.0;
        }
    }

    /// Whose block comes next, and how long it is.
    fn draw(&mut self) -> (Namespace<'static>, u64) {
        let model = if self.below(CHUNK_EVERY) == 0 { 2 } else { self.below(2) };
        let (namespace, sizes) = MODELS[usize::try_from(model).unwrap_or(0)];
        let size = self.below(sizes.len() as u64);
        (namespace, sizes[usize::try_from(size).unwrap_or(0)])
    }

    /// Touches one of the latest rows and pins it.
    fn get(&mut self, keep: bool) {
        let number = self.puts.saturating_sub(1 + self.below(100));
        for (namespace, _) in MODELS {
            let (key, hold) = (keys::key(number), Hold::Lease);
            let keys = Keys::one(&key);
            self.apply(Input::Fetch { session: SESSION, namespace, keys, prefix: false, hold });
            if let Some(Found::Hit(hit)) = self.effects.found.first()
                && let Held::Lease(lease) = hit.held
            {
                self.pins.push(lease);
                if !keep {
                    self.unpin(self.pins.len() - 1);
                }
                return;
            }
        }
    }

    fn unpin(&mut self, at: usize) {
        let leases = [self.pins.swap_remove(at)];
        self.apply(Input::Release { session: SESSION, leases: Ids::Slice(&leases) });
    }

    fn apply(&mut self, input: Input<'_>) {
        self.store.apply(input, Timestamp(self.puts), &mut self.effects);
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.drawn += 1;
        self.random.word(self.drawn) % limit
    }

    fn text(&self) -> String {
        let mean = self.sum_waste / self.forced.max(1.0);
        format!(
            "waste mean {:.1} %, worst {:.1} %; {} refused; {} full scans",
            100.0 * mean,
            100.0 * self.worst_waste,
            self.refused,
            self.store.stats().totals.full_scans_total
        )
    }
}
