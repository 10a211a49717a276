//! The daemon's own counters: connections, requests, bytes on the socket. What the store decides is
//! counted by the store. Label values are enums, so counting is one atomic add; `admin/metrics`
//! reads them at scrape time.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A closed set of label values.
pub trait Label: Copy + std::fmt::Debug + 'static {
    /// Every value; `index` is the position in here.
    const ALL: &'static [Self];
    /// Position in [`Label::ALL`].
    fn index(self) -> usize;
    /// The value as it appears in metrics.
    fn as_str(self) -> &'static str;
}

/// One counter per value of a label.
#[derive(Debug)]
pub struct Counters<L: Label> {
    counts: Box<[AtomicU64]>,
    label: PhantomData<L>,
}

impl<L: Label> Default for Counters<L> {
    fn default() -> Self {
        Self { counts: L::ALL.iter().map(|_| AtomicU64::new(0)).collect(), label: PhantomData }
    }
}

impl<L: Label> Counters<L> {
    /// Counts one.
    pub fn count(&self, label: L) {
        self.counts[label.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// The count of one label value.
    #[must_use]
    pub fn get(&self, label: L) -> u64 {
        self.counts[label.index()].load(Ordering::Relaxed)
    }
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// The peer closed its side.
    PeerClosed,
    /// The peer sent something after which the stream can't be trusted.
    Malformed,
    /// The peer read nothing of its reply for too long.
    WriteStall,
    /// The peer stopped in the middle of a large body.
    ReadStall,
    /// There was no room for a large body outside the arena.
    NoStaging,
    /// Reading or writing the socket failed.
    Failed,
    /// A successor serves the connection.
    HandedOver,
    /// It could not be handed over.
    LeftBehind,
}

impl Label for SessionEnd {
    const ALL: &'static [Self] = &[
        Self::PeerClosed,
        Self::Malformed,
        Self::WriteStall,
        Self::ReadStall,
        Self::NoStaging,
        Self::Failed,
        Self::HandedOver,
        Self::LeftBehind,
    ];

    fn index(self) -> usize {
        self as usize
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::PeerClosed => "peer_closed",
            Self::Malformed => "malformed",
            Self::WriteStall => "write_stall",
            Self::ReadStall => "read_stall",
            Self::NoStaging => "no_staging",
            Self::Failed => "failed",
            Self::HandedOver => "handed_over",
            Self::LeftBehind => "left_behind",
        }
    }
}

/// What became of an attempt to hand over, or to take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoverEnd {
    /// This life began with it.
    TakenOver,
    /// One of the two did not want to.
    Refused,
    /// The successor died or took too long; this daemon went on.
    Abandoned,
}

impl Label for HandoverEnd {
    const ALL: &'static [Self] = &[Self::TakenOver, Self::Refused, Self::Abandoned];

    fn index(self) -> usize {
        self as usize
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::TakenOver => "taken_over",
            Self::Refused => "refused",
            Self::Abandoned => "abandoned",
        }
    }
}

/// Operations of both protocols, as clients name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Hello,
    Get,
    BatchGet,
    Set,
    BatchSet,
    SetReserve,
    SetCommit,
    SetCancel,
    PrefetchHint,
    Exists,
    Clear,
    Stats,
    Locate,
    Fetch,
    Prefetch,
    Release,
    Reserve,
    Commit,
    Cancel,
    Resume,
}

impl Label for Op {
    const ALL: &'static [Self] = &[
        Self::Hello,
        Self::Get,
        Self::BatchGet,
        Self::Set,
        Self::BatchSet,
        Self::SetReserve,
        Self::SetCommit,
        Self::SetCancel,
        Self::PrefetchHint,
        Self::Exists,
        Self::Clear,
        Self::Stats,
        Self::Locate,
        Self::Fetch,
        Self::Prefetch,
        Self::Release,
        Self::Reserve,
        Self::Commit,
        Self::Cancel,
        Self::Resume,
    ];

    fn index(self) -> usize {
        self as usize
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Get => "get",
            Self::BatchGet => "batch_get",
            Self::Set => "set",
            Self::BatchSet => "batch_set",
            Self::SetReserve => "set_reserve",
            Self::SetCommit => "set_commit",
            Self::SetCancel => "set_cancel",
            Self::PrefetchHint => "prefetch_hint",
            Self::Exists => "exists",
            Self::Clear => "clear",
            Self::Stats => "stats",
            Self::Locate => "locate",
            Self::Fetch => "fetch",
            Self::Prefetch => "prefetch",
            Self::Release => "release",
            Self::Reserve => "reserve",
            Self::Commit => "commit",
            Self::Cancel => "cancel",
            Self::Resume => "resume",
        }
    }
}

