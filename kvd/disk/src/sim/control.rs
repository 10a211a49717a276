//! The test's hand in a simulated disk.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::config::Faults;
use super::crash::CrashPoint;
use super::{Shared, lock};
use crate::operation::{Action, FileId};

/// Makes, breaks and looks at the files of a [`super::SimDisk`], also while and after it is used,
/// from any thread.
#[derive(Clone, Debug)]
pub struct SimControl {
    shared: Arc<Mutex<Shared>>,
}

impl SimControl {
    pub(super) fn new(shared: Arc<Mutex<Shared>>) -> Self {
        Self { shared }
    }

    /// Makes a file, or gives it other contents; durable at once, as are all changes from outside
    /// that do not go through an operation.
    pub fn make(&self, file: FileId, contents: Vec<u8>) {
        lock(&self.shared).files.become_durably(file, contents);
    }

    /// Makes a file shorter, or longer with zeros. A file that does not exist comes to be.
    ///
    /// # Panics
    /// If the length does not fit an address.
    pub fn resize(&self, file: FileId, bytes: u64) {
        let Ok(len) = usize::try_from(bytes) else { panic!("a file of {bytes} bytes in memory") };
        let mut shared = lock(&self.shared);
        let mut contents = shared.files.actual(file).cloned().unwrap_or_default();
        contents.resize(len, 0);
        shared.files.become_durably(file, contents);
    }

    /// What a read of the whole file would give.
    #[must_use]
    pub fn contents(&self, file: FileId) -> Option<Vec<u8>> {
        lock(&self.shared).files.actual(file).cloned()
    }

    /// What it would give if nothing had gone wrong.
    #[must_use]
    pub fn pristine(&self, file: FileId) -> Option<Vec<u8>> {
        lock(&self.shared).files.pristine(file).cloned()
    }

    /// From now on, this goes wrong.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.shared).files.faults = faults;
    }

    /// Every operation of that kind that touches the bytes ends in the errno, until [`Self::heal`]. A
    /// sync touches all bytes.
    pub fn break_range(&self, file: FileId, action: Action, range: Range<u64>, errno: i32) {
        lock(&self.shared).files.break_range(file, action, range, errno);
    }

    /// Ends all faults and bad places; what they did to the files stays.
    pub fn heal(&self) {
        lock(&self.shared).files.heal();
    }

    /// Keeps everything in flight from ending, like a device that hangs, or lets it go on with the
    /// next wait.
    pub fn hold(&self, is_held: bool) {
        lock(&self.shared).is_held = is_held;
    }

    /// Time since the disk was made, on its own clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_micros(lock(&self.shared).now_us)
    }

    /// How many steps (writes, syncs and changes from outside) have happened. A crash may come after
    /// each of them: `0..=steps()`.
    #[must_use]
    pub fn steps(&self) -> usize {
        lock(&self.shared).files.log.records.len()
    }

    /// The moment after that many steps. Writes that were in flight then may have happened.
    #[must_use]
    pub fn crash_after(&self, steps: usize) -> CrashPoint {
        let (certain, late) = lock(&self.shared).files.log.state_after(steps);
        CrashPoint::new(certain, late)
    }
}
