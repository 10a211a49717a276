//! The tier below the arena: blocks on devices, and everything that moves between the two.

mod config;
mod stats;
mod work;

pub use config::{DEVICES_MAX, DeviceId, DiskConfig, Durability};
pub use stats::{DeviceHealth, DeviceInfo, DiskStats, DiskTotals};
pub use work::{
    DeviceFault, DiskDone, DiskWork, Half, LoadFault, LoadId, SpillFault, SpillId, Verdict, WaitId,
    WriteFault,
};