/// How long requests of one op took, from its last byte received to its reply handed to the socket.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Requests at or below each bound and above the one before; the last: above all bounds.
    buckets: [AtomicU64; Self::BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    /// Upper bounds in microseconds.
    pub const BOUNDS_US: [u64; 10] =
        [10, 30, 100, 300, 1_000, 3_000, 10_000, 100_000, 1_000_000, 10_000_000];

    /// Adds one request.
    pub fn observe(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = Self::BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Requests at or below each bound (cumulative, the last is the count of all), and the sum of
    /// all in microseconds.
    #[must_use]
    pub fn read(&self) -> ([u64; Self::BOUNDS_US.len() + 1], u64) {
        let mut below = 0;
        let cumulative = std::array::from_fn(|bucket| {
            below += self.buckets[bucket].load(Ordering::Relaxed);
            below
        });
        (cumulative, self.sum_us.load(Ordering::Relaxed))
    }
}

/// One histogram per op.
#[derive(Debug)]
pub struct Requests(Box<[Histogram]>);

impl Default for Requests {
    fn default() -> Self {
        Self(Op::ALL.iter().map(|_| Histogram::default()).collect())
    }
}

impl Requests {
    /// The histogram of `op`.
    #[must_use]
    pub fn of(&self, op: Op) -> &Histogram {
        &self.0[op.index()]
    }
}

/// All counters of one daemon.
#[derive(Debug, Default)]
pub struct Meters {
    /// Connections that got a session.
    pub connections_accepted: AtomicU64,
    /// Connections closed because their user id is not on the allow-list.
    pub connections_refused_uid: AtomicU64,
    /// Connections closed because there were as many sessions as allowed.
    pub connections_refused_full: AtomicU64,
    /// Connections refused because their process has lost too many sessions.
    pub connections_refused_lost: AtomicU64,
    /// Sessions that ended, by reason.
    pub sessions_ended: Counters<SessionEnd>,
    /// Handovers, by what became of them.
    pub handovers: Counters<HandoverEnd>,
    /// Connections that came over from the daemon before.
    pub sessions_taken_over: AtomicU64,
    /// Connections of the daemon before that had to be closed for it.
    pub sessions_left_behind: AtomicU64,
    /// Requests and their duration, by op.
    pub requests: Requests,
    /// Requests answered with an `error` frame.
    pub error_frames: AtomicU64,
    /// Bytes read from engine sockets.
    pub received_bytes: AtomicU64,
    /// Bytes written to engine sockets.
    pub sent_bytes: AtomicU64,
    /// Hits in memory that were held against their checksum.
    pub hits_verified: AtomicU64,
    /// Bodies refused because staging memory was used up.
    pub staging_refused: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_label<L: Label + PartialEq>() {
        for (position, label) in L::ALL.iter().enumerate() {
            assert_eq!(label.index(), position, "{label:?}");
        }
        let mut names: Vec<&str> = L::ALL.iter().map(|label| label.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), L::ALL.len());
    }

    #[test]
    fn labels_have_their_position_and_a_name_of_their_own() {
        check_label::<Op>();
        check_label::<SessionEnd>();
        check_label::<HandoverEnd>();
    }

    #[test]
    fn counters_count_their_own_label_only() {
        let counters = Counters::<SessionEnd>::default();
        counters.count(SessionEnd::WriteStall);
        counters.count(SessionEnd::WriteStall);
        counters.count(SessionEnd::Failed);
        let found: Vec<u64> = SessionEnd::ALL.iter().map(|end| counters.get(*end)).collect();
        assert_eq!(found, [0, 0, 2, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn a_duration_falls_into_the_bucket_that_reaches_it() {
        let histogram = Histogram::default();
        for us in [0, 10, 11, 30, 10_000_000, 10_000_001] {
            histogram.observe(Duration::from_micros(us));
        }
        let (cumulative, sum_us) = histogram.read();
        assert_eq!(cumulative, [2, 4, 4, 4, 4, 4, 4, 4, 4, 5, 6]);
        assert_eq!(sum_us, 20_000_052);
    }
}
