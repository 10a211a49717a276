//! What the router counts. Label values are enums, so counting is one atomic add; `metrics` reads it all at
//! scrape time.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use router_core::fold::Counts;
use router_tokens::WhyNot;

use crate::retention::Retention;

/// A closed set of label values.
pub trait Label: Copy + std::fmt::Debug + 'static {
    /// Every value; `index` is the position in here.
    const ALL: &'static [Self];
    /// Position in [`Label::ALL`].
    fn index(self) -> usize;
    /// The value as it appears in metrics.
    fn as_str(self) -> &'static str;
}

/// Makes an enum whose variants are label values.
macro_rules! label {
    ($(#[$about:meta])* $name:ident { $($(#[$what:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$what])* $variant,)+ }

        impl Label for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn index(self) -> usize {
                self as usize
            }

            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

label! {
    /// What came of a request.
    Outcome {
        /// A status below 400, to the last byte.
        Ok = "ok",
        /// A status of 400 to 499.
        ClientError = "4xx",
        /// A status of 500 and more.
        ServerError = "5xx",
        /// It broke off, or the client left.
        Error = "error",
    }
}
label! {
    /// Why another worker was tried.
    Retry {
        /// It could not be reached, or went before it answered.
        Lost = "lost",
        /// It answered with a status of 500 or more.
        Failed = "5xx",
        /// It answered 429.
        Busy = "429",
    }
}
label! {
    /// Why an answer that had begun was not finished.
    Interruption {
        /// The worker broke off.
        Worker = "worker",
        /// The worker was silent for too long.
        Idle = "idle",
        /// The router ends.
        Ending = "ending",
    }
}
label! {
    /// Which silence was reported.
    Silence {
        /// Before the first byte.
        Admission = "admission",
        /// After it.
        Stall = "stall",
    }
}

label! {
    /// Why a request was sent without regard to what is cached.
    Skipped {
        /// Its path has no prompt that could be cached.
        Route = "route",
        /// No tokenizer is known for its model.
        NoTokenizer = "no_tokenizer",
        /// No worker tells of blocks whose names are known.
        NoBlocks = "no_blocks",
        /// Too many others waited for their tokens.
        Busy = "busy",
        /// Its tokens took too long.
        Late = "late",
        /// The body can't be read.
        Malformed = "malformed",
        /// It is larger than what is looked at.
        TooLarge = "too_large",
        /// Its template takes too much work.
        TooCostly = "too_costly",
        /// The template refused it.
        Refused = "refused",
        /// The engine will refuse it.
        Invalid = "invalid",
        /// It brings its own template.
        OwnTemplate = "own_template",
        /// The model has no template.
        NoTemplate = "no_template",
        /// The engine encodes in its own code.
        NativeEncoder = "native_encoder",
        /// Only the engine knows its tokens.
        Unknowable = "unknowable",
        /// The tokenizer failed.
        Tokenizer = "tokenizer",
    }
}
label! {
    /// What became of a hint to a daemon.
    Prefetch {
        /// It was taken.
        Sent = "sent",
        /// It was not.
        Failed = "failed",
        /// Too many others waited.
        Dropped = "dropped",
        /// All that was to be read ahead is in memory by now, or was asked for a moment ago.
        Needless = "needless",
    }
}
label! {
    /// Where tokens of a prompt were expected.
    Credit {
        /// On the device.
        Device = "device",
        /// In host memory.
        L2 = "l2",
        /// On disk.
        L3 = "l3",
        /// In a pool.
        L4 = "l4",
    }
}

label! {
    /// What was heard in the events of a publisher.
    Heard {
        /// Blocks can be read.
        Stored = "stored",
        /// Blocks can no longer be read.
        Removed = "removed",
        /// A place is empty.
        Cleared = "cleared",
        /// Messages in a row are missing.
        Gap = "gap",
        /// It can't be read.
        Malformed = "malformed",
        /// The medium has no meaning.
        UnknownMedium = "unknown_medium",
        /// What is known is not what the publisher has.
        DigestMismatch = "digest_mismatch",
    }
}

impl Counters<Heard> {
    /// Counts what happened to a view between two looks at it.
    pub fn count_since(&self, before: &Counts, now: &Counts) {
        for (heard, read) in [
            (Heard::Stored, (|counts| counts.stored) as fn(&Counts) -> u64),
            (Heard::Removed, |counts| counts.removed),
            (Heard::Cleared, |counts| counts.cleared),
            (Heard::Gap, |counts| counts.gaps),
            (Heard::Malformed, |counts| counts.malformed),
            (Heard::UnknownMedium, |counts| counts.unknown_media),
            (Heard::DigestMismatch, |counts| counts.digest_mismatches),
        ] {
            self.add(heard, read(now).saturating_sub(read(before)));
        }
    }
}

impl From<&WhyNot> for Skipped {
    fn from(why: &WhyNot) -> Self {
        match why {
            WhyNot::Malformed(_) => Self::Malformed,
            WhyNot::TooLarge => Self::TooLarge,
            WhyNot::TooCostly => Self::TooCostly,
            WhyNot::Refused(_) => Self::Refused,
            WhyNot::Invalid(_) => Self::Invalid,
            WhyNot::OwnTemplate => Self::OwnTemplate,
            WhyNot::NoTemplate => Self::NoTemplate,
            WhyNot::NativeEncoder => Self::NativeEncoder,
            WhyNot::Unknowable(_) => Self::Unknowable,
            WhyNot::Tokenizer(_) => Self::Tokenizer,
        }
    }
}

impl Label for Retention {
    const ALL: &'static [Self] = &Self::ALL;

    fn index(self) -> usize {
        self as usize
    }

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
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
        self.add(label, 1);
    }

    /// Counts several.
    pub fn add(&self, label: L, count: u64) {
        self.counts[label.index()].fetch_add(count, Ordering::Relaxed);
    }

    /// The count of one label value.
    #[must_use]
    pub fn get(&self, label: L) -> u64 {
        self.counts[label.index()].load(Ordering::Relaxed)
    }
}

/// Times, or numbers of blocks, in buckets.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than there are bounds.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// From a tenth of a millisecond to ten minutes: answers and first bytes.
pub const ANSWERS_US: &[u64] = &[
    1_000,
    3_000,
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    600_000_000,
];
/// From a microsecond to a second: decisions.
pub const DECISIONS_US: &[u64] =
    &[1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000];

/// Blocks of prompts.
pub const BLOCKS: &[u64] = &[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

impl Histogram {
    /// An empty one with these upper bounds, in microseconds if it is of times.
    #[must_use]
    pub fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Takes one time.
    pub fn observe(&self, time: Duration) {
        self.observe_number(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Takes one number.
    pub fn observe_number(&self, number: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < number);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(number, Ordering::Relaxed);
    }

    /// Upper bounds with the counts up to each, the count of all, and the sum: microseconds, if it is of times.
    #[must_use]
    pub fn read(&self) -> (Vec<(u64, u64)>, u64, u64) {
        let mut count = 0;
        let mut up_to = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        let cumulative: Vec<u64> = self.counts.iter().map(&mut up_to).collect();
        let buckets = self.bounds.iter().copied().zip(cumulative).collect();
        (buckets, count, self.sum.load(Ordering::Relaxed))
    }
}

/// All of it.
#[derive(Debug)]
pub struct Meters {
    /// When the process began.
    pub started: Instant,
    /// Requests whose last byte has not gone out.
    pub in_flight: AtomicU64,
    /// Times to the last byte, by [`Outcome`].
    pub durations: Box<[Histogram]>,
    /// Times to the first byte of a worker's answer.
    pub first_bytes: Histogram,
    /// Times of picks.
    pub picks: Histogram,
    /// Blocks of prompts that were picked for, and those of them that the picked one had on its device.
    pub pick_blocks: Histogram,
    /// See above.
    pub pick_hits: Histogram,
    /// What clients ask for.
    pub retention_seen: Counters<Retention>,
    /// Attempts after the first.
    pub retries: Counters<Retry>,
    /// Answers that were not finished.
    pub interruptions: Counters<Interruption>,
    /// Silences reported.
    pub silences: Counters<Silence>,
    /// Records that could not be read.
    pub bad_records: AtomicU64,
    /// What engines published.
    pub engine_events: Counters<Heard>,
    /// What daemons published.
    pub host_events: Counters<Heard>,
    /// Times that tokens took.
    pub tokens: Histogram,
    /// Requests that went without regard to caches.
    pub locality_skipped: Counters<Skipped>,
    /// Tokens that were expected to be cached where requests went.
    pub credit_tokens: Counters<Credit>,
    /// Hints to daemons.
    pub prefetches: Counters<Prefetch>,
    /// Tokens that workers say were cached.
    pub cached_tokens: AtomicU64,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            in_flight: AtomicU64::new(0),
            durations: Outcome::ALL.iter().map(|_| Histogram::new(ANSWERS_US)).collect(),
            first_bytes: Histogram::new(ANSWERS_US),
            picks: Histogram::new(DECISIONS_US),
            pick_blocks: Histogram::new(BLOCKS),
            pick_hits: Histogram::new(BLOCKS),
            retention_seen: Counters::default(),
            retries: Counters::default(),
            interruptions: Counters::default(),
            silences: Counters::default(),
            bad_records: AtomicU64::new(0),
            engine_events: Counters::default(),
            host_events: Counters::default(),
            tokens: Histogram::new(DECISIONS_US),
            locality_skipped: Counters::default(),
            credit_tokens: Counters::default(),
            prefetches: Counters::default(),
            cached_tokens: AtomicU64::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_cumulative() {
        let histogram = Histogram::new(&[10, 100]);
        for us in [1, 10, 11, 100, 101, 1_000] {
            histogram.observe(Duration::from_micros(us));
        }
        assert_eq!(histogram.read(), (vec![(10, 2), (100, 4)], 6, 1_223));
    }
}
