//! Random inputs. They name keys, sessions and rights by small numbers that the run resolves, so
//! that shrinking keeps them meaningful.

use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Ready,
    Open { unknowable: bool },
    Close { session: usize },
    Gone { session: usize },
    ReleaseQuarantine { session: Option<usize> },
    TakeUp { session: usize, right: usize },
    Renounce { session: usize, earlier: usize },
    NextRequest { session: usize },
    Fetch { session: usize, namespace: usize, keys: Vec<usize>, prefix: bool, hold: usize },
    Locate { session: usize, namespace: usize, keys: Vec<usize>, prefix: bool, family: bool },
    Release { session: usize, right: usize },
    Reserve { session: usize, len: u64, class: Option<usize>, daemon: bool },
    Commit(Commit),
    Set(Commit),
    Cancel { session: usize, right: usize, linger: bool },
    Clear { scope: usize, namespace: usize },
    Wait { milliseconds: u64, tick: bool },
}

#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) session: usize,
    pub(crate) right: usize,
    pub(crate) namespace: usize,
    pub(crate) key: usize,
    pub(crate) len: u64,
    pub(crate) class: usize,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) set: bool,
    pub(crate) lineage: bool,
}

fn len() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0_u64),
        6 => 1..6_000_u64,
        4 => 20_000..65_536_u64,
        3 => 65_536..200_000_u64,
        1 => 200_000..400_000_u64,
    ]
}

fn commit() -> impl Strategy<Value = Commit> {
    let ttl = prop_oneof![4 => Just(None), 1 => (0..400_u64).prop_map(Some)];
    let first = (any::<usize>(), any::<usize>(), 0..4_usize, 0..12_usize, len());
    (first, 0..4_usize, ttl, any::<bool>(), any::<bool>()).prop_map(
        |((session, right, namespace, key, len), class, ttl_ms, set, lineage)| Commit {
            session,
            right,
            namespace,
            key,
            len,
            class,
            ttl_ms,
            set,
            lineage,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let keys = || proptest::collection::vec(0..12_usize, 0..5);
    let at = any::<usize>;
    let class = prop_oneof![2 => Just(None), 3 => (0..4_usize).prop_map(Some)];
    prop_oneof![
        1 => Just(Step::Ready),
        2 => any::<bool>().prop_map(|unknowable| Step::Open { unknowable }),
        1 => at().prop_map(|session| Step::Close { session }),
        1 => at().prop_map(|session| Step::Gone { session }),
        1 => proptest::option::of(at())
            .prop_map(|session| Step::ReleaseQuarantine { session }),
        3 => (at(), at()).prop_map(|(session, right)| Step::TakeUp { session, right }),
        1 => (at(), at()).prop_map(|(session, earlier)| Step::Renounce { session, earlier }),
        4 => at().prop_map(|session| Step::NextRequest { session }),
        12 => (at(), 0..4_usize, keys(), any::<bool>(), 0..3_usize).prop_map(
            |(session, namespace, keys, prefix, hold)| {
                Step::Fetch { session, namespace, keys, prefix, hold }
            }
        ),
        4 => (at(), 0..4_usize, keys(), any::<bool>(), any::<bool>()).prop_map(
            |(session, namespace, keys, prefix, family)| {
                Step::Locate { session, namespace, keys, prefix, family }
            }
        ),
        5 => (at(), at()).prop_map(|(session, right)| Step::Release { session, right }),
        5 => (at(), len(), class, any::<bool>()).prop_map(|(session, len, class, daemon)| {
            Step::Reserve { session, len, class, daemon }
        }),
        6 => commit().prop_map(Step::Commit),
        24 => commit().prop_map(Step::Set),
        2 => (at(), at(), any::<bool>())
            .prop_map(|(session, right, linger)| Step::Cancel { session, right, linger }),
        1 => (0..3_usize, 0..4_usize)
            .prop_map(|(scope, namespace)| Step::Clear { scope, namespace }),
        6 => (0..500_u64, any::<bool>())
            .prop_map(|(milliseconds, tick)| Step::Wait { milliseconds, tick }),
    ]
}

pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 1..most)
}
