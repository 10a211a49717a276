//! Real storage parts for the disk tier to stand on: file systems on loop devices, devices that fail or stall on
//! demand, and a record of every write from which a power cut can be played again.
//!
//! * [`workshop`]: where a case works, and what must be there for it. Everything is made in a mount namespace of the
//!   case's own, so nothing of it outlives the case, however that ends.
//! * [`file_system`]: ext4 or xfs in an image file, on a loop device.
//! * [`faulty_device`]: an image behind `qemu-storage-daemon`, which breaks it on demand; `monitor.rs` talks to it.
//! * [`write_log`]: what was written and flushed there, and what a power cut leaves of it.
//! * [`extents`]: where a file lies on its device.
//! * [`tier`]: a daemon with a disk tier, and what it says of it.
//! * [`history`] and [`load`]: what clients did to keys, and what may be found of it afterwards.

pub mod extents;
pub mod faulty_device;
pub mod file_system;
pub mod history;
pub mod load;
mod monitor;
pub mod tier;
mod tool;
pub mod workshop;
pub mod write_log;

pub use self::file_system::{FileSystem, Kind};
pub use self::workshop::Workshop;
