//! What the store asks for and answers. Filled by one call of `apply`, executed by the caller.

use kvd_proto::ids::{LeaseId, SessionId, TicketId};
use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_proto::tier::Tier;

use crate::disk::{DiskWork, Verdict, WaitId};
use crate::events::TierChanges;
use crate::input::ClearCursor;
use crate::ledger::LedgerWrites;
use crate::tablespace::Tablespace;

/// The results of one input. Reuse one value: it is emptied at the start of every `apply` and
/// keeps its memory, so that the hot calls allocate nothing.
#[derive(Debug, Default)]
pub struct Effects {
    /// What to store into the ledger, in this order, **before** the headers and before the store is
    /// unlocked.
    pub ledger: LedgerWrites,
    /// Headers to write into the arena, in this order, **before** the store is unlocked.
    pub headers: Vec<HeaderWrite>,
    /// What can be read where from now on, and what no longer: to be told in this order, and in the order of the
    /// inputs.
    pub tiers: TierChanges,
    /// One per key of a fetch, in the order of the keys.
    pub found: Vec<Found>,
    /// One per key of a locate, in the order of the keys.
    pub located: Vec<Located>,
    /// Of what a locate found on devices, the bytes that nothing loads yet: they come before all
    /// that is found later.
    pub unloaded_bytes: u64,
    /// The answer to every other input.
    pub outcome: Outcome,
    /// Closed sessions that hold nothing any more: their processes need not be watched.
    pub forgotten: Vec<SessionId>,
    /// The answer to [`crate::Input::TakeWork`].
    pub work: Vec<DiskWork>,
    /// Sessions that wait for loads and should fetch again, each once.
    pub woken: Vec<SessionId>,
    /// Waits that were decided by this input: ask for their verdicts.
    pub decided: Vec<WaitId>,
    /// What was answered holds only once this wait is decided; none: it holds already.
    pub wait: Option<WaitId>,
    /// What was known of devices that failed: drop it after unlocking, it may be large.
    pub retired: Vec<Tablespace>,
    /// Devices that have something to do: bit n for device n. Wake their drivers after unlocking.
    pub devices_to_wake: u64,
}

impl Effects {
    /// Empties everything, keeps the memory.
    pub fn clear(&mut self) {
        self.ledger.clear();
        self.headers.clear();
        self.tiers.clear();
        self.found.clear();
        self.located.clear();
        self.unloaded_bytes = 0;
        self.outcome = Outcome::Done;
        self.forgotten.clear();
        self.work.clear();
        self.woken.clear();
        self.decided.clear();
        self.wait = None;
        self.retired.clear();
        self.devices_to_wake = 0;
    }
}

/// The answer to an input that has exactly one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to say.
    #[default]
    Done,
    /// To [`crate::Input::Reserve`].
    Reserved(Result<Granted, Refusal>),
    /// To [`crate::Input::Commit`].
    Committed(Result<(), Refusal>),
    /// To [`crate::Input::Release`].
    Released {
        /// Leases given back.
        released: u32,
        /// Leases that are unknown, finished or another session's.
        unknown: u32,
    },
    /// To [`crate::Input::TakeUp`].
    TakenUp {
        /// Rights that are the session's now.
        taken: u32,
        /// Rights that are unknown, finished or another process's.
        unknown: u32,
    },
    /// To [`crate::Input::Renounce`]: whether such a session of the same process was known.
    Renounced(bool),
    /// To [`crate::Input::CheckSet`]; `BadKey`, `Downgrade` or `ValueLargerThanStore` if refused.
    Checked(Result<(), Refusal>),
    /// To [`crate::Input::Cancel`]; `UnknownTicket` or `WrongOwner` if refused.
    Cancelled(Result<(), Refusal>),
    /// To [`crate::Input::Clear`].
    Cleared {
        /// Rows removed by this slice. Rows that had expired unnoticed count.
        rows: u64,
        /// Where to go on; none when all is done.
        next: Option<ClearCursor>,
    },
    /// To [`crate::Input::ReleaseQuarantine`].
    QuarantineReleased {
        /// Bytes of the rights that ended.
        bytes: u64,
    },
    /// To [`crate::Input::Verdict`].
    Verdict(Verdict),
    /// To [`crate::Input::Tick`].
    Ticked {
        /// More is due already: tick again (unlock in between).
        more: bool,
    },
}

/// A header that stands right before a payload in the arena, for readers of protocol 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderWrite {
    /// Arena offset of the payload; the header is the 16 bytes before it.
    pub payload_offset: u64,
    /// The value to write: odd while the payload is being written, even once it is stable.
    pub version: u32,
    /// Payload length to write.
    pub len_bytes: u32,
}

/// What a fetch found for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The bytes are in the arena and pinned.
    Hit(Hit),
    /// On a device, and on its way into the arena: fetch again when woken.
    Loading,
    /// Nothing to read.
    Miss(MissReason),
}

/// A pinned payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// What pins it.
    pub held: Held,
    /// Arena offset of the payload.
    pub payload_offset: u64,
    /// Payload length.
    pub len_bytes: u32,
    /// The even version in the payload's header.
    pub version: u32,
    /// Class of the row.
    pub retention: Retention,
}

/// What pins a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A lease, to be released. With [`crate::Hold::HandOut`] it means: over the cap, send the
    /// bytes inline and release.
    Lease(LeaseId),
    /// A hand-out, which ends by itself.
    HandOut,
}

/// What a locate found for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// Loadable, and promised to stay so for the promise window.
    Present {
        /// The fastest tier that holds it.
        tier: Tier,
        /// Payload length.
        len_bytes: u32,
        /// Estimated time until the bytes are in the arena; 0 if they are there.
        load_us: u32,
        /// Class of the row.
        retention: Retention,
    },
    /// Not loadable, or not promised ([`MissReason::Shed`]).
    Miss(MissReason),
}

/// Room to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The right to write and commit.
    pub ticket: TicketId,
    /// Arena offset of the payload.
    pub payload_offset: u64,
    /// Bytes from there that belong to the ticket; at least those asked for.
    pub capacity_bytes: u64,
    /// The even version that the header will carry after the commit.
    pub version: u32,
}
