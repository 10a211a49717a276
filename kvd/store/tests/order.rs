//! With values of equal size, eviction is exactly least recently used within a class, lowest
//! class first: against a list.

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::{LeaseId, SessionId};
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::{
    Commit, CommitRules, Effects, Found, Held, Hold, Ids, Input, Keys, Outcome, Peer, Store,
    StoreConfig, Timestamp, Writer,
};
use proptest::prelude::*;

const SESSION: SessionId = SessionId(1);
const NAMESPACE: Namespace<'static> = Namespace { model: "m", compat_key: "" };
const ROWS: u64 = 16;

#[derive(Clone, Debug)]
enum Step {
    Set { key: u8, class: usize },
    Get { keys: Vec<u8> },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..40_u8, 0..4_usize).prop_map(|(key, class)| Step::Set { key, class }),
        1 => proptest::collection::vec(0..40_u8, 1..6).prop_map(|keys| Step::Get { keys }),
    ]
}

/// Rows in the order of their last use, oldest first.
#[derive(Default)]
struct List(Vec<(u8, Retention)>);

impl List {
    fn remove(&mut self, key: u8) -> Option<Retention> {
        let at = self.0.iter().position(|row| row.0 == key)?;
        Some(self.0.remove(at).1)
    }

    /// Evicts one row of the lowest class up to `class`.
    fn evict(&mut self, class: Retention) -> Result<(), Refusal> {
        let lowest = self.0.iter().map(|row| row.1).min().filter(|&lowest| lowest <= class);
        let victim = self.0.iter().position(|row| Some(row.1) == lowest);
        self.0.remove(victim.ok_or(Refusal::HigherPriority)?);
        Ok(())
    }
}

struct Pair {
    store: Store,
    effects: Effects,
    list: List,
    /// Which bound forces rows out: the arena or the budget.
    by_arena: bool,
    /// Broken twin: the list does not see that a row was used.
    forgets_uses: bool,
}

impl Pair {
    fn new(len: u64, by_arena: bool) -> Self {
        let (header, unit) = if len >= 65_536 { (4_096, 4_096) } else { (64, 64) };
        let extent = header + len.next_multiple_of(unit);
        let (arena, budget) = if by_arena {
            (ROWS * extent, u64::MAX)
        } else {
            // One more for the ticket, one for the old place of what is overwritten.
            ((ROWS + 2) * extent, ROWS * len)
        };
        let mut config = StoreConfig::new(arena, budget);
        config.session_limits.in_flight_bytes_max = arena;
        let mut pair = Self {
            store: Store::new(config),
            effects: Effects::default(),
            list: List::default(),
            by_arena,
            forgets_uses: false,
        };
        pair.apply(Input::ArenaReady { bytes: arena });
        pair.apply(Input::Open { session: SESSION, peer: Peer::Watched, process: None });
        pair
    }

    fn apply(&mut self, input: Input<'_>) {
        self.store.apply(input, Timestamp(0), &mut self.effects);
    }

    fn set(&mut self, key: u8, class: Retention, len_bytes: u64) {
        let expected = self.set_in_list(key, class);
        let writer = Writer::Daemon;
        self.apply(Input::Reserve { session: SESSION, len_bytes, class: Some(class), writer });
        let Outcome::Reserved(reserved) = self.effects.outcome else {
            panic!("{:?}", self.effects.outcome);
        };
        let granted = match reserved {
            Ok(granted) => granted,
            Err(refusal) => return assert_eq!(Err(refusal), expected),
        };
        self.apply(Input::Commit(Commit {
            session: SESSION,
            ticket: granted.ticket,
            namespace: NAMESPACE,
            key: &[key],
            len_bytes,
            retention: class,
            ttl_ms: None,
            lineage: None,
            checksum: None,
            rules: CommitRules::Lease,
        }));
        assert_eq!(self.effects.outcome, Outcome::Committed(expected));
    }

    fn set_in_list(&mut self, key: u8, class: Retention) -> Result<(), Refusal> {
        let full = |list: &List| list.0.len() as u64 == ROWS;
        if self.by_arena {
            // Room is made before the key is known: an overwrite, too, forces a row out.
            if full(&self.list) {
                self.list.evict(class)?;
            }
            self.list.remove(key);
        } else if self.list.remove(key).is_none() && full(&self.list) {
            self.list.evict(class)?;
        }
        self.list.0.push((key, class));
        Ok(())
    }

    fn get(&mut self, keys: &[u8]) {
        let slices: Vec<&[u8]> = keys.iter().map(core::slice::from_ref).collect();
        self.apply(Input::Fetch {
            session: SESSION,
            namespace: NAMESPACE,
            keys: Keys::slices(&slices),
            prefix: false,
            hold: Hold::Lease,
        });
        let mut leases: Vec<LeaseId> = Vec::new();
        for (found, &key) in self.effects.found.iter().zip(keys) {
            let stored = self.list.0.iter().any(|row| row.0 == key);
            assert_eq!(matches!(found, Found::Hit(_)), stored, "key {key}");
            if let Found::Hit(hit) = found
                && let Held::Lease(lease) = hit.held
            {
                leases.push(lease);
            }
        }
        self.apply(Input::Release { session: SESSION, leases: Ids::Slice(&leases) });
        if self.forgets_uses {
            return;
        }
        for &key in keys.iter().rev() {
            if let Some(class) = self.list.remove(key) {
                self.list.0.push((key, class));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_least_recently_used_of_the_lowest_class_goes(
        steps in proptest::collection::vec(step(), 1..200),
        len in prop_oneof![1..3_000_u64, Just(65_536_u64), Just(300_000_u64)],
        by_arena in any::<bool>(),
    ) {
        let mut pair = Pair::new(len, by_arena);
        for step in steps {
            match step {
                Step::Set { key, class } => pair.set(key, Retention::ALL[class], len),
                Step::Get { keys } => pair.get(&keys),
            }
            pair.store.assert_consistent();
        }
        pair.get(&(0..40).collect::<Vec<u8>>());
    }
}

#[test]
#[should_panic(expected = "key 0")]
fn negative_control_a_list_that_forgets_uses_is_caught() {
    let mut pair = Pair::new(100, true);
    pair.forgets_uses = true;
    for key in 0..16 {
        pair.set(key, Retention::Short, 100);
    }
    pair.get(&[0]);
    pair.set(16, Retention::Short, 100);
    pair.get(&[0]);
}
