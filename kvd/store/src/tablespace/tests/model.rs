//! Random lives with crashes in them, against the naive account.

use kvd_proto::retention::Retention;
use proptest::prelude::*;

use super::files::settings;
use super::life::{Life, SCOPES, key_of};
use crate::tablespace::journal::Reason;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Insert { name: (usize, u8), len_bytes: u32, long: bool, ttl: Option<u64> },
    Remove { pick: usize, reason: usize },
    Clear { scope: usize },
    Pin { pick: usize },
    Unpin { pick: usize },
    Touch { pick: usize },
    Promise { pick: usize, window: u64 },
    Tick { by: u64 },
    Write { sync: bool, success: bool },
    Snapshot { success: bool },
    AskSnapshot,
    Crash { piece: usize },
    PowerCut { during: During, lost: u64, torn: bool },
}

/// What was written, and not yet synced, when the power went.
#[derive(Clone, Copy, Debug)]
pub(super) enum During {
    Nothing,
    Journal,
    Snapshot,
}

const REASONS: [Reason; 6] = [
    Reason::Evicted,
    Reason::Superseded,
    Reason::Expired,
    Reason::Cleared,
    Reason::Corrupt,
    Reason::Faulty,
];

fn step() -> impl Strategy<Value = Step> {
    let len_bytes = prop_oneof![1 => Just(0_u32), 9 => 1..60_000_u32];
    let ttl = proptest::option::weighted(0.1, 1..5_000_u64);
    prop_oneof![
        20 => ((0..3_usize, 0..50_u8), len_bytes, any::<bool>(), ttl)
            .prop_map(|(name, len_bytes, long, ttl)| Step::Insert { name, len_bytes, long, ttl }),
        4 => (any::<usize>(), 0..6_usize)
            .prop_map(|(pick, reason)| Step::Remove { pick, reason }),
        1 => (0..4_usize).prop_map(|scope| Step::Clear { scope }),
        1 => any::<usize>().prop_map(|pick| Step::Pin { pick }),
        2 => any::<usize>().prop_map(|pick| Step::Unpin { pick }),
        3 => any::<usize>().prop_map(|pick| Step::Touch { pick }),
        2 => (any::<usize>(), 0..3_000_u64)
            .prop_map(|(pick, window)| Step::Promise { pick, window }),
        2 => (0..1_500_u64).prop_map(|by| Step::Tick { by }),
        12 => (any::<bool>(), proptest::bool::weighted(0.95))
            .prop_map(|(sync, success)| Step::Write { sync, success }),
        6 => proptest::bool::weighted(0.95).prop_map(|success| Step::Snapshot { success }),
        1 => Just(Step::AskSnapshot),
    ]
}

fn step_or_crash() -> impl Strategy<Value = Step> {
    let during = prop_oneof![Just(During::Nothing), Just(During::Journal), Just(During::Snapshot)];
    prop_oneof![
        40 => step(),
        1 => (1..40_000_usize).prop_map(|piece| Step::Crash { piece }),
        1 => (during, any::<u64>(), any::<bool>())
            .prop_map(|(during, lost, torn)| Step::PowerCut { during, lost, torn }),
    ]
}

pub(super) fn take(life: &mut Life, step: &Step) {
    match *step {
        Step::Insert { name: (namespace, key), len_bytes, long, ttl } => {
            let class = if long { Retention::Long } else { Retention::Short };
            life.insert((namespace, key_of(key)), len_bytes, class, ttl);
        }
        Step::Remove { pick, reason } => life.remove_some(pick, REASONS[reason]),
        Step::Clear { scope } => life.clear(SCOPES[scope]),
        Step::Pin { pick } => life.pin(pick),
        Step::Unpin { pick } => life.unpin(pick),
        Step::Touch { pick } => life.touch(pick),
        Step::Promise { pick, window } => life.promise(pick, window),
        Step::Tick { by } => life.tick(by),
        Step::Write { sync, success } => {
            life.write(sync, success);
        }
        Step::Snapshot { success } => life.snapshot(success),
        Step::AskSnapshot => life.tablespace.ask_snapshot(),
        Step::Crash { piece } => {
            let (back, report) = life.files.recover(settings(life.now), piece);
            // A journal shows the traces of a power cut as long as it is needed.
            assert!(!report.is_damaged() || life.was_cut, "{report:?}");
            assert_eq!(report.vitals_lost, 0, "{report:?}");
            life.judge(&back, life.tablespace.written_sequence(), true);
            life.files.sync();
            life.go_on(back, &report);
        }
        Step::PowerCut { during, lost, torn } => {
            match during {
                During::Nothing => {}
                During::Journal => life.write_without_end(),
                During::Snapshot => life.snapshot_without_end(),
            }
            life.files.cut_power(lost, torn);
            life.was_cut = true;
            let (back, report) = life.files.recover(settings(life.now), 10_000);
            assert_eq!(report.vitals_lost, 0, "vital records are repeated: {report:?}");
            life.judge(&back, life.tablespace.durable_sequence(), true);
            life.go_on(back, &report);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_comes_back_after_any_crash(
        steps in proptest::collection::vec(step_or_crash(), 1..400),
    ) {
        let mut life = Life::new();
        for step in &steps {
            take(&mut life, step);
            life.check();
        }
    }

    #[test]
    fn a_crash_after_each_write_loses_nothing_that_was_written(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut life = Life::new();
        for step in &steps {
            take(&mut life, step);
            if matches!(step, Step::Write { .. } | Step::Snapshot { .. }) {
                let (back, report) = life.files.recover(settings(life.now), 8_192);
                prop_assert!(!report.is_damaged(), "{:?}", report);
                life.judge(&back, life.tablespace.written_sequence(), true);
            }
        }
    }
}
