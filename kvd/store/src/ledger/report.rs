//! What came of an adoption.

use kvd_proto::ids::SessionId;

use super::Holder;
use crate::input::{Peer, ProcessName};

/// Why nothing of a ledger is believed: the arena it is about must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerFault {
    /// It ends before what it must have.
    #[error("the ledger is cut off at {bytes} bytes")]
    TooShort {
        /// Its length.
        bytes: u64,
    },
    /// There is something else.
    #[error("there is no ledger in this memory")]
    NoLedger,
    /// Another build wrote it.
    #[error("the ledger has version {found}, this daemon reads {}", super::LEDGER_VERSION)]
    Version {
        /// Its version.
        found: u32,
    },
    /// Its header or one of its marks is not as it was written.
    #[error("the ledger's header is damaged")]
    Damaged,
    /// It is about an arena of another size.
    #[error("the ledger is about an arena of {found} bytes, this one has {expected}")]
    OtherArena {
        /// What it says.
        found: u64,
        /// What the configuration says.
        expected: u64,
    },
    /// A session, a right or a read is not as it was written, so that nobody knows who may still use
    /// the arena.
    #[error("the ledger's {what} {slot} is damaged")]
    Rights {
        /// Session, right or read.
        what: &'static str,
        /// Its slot.
        slot: u32,
    },
    /// Rights contradict each other.
    #[error("the ledger's rights at byte {offset} of the arena contradict each other")]
    Conflict {
        /// Where in the arena.
        offset: u64,
    },
}

/// What a store took over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Sessions that hold rights, or whose connection lives on, in the order of their ids.
    pub sessions: Vec<AdoptedSession>,
    /// Rows that are back.
    pub rows: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Rights that are back.
    pub rights: u64,
    /// Rows that are not.
    pub dropped: DroppedRows,
    /// No session had this id or a larger one.
    pub next_session: u64,
    /// How much of the arena had been touched.
    pub ready_bytes: u64,
}

/// A session of the daemon before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdoptedSession {
    /// Its id, the same as before.
    pub session: SessionId,
    /// The peer's process, if it was known.
    pub process: Option<ProcessName>,
    /// Whether the end of the process could be observed.
    pub peer: Peer,
    /// Whom to wait for before [`crate::Input::PeerGone`].
    pub holder: Holder,
    /// Whether it is open: its connection was said to live on. Otherwise it is closed, and what it
    /// holds is quarantined until [`crate::Input::PeerGone`] or the operator.
    pub open: bool,
    /// Bytes of the extents of its rights.
    pub held_bytes: u64,
}

/// Rows that were forgotten, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedRows {
    /// Not as they were written: cut off by the end of the daemon, or damaged.
    pub torn: u64,
    /// In the same place or under the same name as another one, or where somebody may write.
    pub conflicting: u64,
    /// Their time to live is over.
    pub expired: u64,
    /// Beyond the budget or the number of rows of this configuration.
    pub without_room: u64,
}

impl DroppedRows {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.torn + self.conflicting + self.expired + self.without_room
    }
}
