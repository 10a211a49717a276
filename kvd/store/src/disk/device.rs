//! One device as the store sees it: what is known of it, what waits for it, how it is doing.

use std::collections::VecDeque;

use super::late::Arrival;
use super::pace::Pace;
use super::waits::JournalWaits;
use super::work::{DeviceFault, LoadId, WaitId};
use super::{DeviceHealth, DeviceId};
use crate::tablespace::{EntryId, Tablespace};
use crate::time::Timestamp;

/// A block on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Below {
    pub(crate) device: u8,
    pub(crate) entry: EntryId,
}

/// A key that will be asked for soon, they say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hint {
    pub(crate) entry: EntryId,
    /// Of the entry that was meant.
    pub(crate) generation: u64,
    pub(crate) until: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct Device {
    pub(crate) state: State,
    /// Loads that somebody waits for, in the order in which they were asked for.
    pub(crate) demanded: VecDeque<LoadId>,
    /// Loads of what was reported present.
    pub(crate) promised: VecDeque<LoadId>,
    pub(crate) hints: VecDeque<Hint>,
    /// Loads that wait or are under way.
    pub(crate) loads: u32,
    /// Their payload bytes.
    pub(crate) load_bytes: u64,
    pub(crate) reads: Pace,
    pub(crate) writes: Pace,
    pub(crate) faults_in_a_row: u32,
    /// No spill before this time: the file system is full.
    pub(crate) paused_until: Timestamp,
    /// Who waits until what the journal says is on stable storage.
    pub(crate) syncs: JournalWaits,
    /// Who waits until it is written.
    pub(crate) written: JournalWaits,
    /// No piece of journal or snapshot before this time, for the same reason.
    pub(crate) journal_paused_until: Timestamp,
    /// Sequence of the journal piece under way, and whether it comes with a sync.
    pub(crate) journal: Option<(u64, bool)>,
    /// A snapshot piece is under way.
    pub(crate) snapshot: bool,
    /// When the latest sync was asked for.
    pub(crate) synced_at: Timestamp,
    /// The entry up to which it was compared with the other devices; none: it was.
    pub(crate) comparing: Option<u32>,
    /// The row up to which adopted rows were sought on it; none: all were.
    pub(crate) reuniting: Option<u32>,
    /// Clears that were asked for before the device was of use.
    pub(crate) waits: Vec<WaitId>,
}

/// What the device is good for.
#[derive(Debug, Default)]
pub(crate) enum State {
    /// Nothing yet.
    #[default]
    Recovering,
    /// Nothing yet: what happened meanwhile is being made up for.
    Arriving(Box<Tablespace>, Arrival),
    /// Everything.
    Ready(Box<Tablespace>),
    /// Nothing any more.
    Failed(DeviceFault),
}

impl Device {
    /// What is known of its blocks, if they may be used.
    pub(crate) fn tablespace(&self) -> Option<&Tablespace> {
        match &self.state {
            State::Ready(tablespace) => Some(tablespace),
            State::Recovering | State::Arriving(..) | State::Failed(_) => None,
        }
    }

    pub(crate) fn tablespace_mut(&mut self) -> Option<&mut Tablespace> {
        match &mut self.state {
            State::Ready(tablespace) => Some(tablespace),
            State::Recovering | State::Arriving(..) | State::Failed(_) => None,
        }
    }

    pub(crate) const fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// The same while the device is still arriving: for what leaves it then.
    pub(crate) fn any_tablespace_mut(&mut self) -> Option<&mut Tablespace> {
        match &mut self.state {
            State::Ready(tablespace) | State::Arriving(tablespace, _) => Some(tablespace),
            State::Recovering | State::Failed(_) => None,
        }
    }

    /// Whether its blocks are still to come.
    pub(crate) const fn is_coming(&self) -> bool {
        matches!(self.state, State::Recovering | State::Arriving(..))
    }

    /// Whether it would be of use sooner if somebody went on with its arrival.
    pub(crate) const fn is_busy_arriving(&self) -> bool {
        matches!(self.state, State::Arriving(..)) || self.is_settling()
    }

    /// Whether it is still being found out which of its blocks is what.
    pub(crate) const fn is_settling(&self) -> bool {
        self.comparing.is_some() || self.reuniting.is_some()
    }

    pub(crate) const fn health(&self) -> DeviceHealth {
        match self.state {
            State::Recovering | State::Arriving(..) => DeviceHealth::Recovering,
            State::Ready(_) => DeviceHealth::Ready,
            State::Failed(fault) => DeviceHealth::Failed(fault),
        }
    }
}

/// Bit of a device in [`crate::Effects::devices_to_wake`].
pub(crate) const fn bit(device: u8) -> u64 {
    1 << device
}

impl From<DeviceId> for usize {
    fn from(device: DeviceId) -> Self {
        Self::from(device.0)
    }
}
