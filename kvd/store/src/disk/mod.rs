//! The tier below the arena: blocks on devices, and everything that moves between the two.
//!
//! A block is in the arena (a row), on a device (an entry), or in both, which then know of each
//! other. Blocks come up by [`loading`]: one read however many wait, until [`landing`] makes a row
//! of it. They go down by spills: [`choice`] says which row is next, [`spills`] writes it. Whoever
//! replaces or removes something tells both sides ([`storing`], [`leaving`], [`clearing`]).
//! Nothing is queued outside: devices come and take ([`take`]).

mod admission;
mod check;
mod choice;
mod clearing;
mod config;
mod device;
mod dirty;
mod faults;
mod hints;
mod landing;
mod late;
mod leaving;
mod loading;
mod loads;
mod locating;
mod looking;
mod marks;
mod pace;
mod passing;
mod same;
mod spills;
mod stats;
mod storing;
mod take;
mod tier;
mod waiters;
mod waits;
mod work;

pub(crate) use choice::Limits;
pub(crate) use clearing::ClearBelow;
pub use config::{DEVICES_MAX, DeviceId, DiskConfig, Durability};
pub(crate) use device::Below;
pub use looking::{EntryCursor, EntryInfo};
pub(crate) use marks::{Copied, Marks};
pub use stats::{DeviceHealth, DeviceInfo, DiskStats, DiskTotals};
pub(crate) use tier::Tier;
pub(crate) use waiters::Waiting;
pub use work::{
    DeviceFault, DiskDone, DiskWork, Half, LoadFault, LoadId, SpillFault, SpillId, Verdict,
    WHOLE_PAGES_FROM, WaitId, WriteFault,
};
