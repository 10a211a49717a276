//! Everything that can happen to a store. Closed: a new input must stop the compiler wherever
//! inputs are matched.

use kvd_proto::block_key::Namespace;
use kvd_proto::column::U64Column;
use kvd_proto::ids::{LeaseId, SessionId, TicketId};
use kvd_proto::retention::Retention;

use crate::disk::{ClearBelow, DeviceFault, DeviceId, DiskDone, WaitId};
use crate::keys::Keys;
use crate::tablespace::Tablespace;

/// One step. Inputs that name a session require it to be open; a session that the store never
/// saw or has forgotten is the caller's mistake and panics, except where an input says otherwise.
#[derive(Debug)]
pub enum Input<'a> {
    /// The arena's bytes below `bytes` have been touched; extents come only from there.
    /// Never shrinks, never exceeds the configured arena.
    ArenaReady {
        /// End of the touched part.
        bytes: u64,
    },
    /// No more of the arena will be touched: nobody waits for it.
    ArenaGivenUp,
    /// A connection was accepted. Session ids are never reused.
    Open {
        /// The new session.
        session: SessionId,
        /// Whether the exit of its process can be observed.
        peer: Peer,
        /// Its process; none if that is not known.
        process: Option<ProcessName>,
    },
    /// End of file on the socket. The peer's leases and tickets stay, quarantined, until
    /// [`Input::PeerGone`] (or the operator); hand-outs get the grace time; what the daemon held
    /// for its own transfers is free at once. Ignored for unknown sessions.
    Close {
        /// The session that ended.
        session: SessionId,
    },
    /// The peer's process exited: all that it held is free as soon as [`Input::Close`] has come,
    /// too. Before that a child of the process may still use the connection. Comes in either
    /// order; ignored for unknown sessions.
    PeerGone {
        /// The session whose process is gone.
        session: SessionId,
    },
    /// An operator vouches for the end of closed sessions.
    /// Answer: [`crate::Outcome::QuarantineReleased`].
    ReleaseQuarantine {
        /// One closed session, or all of them.
        session: Option<SessionId>,
    },
    /// A protocol-1 frame arrived: what was handed out to this session before starts its grace
    /// time. Apply it before the request itself.
    NextRequest {
        /// The session that spoke.
        session: SessionId,
    },
    /// Looks up keys, refreshes their recency and pins what is found. What only a device holds is
    /// [`crate::Found::Loading`]: its read is started or joined, and [`crate::Effects::woken`] names
    /// the session when it pays to fetch these keys again. Only the final answer is counted.
    /// Answer: [`crate::Effects::found`], one per key (fewer with `prefix`).
    Fetch {
        /// Who asks.
        session: SessionId,
        /// Where the keys are looked up.
        namespace: Namespace<'a>,
        /// What is looked up.
        keys: Keys<'a>,
        /// Stop after the first miss, which is part of the answer.
        prefix: bool,
        /// How the hits are pinned.
        hold: Hold,
    },
    /// Refreshes the recency of what these leases pin, last to first. For batches that were
    /// applied in slices: each slice touches its own keys last to first, and this puts the
    /// slices in order again. Foreign and stale leases are ignored.
    Touch {
        /// Who holds the leases.
        session: SessionId,
        /// The whole batch in its order.
        leases: Ids<'a>,
    },
    /// Looks up keys without a trace in recency or counters, and promises that those found stay
    /// loadable for the promise window. Answer: [`crate::Effects::located`].
    Locate {
        /// Who asks.
        session: SessionId,
        /// Where the keys are looked up.
        namespace: Namespace<'a>,
        /// What is looked up.
        keys: Keys<'a>,
        /// Stop after the first miss, which is part of the answer.
        prefix: bool,
        /// Protocol 1: promise also the rows of the same model, under any compatibility key,
        /// whose 8-byte key has the same first 7 bytes; of what is only on a device, the same key
        /// in a few other namespaces of the model.
        family: bool,
        /// Where a call is applied in slices: [`crate::Effects::unloaded_bytes`] of the slice before.
        unloaded_bytes: u64,
    },
    /// The session waits for loads no longer: its deadline passed, or it has all it needs. Wake-ups
    /// that are under way may still come.
    StopWaiting {
        /// Who waited.
        session: SessionId,
        /// Keys that stay [`crate::Found::Loading`]: counted as misses by their deadline.
        given_up: u32,
    },
    /// A hint that keys will be fetched soon. Those that only a device holds are loaded in this
    /// order, behind everything that somebody waits for; the copies in the arena are given up again
    /// when the deadline passes, the blocks on the device stay. Never an answer.
    Prefetch {
        /// Who asks; nothing if that is nobody with a session.
        session: Option<SessionId>,
        /// Where the keys are looked up.
        namespace: Namespace<'a>,
        /// What is looked up.
        keys: Keys<'a>,
        /// When the hint is stale.
        deadline_ms: u64,
    },
    /// Gives leases back. Answer: [`crate::Outcome::Released`].
    Release {
        /// Who holds them.
        session: SessionId,
        /// The leases.
        leases: Ids<'a>,
    },
    /// Leases and tickets that the session's process was given over other connections are this session's
    /// from now on, under the same names and within no cap. Answer: [`crate::Outcome::TakenUp`].
    TakeUp {
        /// Who has them.
        session: SessionId,
        /// Names of leases, of tickets, or of both.
        rights: Ids<'a>,
    },
    /// The session's process has nothing any more of what it was given over another connection, which is
    /// lost: all that is left of it is free, at once or, if that session is open still, with its
    /// [`Input::Close`]. Ignored unless one process has both sessions. Answer:
    /// [`crate::Outcome::Renounced`].
    Renounce {
        /// Who says so.
        session: SessionId,
        /// Whose rights end.
        earlier: SessionId,
    },
    /// The name of a session's process, which a predecessor noted, means nothing here: nobody is taken for
    /// that process. Ignored for unknown sessions.
    ForgetProcess {
        /// Whose process.
        session: SessionId,
    },
    /// Asks whether a SET would be refused whatever room there is, so that nothing is evicted for
    /// it in vain. Answer: [`crate::Outcome::Checked`].
    CheckSet {
        /// Where the key lives.
        namespace: Namespace<'a>,
        /// The key.
        key: &'a [u8],
        /// Bytes of the value.
        len_bytes: u64,
        /// Class that the row would have.
        retention: Retention,
    },
    /// Asks for room to write. Answer: [`crate::Outcome::Reserved`] and a header write. A refusal
    /// is counted only if it is the client's: what becomes of a SET is the caller's to count, and
    /// the lack of room of which no class is known is no refusal yet.
    Reserve {
        /// Who will own the ticket.
        session: SessionId,
        /// Payload bytes, 0 included.
        len_bytes: u64,
        /// Rows of this class and below may be evicted. `None`: the class is not known yet; free
        /// space and the reserve are used, nothing is evicted.
        class: Option<Retention>,
        /// Who writes the bytes.
        writer: Writer,
    },
    /// Turns a ticket into a row. Answer: [`crate::Outcome::Committed`] and a header write.
    Commit(Commit<'a>),
    /// Gives a ticket back. Answer: [`crate::Outcome::Cancelled`].
    Cancel {
        /// Who holds it.
        session: SessionId,
        /// The ticket.
        ticket: TicketId,
        /// Keep the extent untouched for the grace time (protocol-1 clients may still look).
        linger: bool,
    },
    /// Removes rows, in slices: apply again with the returned cursor until there is none. With
    /// devices, the last slice comes with [`crate::Effects::wait`], whatever the durability: do not
    /// acknowledge before its verdict. Answer: [`crate::Outcome::Cleared`].
    Clear {
        /// Which rows.
        scope: ClearScope<'a>,
        /// [`ClearCursor::START`], then what the previous slice returned.
        cursor: ClearCursor,
    },
    /// A protocol-1 SET whose time to live is already over: counted, not stored.
    CountSet,
    /// A protocol-1 SET that the caller refused by itself (too large to receive, …): counted as
    /// a SET and as this refusal.
    CountRefusedSet {
        /// Why it was refused.
        refusal: kvd_proto::refusal::Refusal,
    },
    /// A device is recovered: its blocks can be found from now on. Once per device.
    TablespaceReady {
        /// Which.
        device: DeviceId,
        /// What is known of it.
        tablespace: Box<Tablespace>,
    },
    /// A device is out of use until the daemon restarts: its blocks are misses, nothing is written
    /// to it any more. What was taken is still to be reported.
    DeviceFailed {
        /// Which.
        device: DeviceId,
        /// Why.
        fault: DeviceFault,
    },
    /// Containers were added to a device: its blocks lie below `bytes`. Never shrinks.
    DeviceSpace {
        /// Which.
        device: DeviceId,
        /// Usable bytes of all containers.
        bytes: u64,
        /// What they will have once all of them exist: until then room is waited for rather than
        /// made. The same as `bytes` if the growth is over, or came to nothing.
        expected_bytes: u64,
    },
    /// How fast a device was found to read when somebody looked. What its own work tells is better and stays.
    DeviceReads {
        /// Which.
        device: DeviceId,
        /// Bytes a second.
        bytes_per_s: u64,
    },
    /// Whoever drives a device has room for more. Answer: [`crate::Effects::work`], the most urgent
    /// first. Journal and snapshot pieces come beside the limits.
    TakeWork {
        /// Which device.
        device: DeviceId,
        /// Most loads to take.
        loads_max: u32,
        /// Most spills to take.
        writes_max: u32,
        /// Most bytes of all spills together; one that is larger goes alone.
        write_bytes_max: u64,
    },
    /// Work that ended. Take more right after it.
    WorkDone {
        /// Which device.
        device: DeviceId,
        /// What ended, in any order.
        done: &'a [DiskDone],
    },
    /// Asks what became of a wait; one that is decided is forgotten with the answer.
    /// Answer: [`crate::Outcome::Verdict`].
    Verdict {
        /// Which.
        wait: WaitId,
        /// The caller will not ask again: forget it even if it is pending.
        give_up: bool,
    },
    /// Write what is not yet on a device as fast as the devices allow, `long` first, then `short`
    /// from the warmest on; the budget and the second touch do not apply. Progress:
    /// [`crate::DiskStats::dirty_bytes`].
    Drain {
        /// Begin or stop.
        on: bool,
    },
    /// The bytes of a row were found not to fit its checksum: the row goes, its copy on a device
    /// stays. Nothing happens if the row was replaced since.
    DropCorrupt {
        /// Where the key lives.
        namespace: Namespace<'a>,
        /// The key.
        key: &'a [u8],
        /// The version in [`crate::Hit::version`].
        version: u32,
    },
    /// Time passes: promises, grace times and times to live end, in bounded slices.
    /// Answer: [`crate::Outcome::Ticked`]; apply again while it says that more is due.
    Tick,
}

