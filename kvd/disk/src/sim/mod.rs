//! A disk in memory that misbehaves on demand, the same way each time.
//!
//! [`SimDisk`] keeps the contract of [`Disk`]; [`SimControl`] is the test's hand in it: it makes
//! files, breaks them, and asks what a crash would leave. `files.rs` carries operations out, `log.rs`
//! remembers them, [`crash`] makes images of a moment in the log, `random.rs` is all chance there
//! is, in one stream for the schedule and one for the faults.

mod config;
mod control;
pub mod crash;
mod files;
mod log;
mod random;

pub use config::{Faults, Pace, SimConfig};
pub use control::SimControl;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::buffer::AlignedBuffer;
use crate::disk::Disk;
use crate::fault::Fault;
use crate::operation::{Action, Completion, FileId, Memory, Operation};
use crate::system;
use crate::transfer::{Step, Transfer};
use crate::waker::{Bell, Waker};
use config::micros;
use files::Files;
use random::Stream;

/// What direct I/O must be a multiple of here.
const SECTOR_BYTES: u64 = 512;

/// Bytes read at once when a real file is taken over.
const IMPORT_BYTES: usize = 1 << 20;

/// What the disk and its control share.
#[derive(Debug)]
struct Shared {
    files: Files,
    /// Nothing ends while this is set.
    is_held: bool,
    now_us: u64,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Pending {
    operation: Operation,
    submitted_at: usize,
    submitted_us: u64,
    due_us: u64,
    /// How it ends, if that is known already.
    outcome: Option<Result<(), Fault>>,
}

/// A simulated disk.
#[derive(Debug)]
pub struct SimDisk {
    shared: Arc<Mutex<Shared>>,
    attached: BTreeMap<FileId, OFlag>,
    pending: Vec<Pending>,
    config: SimConfig,
    schedule: Stream,
    bell: Arc<Bell>,
}

impl SimDisk {
    /// A disk without files, and the hand in it.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    ///
    /// # Panics
    /// If the depth is zero.
    pub fn new(config: SimConfig) -> io::Result<(Self, SimControl)> {
        assert!(config.depth > 0, "a disk that takes no operation");
        let files = Files::new(config.faults.clone(), Stream::new(config.seed, 1));
        let shared = Arc::new(Mutex::new(Shared { files, is_held: false, now_us: 0 }));
        let control = SimControl::new(Arc::clone(&shared));
        let schedule = Stream::new(config.seed, 2);
        let (attached, pending, bell) = (BTreeMap::new(), Vec::new(), Bell::new()?);
        Ok((Self { shared, attached, pending, config, schedule, bell }, control))
    }

    /// Attaches a file that the control has made.
    ///
    /// # Panics
    /// If the id is attached already, or the control has made no such file.
    pub fn attach_made(&mut self, file: FileId) {
        assert!(lock(&self.shared).files.knows(file), "file {file} has not been made");
        self.note_attached(file, OFlag::O_RDWR);
    }

    fn note_attached(&mut self, file: FileId, flags: OFlag) {
        let before = self.attached.insert(file, flags);
        assert!(before.is_none(), "file {file} is attached already");
    }

    /// What the file's flags and the operation's shape decide.
    fn outcome(&self, operation: &Operation) -> Option<Result<(), Fault>> {
        let Some(flags) = self.attached.get(&operation.file()) else {
            return Some(Err(Fault::NotAttached { file: operation.file() }));
        };
        if let Step::Ended(result) = Transfer::of(operation).begin() {
            return Some(result);
        }
        let access = *flags & OFlag::O_ACCMODE;
        let is_forbidden = match operation.action() {
            Action::Read => access == OFlag::O_WRONLY,
            Action::Write => access == OFlag::O_RDONLY,
            Action::Sync => false,
        };
        if is_forbidden {
            return Some(Err(Fault::Errno(libc::EBADF)));
        }
        let address = operation.memory().map_or(0, |memory| memory.address().addr() as u64);
        let mut parts = [operation.offset(), operation.len() as u64, address].into_iter();
        let is_aligned = parts.all(|part| part.is_multiple_of(SECTOR_BYTES));
        let is_direct = flags.contains(OFlag::O_DIRECT);
        (is_direct && !is_aligned).then_some(Err(Fault::Errno(libc::EINVAL)))
    }

    /// Which of the pending operations end now, as a place in their list.
    fn next_due(&mut self, now_us: u64) -> Option<usize> {
        let mut due = Vec::new();
        for (place, pending) in self.pending.iter().enumerate() {
            if pending.due_us <= now_us {
                due.push((pending.due_us, place));
            }
        }
        due.sort_unstable();
        match self.config.pace {
            // In the order of their times, which are drawn.
            Pace::Virtual { .. } => due.first().map(|(_, place)| *place),
            Pace::Immediate if self.config.reorder => {
                let drawn = self.schedule.index(due.len());
                due.get(drawn).map(|(_, place)| *place)
            }
            Pace::Immediate => due.first().map(|(_, place)| *place),
        }
    }

