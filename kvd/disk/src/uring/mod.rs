//! The engine of choice: one ring, used by one thread.
//!
//! A table owns every operation from submission to completion, so the kernel's addresses stay valid
//! whatever the caller does; entries carry the number of their place in the table. One more entry
//! reads the bell's descriptor while the owner sleeps, so that one call waits for completions and
//! for wakers alike. `setup.rs` makes the ring, `files.rs` and `arena.rs` hold what is registered with it,
//! `table.rs` the operations in flight.
//!
//! **Invariant:** memory in the table is given back only by its completion. If the ring breaks so
//! that completions cannot be had, the memory is leaked rather than freed under the kernel.

#![expect(unsafe_code, reason = "entries with addresses, and entering the kernel by hand")]

mod arena;
mod files;
mod setup;
mod table;

pub use setup::Refused;

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{self, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use kvd_shm::mapping::Mapping;

use crate::buffer::AlignedBuffer;
use crate::disk::Disk;
use crate::fault::Fault;
use crate::open::Features;
use crate::operation::{Completion, FileId, Operation};
use crate::transfer::{Call, Step, Transfer};
use crate::waker::{Bell, Waker};
use arena::Registered;
use files::Files;
use table::{InFlight, Table};

/// Marks the entry that reads the bell.
const BELL: u64 = u64::MAX;

/// What the bell's descriptor gives.
const BELL_BYTES: u32 = 8;

/// The longest sleep: a time that every kernel takes.
const SLEEP_MAX: Duration = Duration::from_secs(1 << 24);

/// A disk on a ring of the kernel.
pub struct UringDisk {
    // Before everything that the kernel may hold addresses of.
    uring: IoUring,
    is_disabled: bool,
    files: Files,
    arena: Option<Registered>,
    in_flight: ManuallyDrop<InFlightMemory>,
    ended: Vec<Completion>,
    bell: Arc<Bell>,
    bell_is_read: bool,
    depth: usize,
}

/// What the kernel holds addresses of.
#[derive(Debug)]
struct InFlightMemory {
    table: Table,
    bell: AlignedBuffer,
}

impl UringDisk {
    /// Makes a ring for `depth` operations. What could be had besides goes into `features`.
    ///
    /// # Errors
    /// If the kernel, or a filter in front of it, refuses any call that cannot be done without.
    ///
    /// # Panics
    /// If `depth` is zero.
    pub fn new(
        depth: usize,
        arena: Option<Arc<Mapping>>,
        features: &mut Features,
    ) -> Result<Self, Refused> {
        assert!(depth > 0, "a disk that takes no operation");
        // One more for the bell.
        let entries = u32::try_from(depth.saturating_add(1)).unwrap_or(u32::MAX);
        let bell = Bell::new().map_err(setup::refused("eventfd"))?;
        let setup::Ring { uring, is_disabled } = setup::ring(entries, features)?;
        let files = Files::new(&uring, features);
        let arena = match arena.map(|mapping| Registered::new(&uring, mapping)) {
            Some(Ok(registered)) => {
                features.in_force.push("fixed_buffers");
                Some(registered)
            }
            Some(Err(reason)) => {
                features.refused.push(reason);
                None
            }
            None => None,
        };
        let memory = InFlightMemory {
            table: Table::with_room_for(depth),
            bell: AlignedBuffer::zeroed(BELL_BYTES as usize),
        };
        let in_flight = ManuallyDrop::new(memory);
        let (ended, bell_is_read) = (Vec::new(), false);
        Ok(Self { uring, is_disabled, files, arena, in_flight, ended, bell, bell_is_read, depth })
    }

    /// Makes the calling thread the ring's own.
    fn enable(&mut self) -> io::Result<()> {
        if self.is_disabled {
            self.uring.submitter().register_enable_rings()?;
            self.is_disabled = false;
        }
        Ok(())
    }

    /// Queues the next call of an operation that is in the table.
    fn queue(&mut self, place: usize, call: Call) {
        let Self { uring, arena, in_flight, .. } = self;
        let operation = in_flight.table.operation(place);
        let (file, flags) = operation.file.named();
        let entry = match operation.address(call) {
            None => {
                let how = types::FsyncFlags::DATASYNC;
                opcode::Fsync::new(file).flags(how).build()
            }
            Some((address, len)) => {
                let piece = arena.as_ref().and_then(|arena| arena.piece_of(address, call.len));
                match (operation.is_read(), piece) {
                    (true, Some(piece)) => opcode::ReadFixed::new(file, address, len, piece)
                        .offset(call.offset)
                        .build(),
                    (true, None) => {
                        opcode::Read::new(file, address, len).offset(call.offset).build()
                    }
                    (false, Some(piece)) => {
                        let from = address.cast_const();
                        opcode::WriteFixed::new(file, from, len, piece).offset(call.offset).build()
                    }
                    (false, None) => {
                        let from = address.cast_const();
                        opcode::Write::new(file, from, len).offset(call.offset).build()
                    }
                }
            }
        };
        push(uring, &entry.flags(flags).user_data(place as u64));
    }

    /// Has the kernel read the bell, unless it does already.
    fn listen(&mut self) {
        if self.bell_is_read {
            return;
        }
        let to = self.in_flight.bell.address();
        let entry = opcode::Read::new(types::Fd(self.bell.descriptor()), to, BELL_BYTES).build();
        push(&mut self.uring, &entry.user_data(BELL));
        self.bell_is_read = true;
    }

    /// Takes what the kernel has answered.
    fn reap(&mut self) {
        loop {
            let answer = self.uring.completion().next();
            let Some(answer) = answer else { break };
            if answer.user_data() == BELL {
                self.bell_is_read = false;
                continue;
            }
            let place = usize::try_from(answer.user_data()).unwrap_or(usize::MAX);
            let moved = usize::try_from(answer.result());
            let moved = moved.map_err(|_negative| answer.result().saturating_neg());
            match self.in_flight.table.answered(place, moved) {
                Step::Call(call) => self.queue(place, call),
                Step::Ended(result) => {
                    let completion = self.in_flight.table.end(place, result);
                    self.ended.push(completion);
                }
            }
        }
        self.files.let_go(&self.uring);
    }

    /// Submits what is queued, and lets the kernel post what it has finished.
    fn poll(&mut self) -> io::Result<()> {
        let queued = u32::try_from(self.uring.submission().len()).unwrap_or(u32::MAX);
        let flags = io_uring::EnterFlags::GETEVENTS.bits();
        // SAFETY: `queued` entries are in the queue, each with addresses that the table owns; no
        // argument is passed.
        unsafe { self.uring.submitter().enter::<libc::sigset_t>(queued, 0, flags, None) }.map(drop)
    }

    /// Submits what is queued, and sleeps until there is an answer or the time is over.
    fn sleep(&mut self, timeout: Duration) -> io::Result<()> {
        self.listen();
        if !self.bell.fall_asleep() {
            return self.poll();
        }
        let time = Timespec::from(timeout.min(SLEEP_MAX));
        let args = SubmitArgs::new().timespec(&time);
        let entered = self.uring.submitter().submit_with_args(1, &args).map(drop);
        self.bell.get_up();
        entered
    }

    /// Waits until the kernel holds no address of ours.
    fn settle(&mut self) -> io::Result<()> {
        if self.is_disabled && self.in_flight.table.is_empty() {
            return Ok(());
        }
        self.enable()?;
        if self.bell_is_read {
            self.bell.ring()?;
        }
        while self.bell_is_read || !self.in_flight.table.is_empty() {
            let entered = self.uring.submit_and_wait(1);
            self.reap();
            self.ended.clear();
            tolerate(entered.map(drop))?;
        }
        Ok(())
    }
}

impl Disk for UringDisk {
    fn attach(&mut self, file: FileId, handle: File) {
        self.files.attach(&self.uring, file, handle);
    }

    fn detach(&mut self, file: FileId) {
        self.files.detach(&self.uring, file);
    }

    fn submit(&mut self, operation: Operation) -> Result<(), Operation> {
        if self.in_flight() >= self.depth {
            return Err(operation);
        }
        let Some(file) = self.files.find(operation.file()).map(Arc::clone) else {
            let fault = Fault::NotAttached { file: operation.file() };
            self.ended.push(operation.ended(Err(fault), Duration::ZERO));
            return Ok(());
        };
        let transfer = Transfer::of(&operation);
        match transfer.begin() {
            Step::Ended(result) => self.ended.push(operation.ended(result, Duration::ZERO)),
            Step::Call(call) => {
                let submitted = Instant::now();
                let operation = InFlight { operation, file, transfer, submitted };
                let place = self.in_flight.table.insert(operation);
                self.queue(place, call);
            }
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight.table.len().saturating_add(self.ended.len())
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Completion>) -> io::Result<()> {
        self.enable()?;
        self.reap();
        let entered = if !self.ended.is_empty() && self.uring.submission().is_empty() {
            // Something to hand out, nothing to submit: no reason to enter the kernel.
            Ok(())
        } else if !self.ended.is_empty() || timeout.is_zero() {
            self.poll()
        } else {
            self.sleep(timeout)
        };
        self.bell.get_up();
        self.reap();
        done.append(&mut self.ended);
        tolerate(entered)
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }

    fn engine(&self) -> &'static str {
        "uring"
    }

    fn arena_touched(&mut self, bytes: u64) -> u64 {
        self.arena.as_mut().map_or(0, |arena| arena.grow(&self.uring, bytes))
    }

    fn shut_down(self: Box<Self>) {}
}

impl Drop for UringDisk {
    fn drop(&mut self) {
        if self.settle().is_ok() {
            // SAFETY: dropped once, here, and not used after; the kernel is done with all of it.
            unsafe { ManuallyDrop::drop(&mut self.in_flight) };
        }
    }
}

impl std::fmt::Debug for UringDisk {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("UringDisk")
            .field("in_flight", &self.in_flight.table.len())
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

/// A time that is over, a signal, and a kernel that is short of something are reasons to look again.
fn tolerate(entered: io::Result<()>) -> io::Result<()> {
    match entered {
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
            Some(_) | None => Err(error),
        },
        Ok(()) => Ok(()),
    }
}

/// Queues an entry.
///
/// # Panics
/// If the queue is full: it has room for every operation and for the bell.
fn push(uring: &mut IoUring, entry: &squeue::Entry) {
    // SAFETY: addresses in entries belong to the table, or to the bell's buffer, which the disk
    // keeps until the entry has completed.
    let pushed = unsafe { uring.submission().push(entry) };
    assert!(pushed.is_ok(), "a submission queue that is shorter than the table");
}