/// See [`Input::Commit`].
///
/// Refusals that leave the ticket open: `UnknownTicket`, `WrongOwner`, `OversizeCommit`, `BadKey`.
/// All others consume it, and the row that was stored under the key stays as it was.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// Who holds the ticket.
    pub session: SessionId,
    /// The ticket.
    pub ticket: TicketId,
    /// Where the key lives.
    pub namespace: Namespace<'a>,
    /// The key, at most [`kvd_proto::block_key::KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// Bytes really written, at most those reserved.
    pub len_bytes: u64,
    /// Class of the row.
    pub retention: Retention,
    /// Time to live. `Some(0)`: accepted and counted, but not stored.
    pub ttl_ms: Option<u64>,
    /// Encoded lineage, kept with the row.
    pub lineage: Option<&'a [u8]>,
    /// CRC-64/NVME over the value and then the key, as the client computed it: whatever else is
    /// found in the arena later is not made durable.
    pub checksum: Option<u64>,
    /// Which rules of the reference apply.
    pub rules: CommitRules,
}

/// The reference treats its two ways to store differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitRules {
    /// A SET: refused if the key is stored with a higher class; counted even if refused.
    Set,
    /// A commit of a reservation: may lower the class; counted if accepted.
    Lease,
}

/// Whether the end of a session's process can be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// [`Input::PeerGone`] will come.
    Watched,
    /// It will not: what the session holds when it closes waits for an operator, bounded by
    /// [`crate::StoreConfig::quarantine_bytes_max`].
    Unknowable,
}

