//! Containers are made one by one, ahead of need: their places on the device are reserved, then every
//! byte is written once, because writing what was written before is two to three times faster than
//! writing for the first time. Blocks may use each piece as soon as it is written.
//!
//! The disk has better things to do while engines wait for it, so growth pauses between pieces
//! unless room is short. A full file system ends growth until it has room again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvd_disk::AlignedBuffer;
use kvd_store::tablespace::geometry::{Plan, container_name};

use super::claim::Claim;
use super::device::{Device, Order};
use super::files::{self, Sized};
use super::meters::DeviceMeters;
use super::pieces::{BLOCK_BYTES, container_file};

/// Bytes written at a time.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes that become usable at a time.
const PIECE_BYTES: u64 = 16 << 20;

/// The containers of one directory.
#[derive(Debug)]
pub struct Growth {
    claim: Arc<Claim>,
    plan: Plan,
    direct: bool,
    /// Containers that are complete.
    complete: u32,
    /// The one that is being written.
    current: Option<Current>,
    zeros: AlignedBuffer,
    /// The latest step failed: there will be no more room for the time being.
    is_stuck: bool,
}

#[derive(Debug)]
struct Current {
    file: File,
    written_bytes: u64,
}

/// What became of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grown {
    /// A piece was added, in this time.
    Piece {
        /// Its bytes.
        bytes: u64,
        /// How long that took.
        took: Duration,
    },
    /// There are as many containers as there may be.
    Complete,
    /// The file system is full.
    Full,
}

impl Growth {
    /// Goes on from so many complete containers.
    #[must_use]
    pub fn new(claim: Arc<Claim>, plan: Plan, direct: bool, complete: u32) -> Self {
        let zeros = AlignedBuffer::zeroed(WRITE_BYTES);
        Self { claim, plan, direct, complete, current: None, zeros, is_stuck: false }
    }

    /// Bytes that blocks may use.
    #[must_use]
    pub fn ready_bytes(&self) -> u64 {
        let current_bytes = self.current.as_ref().map_or(0, |current| current.written_bytes);
        u64::from(self.complete) * self.plan.container_bytes + current_bytes
    }

    /// Containers that have been made, complete or not.
    #[must_use]
    pub fn containers(&self) -> u32 {
        self.complete + u32::from(self.current.is_some())
    }

