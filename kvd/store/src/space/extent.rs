//! One range of a space: a hole, or a place that somebody uses.

use kvd_proto::retention::Retention;

use super::ExtentId;
use crate::rows::RowId;
use crate::slab::Id;

/// Ranges tile the touched part of the arena without gaps, linked in the order of addresses.
#[derive(Debug)]
pub(crate) struct Extent<O = RowId> {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) previous: ExtentId,
    pub(super) next: ExtentId,
    pub(super) owner: O,
    pub(super) pins: u32,
    pub(super) version: u32,
    pub(super) state: State,
    pub(super) class: Retention,
    pub(super) promised: bool,
    pub(super) large: bool,
}

/// What a range is used for. Every range is in exactly one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A hole. Never beside another hole.
    Free,
    /// Somebody may write into it.
    Ticketed,
    /// It belongs to a row, or to whatever else lives in this kind of space.
    Stored,
    /// Its row is gone, or never came, but somebody may still look at it.
    Orphaned,
}

impl State {
    pub(super) const COUNT: usize = 4;

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

impl<O: Id> Extent<O> {
    pub(super) const fn hole(start: u64, bytes: u64, previous: ExtentId, next: ExtentId) -> Self {
        Self {
            start,
            bytes,
            previous,
            next,
            owner: O::NONE,
            pins: 0,
            version: 0,
            state: State::Free,
            class: Retention::None,
            promised: false,
            large: false,
        }
    }

    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// Whether it is laid out as large.
    pub(crate) const fn large(&self) -> bool {
        self.large
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn owner(&self) -> O {
        self.owner
    }

    pub(crate) const fn pins(&self) -> u32 {
        self.pins
    }

    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    pub(crate) const fn state(&self) -> State {
        self.state
    }

    pub(crate) const fn class(&self) -> Retention {
        self.class
    }

    pub(crate) const fn promised(&self) -> bool {
        self.promised
    }

    /// Whether its row may make room: nobody looks at it and nobody was promised it.
    pub(crate) const fn is_evictable(&self) -> bool {
        matches!(self.state, State::Stored) && self.pins == 0 && !self.promised
    }

    pub(super) const fn end(&self) -> u64 {
        self.start + self.bytes
    }
}