/// A process, told from all others that this host has had since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessName {
    /// Its number, as the daemon sees it.
    pub pid: u32,
    /// When it was started, as `/proc/<pid>/stat` says (field 22).
    pub started: u64,
}

/// How a hit is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A lease of the client, until released.
    Lease,
    /// Protocol 1: until the session's next request plus the grace time. Over the session's cap
    /// the answer is a lease instead, which the daemon releases after it sent the bytes inline.
    HandOut,
    /// A lease of the daemon itself, released after it sent the bytes inline. No cap.
    Inline,
}

/// Who writes into a reserved extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The client, through its mapping: counted against its caps, quarantined after a close.
    Client,
    /// The daemon, from the socket: no cap, free at once when the session closes.
    Daemon,
}

/// Which rows a clear removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearScope<'a> {
    /// All rows.
    Everything,
    /// All rows of a model, whatever their compatibility key.
    Model(&'a str),
    /// Exactly one namespace.
    Namespace(Namespace<'a>),
}

/// Where the next slice of a clear begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClearCursor(pub(crate) ClearStage);

/// What a clear is busy with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClearStage {
    #[default]
    Begin,
    /// Devices.
    Below(ClearBelow),
    /// The table of rows, from this place on.
    Rows(u32),
}

impl ClearCursor {
    /// The beginning.
    pub const START: Self = Self(ClearStage::Begin);
}

/// Ids of a batch: as they came from the wire, or as a slice.
#[derive(Clone, Copy, Debug)]
pub enum Ids<'a> {
    /// Leases in memory.
    Slice(&'a [LeaseId]),
    /// Leases as a packed column.
    Column(U64Column<'a>),
}

impl<'a> Ids<'a> {
    /// The leases, from either end.
    pub(crate) fn iter(self) -> impl DoubleEndedIterator<Item = LeaseId> + use<'a> {
        let (slice, column) = match self {
            Self::Slice(slice) => (Some(slice), None),
            Self::Column(column) => (None, Some(column)),
        };
        slice
            .into_iter()
            .flatten()
            .copied()
            .chain(column.into_iter().flat_map(|column| column.iter().map(LeaseId)))
    }
}
