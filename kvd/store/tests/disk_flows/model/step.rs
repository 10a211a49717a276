//! What may happen to a daemon with devices.

use proptest::prelude::*;

use crate::platter::Trouble;

pub(super) const KEYS: u8 = 6;
pub(super) const LENS: [u64; 5] = [0, 100, 5_000, 9_000, 20_000];

#[derive(Clone, Debug)]
pub(super) enum Step {
    Put {
        name: Name,
        class: usize,
        len: usize,
        ttl_ms: Option<u64>,
        lease: bool,
        sum: bool,
    },
    Fetch {
        session: usize,
        name: Name,
        keep: bool,
    },
    Release {
        pick: usize,
    },
    StopWaiting {
        session: usize,
    },
    Locate {
        name: Name,
        family: bool,
    },
    Prefetch {
        names: Vec<u8>,
        deadline_ms: u64,
    },
    Clear {
        scope: u8,
    },
    Take {
        device: u8,
        loads: u32,
        writes: u32,
    },
    Finish {
        pick: usize,
        trouble: Trouble,
    },
    Settle,
    Wait {
        ms: u64,
    },
    Drain {
        on: bool,
    },
    Fail {
        device: u8,
    },
    BringBack {
        device: u8,
    },
    /// Which of the pieces under way and of the unsynced writes are there afterwards.
    Restart {
        survivors: Vec<bool>,
    },
}

/// Namespace and key, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) namespace: u8,
    pub(super) key: u8,
}

fn name() -> impl Strategy<Value = Name> {
    (0..2_u8, 0..KEYS).prop_map(|(namespace, key)| Name { namespace, key })
}

fn put() -> impl Strategy<Value = Step> {
    let ttl = prop_oneof![6 => Just(None), 1 => Just(Some(0)), 2 => (1..200_u64).prop_map(Some)];
    let class = prop_oneof![1 => 0..2_usize, 3 => Just(2), 5 => Just(3)];
    (name(), class, 0..LENS.len(), ttl, any::<bool>(), any::<bool>()).prop_map(
        |(name, class, len, ttl_ms, lease, sum)| Step::Put { name, class, len, ttl_ms, lease, sum },
    )
}

fn finish() -> impl Strategy<Value = Step> {
    let trouble = prop_oneof![
        20 => Just(Trouble::None),
        1 => Just(Trouble::Io),
        1 => Just(Trouble::NoSpace),
        1 => Just(Trouble::TimedOut),
    ];
    (any::<usize>(), trouble).prop_map(|(pick, trouble)| Step::Finish { pick, trouble })
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let device = || 0..2_u8;
    prop_oneof![
        12 => put(),
        14 => (0..2_usize, name(), any::<bool>())
            .prop_map(|(session, name, keep)| Step::Fetch { session, name, keep }),
        3 => any::<usize>().prop_map(|pick| Step::Release { pick }),
        1 => (0..2_usize).prop_map(|session| Step::StopWaiting { session }),
        5 => (name(), any::<bool>()).prop_map(|(name, family)| Step::Locate { name, family }),
        3 => (proptest::collection::vec(0..KEYS, 1..4), 1..100_u64)
            .prop_map(|(names, deadline_ms)| Step::Prefetch { names, deadline_ms }),
        1 => (0..4_u8).prop_map(|scope| Step::Clear { scope }),
        10 => (device(), 0..3_u32, 0..3_u32)
            .prop_map(|(device, loads, writes)| Step::Take { device, loads, writes }),
        16 => finish(),
        3 => Just(Step::Settle),
        4 => (1..60_u64).prop_map(|ms| Step::Wait { ms }),
        1 => (1_000..40_000_u64).prop_map(|ms| Step::Wait { ms }),
        1 => any::<bool>().prop_map(|on| Step::Drain { on }),
        1 => (0..8_u8).prop_map(|device| Step::Fail { device }),
        4 => device().prop_map(|device| Step::BringBack { device }),
        1 => proptest::collection::vec(any::<bool>(), 1..24)
            .prop_map(|survivors| Step::Restart { survivors }),
        // The daemon is killed: what was written stays.
        1 => Just(Step::Restart { survivors: vec![true] }),
    ]
}