    /// Ends everything that is due.
    fn finish(&mut self, done: &mut Vec<Completion>) {
        let shared = Arc::clone(&self.shared);
        let mut shared = lock(&shared);
        if shared.is_held {
            return;
        }
        let mut ended = 0_usize;
        while let Some(place) = self.next_due(shared.now_us) {
            let Pending { mut operation, submitted_at, submitted_us, outcome, .. } =
                self.pending.remove(place);
            let result = match outcome {
                Some(known) => known,
                None => shared.files.carry_out(&mut operation, submitted_at),
            };
            let took = Duration::from_micros(shared.now_us.saturating_sub(submitted_us));
            done.push(operation.ended(result, took));
            ended = ended.saturating_add(1);
            // Some are left for the next wait, as if they took longer.
            if self.config.reorder && self.schedule.below(8) == 0 {
                break;
            }
        }
    }

    /// Moves the clock to the next end, or by the timeout.
    fn let_time_pass(&mut self, timeout: Duration) {
        let mut shared = lock(&self.shared);
        let limit = shared.now_us.saturating_add(micros(timeout));
        let next = self.pending.iter().map(|pending| pending.due_us).min();
        let next = next.filter(|_| !shared.is_held).unwrap_or(limit);
        shared.now_us = next.clamp(shared.now_us, limit);
    }
}

impl Disk for SimDisk {
    /// Takes the file's bytes over, as they are now; the real file is not used after. If the control
    /// has made a file of that id, that one is meant.
    fn attach(&mut self, file: FileId, handle: File) {
        let flags =
            fcntl(&handle, FcntlArg::F_GETFL).map_or(OFlag::O_RDWR, OFlag::from_bits_retain);
        if !lock(&self.shared).files.knows(file) {
            let bytes = imported(&handle);
            lock(&self.shared).files.become_durably(file, bytes);
        }
        self.note_attached(file, flags);
    }

    fn detach(&mut self, file: FileId) {
        self.attached.remove(&file);
    }

    fn submit(&mut self, operation: Operation) -> Result<(), Operation> {
        if self.pending.len() >= self.config.depth {
            return Err(operation);
        }
        let latency_us = match &self.config.pace {
            Pace::Immediate => 0,
            Pace::Virtual { latency_us } => {
                let spread = latency_us.end().saturating_sub(*latency_us.start()).saturating_add(1);
                latency_us.start().saturating_add(self.schedule.below(spread))
            }
        };
        let outcome = self.outcome(&operation);
        let shared = lock(&self.shared);
        let submitted_us = shared.now_us;
        let mut due_us = submitted_us.saturating_add(latency_us);
        if !self.config.reorder {
            let last = self.pending.last().map_or(0, |pending| pending.due_us);
            due_us = due_us.max(last);
        }
        let submitted_at = shared.files.log.records.len();
        drop(shared);
        self.pending.push(Pending { operation, submitted_at, submitted_us, due_us, outcome });
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.pending.len()
    }

    fn depth(&self) -> usize {
        self.config.depth
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Completion>) -> io::Result<()> {
        let before = done.len();
        self.finish(done);
        if done.len() > before || timeout.is_zero() {
            self.bell.get_up();
            return Ok(());
        }
        match self.config.pace {
            Pace::Immediate => self.bell.sleep(timeout)?,
            Pace::Virtual { .. } if self.bell.get_up() => {}
            Pace::Virtual { .. } => self.let_time_pass(timeout),
        }
        self.finish(done);
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }

    fn engine(&self) -> &'static str {
        "sim"
    }

    fn arena_touched(&mut self, _bytes: u64) -> u64 {
        0
    }

    fn shut_down(self: Box<Self>) {}
}

impl Drop for SimDisk {
    /// Carries out what is pending, whether held or not.
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        for Pending { operation, submitted_at, outcome, .. } in &mut self.pending {
            if outcome.is_none() {
                // Nobody is left to hear how it went.
                let _unheard = shared.files.carry_out(operation, *submitted_at);
            }
        }
    }
}

/// All bytes of a real file; none if it cannot be read.
fn imported(file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut memory = Memory::Owned(AlignedBuffer::zeroed(IMPORT_BYTES));
    loop {
        let piece = Operation::read(0, FileId(0), bytes.len() as u64, memory);
        let Step::Call(call) = Transfer::of(&piece).begin() else { return bytes };
        let Ok(moved @ 1..) = system::carry_out(file, &piece, call) else { return bytes };
        let Some(back) = piece.into_memory() else { return bytes };
        bytes.extend(back.to_vec().iter().take(moved));
        memory = back;
    }
}