    /// Whether there is nothing left to add.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete >= self.plan.containers_max
    }

    /// What a device is told of its room.
    #[must_use]
    pub fn space(&self) -> Order {
        let bytes = self.ready_bytes();
        let expected_bytes = if self.is_stuck {
            bytes
        } else {
            self.plan.container_bytes * u64::from(self.plan.containers_max)
        };
        Order::Space { bytes, expected_bytes }
    }

    /// Adds one piece, and tells the device.
    ///
    /// # Errors
    /// As the system says; a full file system is [`Grown::Full`].
    pub fn step(&mut self, device: &Device) -> io::Result<Grown> {
        if self.is_complete() {
            return Ok(Grown::Complete);
        }
        let began = Instant::now();
        let before_bytes = self.ready_bytes();
        let result = self.add_piece(device);
        self.is_stuck = result.is_err();
        if let Err(error) = result {
            // Nobody need wait for room that does not come.
            device.order(self.space());
            return if files::is_full(&error) { Ok(Grown::Full) } else { Err(error) };
        }
        let bytes = self.ready_bytes() - before_bytes;
        DeviceMeters::add(&device.meters.zeroed_bytes, bytes);
        device.order(self.space());
        Ok(Grown::Piece { bytes, took: began.elapsed() })
    }

    fn add_piece(&mut self, device: &Device) -> io::Result<()> {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.begin_container(device)?,
        };
        let result = self.write_piece(&mut current);
        if current.written_bytes == self.plan.container_bytes {
            self.complete += 1;
        } else {
            self.current = Some(current);
        }
        result
    }

    fn write_piece(&self, current: &mut Current) -> io::Result<()> {
        let container_bytes = self.plan.container_bytes;
        let end = container_bytes.min(current.written_bytes + PIECE_BYTES);
        while current.written_bytes < end {
            let left = usize::try_from(end - current.written_bytes).unwrap_or(usize::MAX);
            let len = left.min(self.zeros.len());
            current.file.write_all_at(&self.zeros[..len], current.written_bytes)?;
            current.written_bytes += len as u64;
        }
        if !self.direct {
            // Otherwise a whole container of zeros would fill the page cache.
            current.file.sync_data()?;
        }
        Ok(())
    }

    fn begin_container(&self, device: &Device) -> io::Result<Current> {
        let name = container_name(self.complete);
        let file = self.claim.open_or_make(&name, self.direct)?;
        // Some bytes may be there from an earlier life, with blocks in them.
        let before_bytes = file.metadata()?.len() / BLOCK_BYTES * BLOCK_BYTES;
        match files::reserve(&file, self.plan.container_bytes) {
            Ok(Sized::Allocated) => {}
            Ok(Sized::Sparse) => file.set_len(before_bytes)?,
            Err(error) => {
                if before_bytes == 0 {
                    // Part of it may have been reserved, and it holds nothing yet.
                    drop(self.claim.remove(&name));
                }
                return Err(error);
            }
        }
        let handle = file.try_clone()?;
        device.order(Order::Attach { file: container_file(self.complete), handle });
        Ok(Current { file, written_bytes: before_bytes.min(self.plan.container_bytes) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kvd_store::DeviceId;
    use kvd_store::tablespace::geometry::DIRECTORY;
    use tempfile::TempDir;

    use super::*;

    fn claim(folder: &TempDir) -> Arc<Claim> {
        Arc::new(Claim::new(folder.path()).unwrap())
    }

    #[test]
    fn containers_grow_piece_by_piece_up_to_their_number() {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::new(DeviceId(0), folder.path().into());
        let plan = Plan {
            container_bytes: 20 << 20,
            containers_max: 2,
            journal_bytes: 1 << 20,
            snapshot_bytes_max: 1 << 20,
        };
        let claim = claim(&folder);
        let mut growth = Growth::new(Arc::clone(&claim), plan, false, 0);
        let mut sizes = Vec::new();
        while let Grown::Piece { .. } = growth.step(&device).unwrap() {
            sizes.push(growth.ready_bytes() >> 20);
        }
        assert_eq!(sizes, [16, 20, 36, 40]);
        let orders: Vec<String> =
            device.take_orders().iter().map(|order| format!("{order:?}")).collect();
        assert_eq!(orders.len(), 6, "{orders:?}");
        assert!(orders[0].starts_with("Attach { file: FileId(4)"), "{orders:?}");
        let all = format!("Space {{ bytes: {0}, expected_bytes: {0} }}", 40 << 20);
        assert_eq!(orders[5], all);
        for number in 0..2 {
            let path = folder.path().join(DIRECTORY).join(container_name(number));
            assert_eq!(fs::metadata(path).unwrap().len(), plan.container_bytes);
        }
        let again = Growth::new(claim, plan, false, 1);
        assert_eq!(again.ready_bytes(), 20 << 20);
    }

    #[test]
    fn nobody_waits_for_room_that_does_not_come() {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::new(DeviceId(0), folder.path().into());
        let plan = Plan {
            container_bytes: 1 << 20,
            containers_max: 3,
            journal_bytes: 1 << 20,
            snapshot_bytes_max: 1 << 20,
        };
        let mut growth = Growth::new(claim(&folder), plan, false, 0);
        let container = |number| folder.path().join(DIRECTORY).join(container_name(number));
        fs::create_dir(container(0)).unwrap();
        let space = |bytes: u64, expected_bytes: u64| {
            format!("Space {{ bytes: {bytes}, expected_bytes: {expected_bytes} }}")
        };
        let last_order = || format!("{:?}", device.take_orders().pop_back().unwrap());
        growth.step(&device).unwrap_err();
        assert_eq!(last_order(), space(0, 0));
        fs::remove_dir(container(0)).unwrap();
        growth.step(&device).unwrap();
        assert_eq!(last_order(), space(1 << 20, 3 << 20), "it is waited for again");
        fs::create_dir(container(1)).unwrap();
        growth.step(&device).unwrap_err();
        assert_eq!(last_order(), space(1 << 20, 1 << 20));
    }

    #[test]
    fn bytes_of_an_earlier_life_stay() {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::new(DeviceId(0), folder.path().into());
        let plan = Plan {
            container_bytes: 1 << 20,
            containers_max: 1,
            journal_bytes: 1 << 20,
            snapshot_bytes_max: 1 << 20,
        };
        let claim = claim(&folder);
        let path = folder.path().join(DIRECTORY).join(container_name(0));
        fs::write(&path, [7; 10_000]).unwrap();
        let mut growth = Growth::new(claim, plan, false, 0);
        growth.step(&device).unwrap();
        assert!(growth.is_complete());
        let bytes = fs::read(&path).unwrap();
        assert!(bytes[..8192].iter().all(|byte| *byte == 7));
        assert!(bytes[8192..].iter().all(|byte| *byte == 0));
    }
}
