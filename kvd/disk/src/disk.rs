//! The contract that every engine keeps.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::time::Duration;

use crate::operation::{Completion, FileId, Operation};
use crate::waker::Waker;

/// A bounded queue of operations on attached files.
///
/// One thread owns a disk: it submits, waits and reaps. The value may be handed to that thread, but
/// not on to another one after its first wait: the ring belongs to the thread that first waited, and
/// a wait of another one fails. Everybody else only holds a [`Waker`].
///
/// Operations may be carried out and completed in any order. A sync covers the writes of the same
/// file whose completions were reaped before the sync was submitted, and nothing else.
///
/// Dropping a disk waits for all operations in flight and gives their memory back to nobody: it is
/// freed, or in the case of the arena no longer held.
pub trait Disk: Send + Debug {
    /// Makes a file known. Its flags decide whether I/O is direct; then offsets, lengths and memory
    /// must be aligned, or the operation ends in a fault.
    ///
    /// # Panics
    /// If the id is attached already.
    fn attach(&mut self, file: FileId, handle: File);

    /// Forgets a file. It is closed when its last operation has ended; those in flight go on.
    /// Unknown ids are ignored.
    fn detach(&mut self, file: FileId);

    /// Takes an operation, or gives it back when [`Self::depth`] operations are in flight. An
    /// operation on a file that is not attached ends in [`crate::Fault::NotAttached`]. The operation may
    /// not start before the next [`Self::wait`].
    ///
    /// # Errors
    /// The operation itself, if the queue is full.
    fn submit(&mut self, operation: Operation) -> Result<(), Operation>;

    /// How many operations were taken and not yet reaped.
    fn in_flight(&self) -> usize;

    /// How many operations may be in flight.
    fn depth(&self) -> usize;

    /// Starts what was submitted, then waits until at least one operation has ended, a [`Waker`]
    /// was used, or the time is over, whichever comes first, and appends all that ended. A time
    /// of zero does not wait. A wake from before the call counts, once. May return early with
    /// nothing.
    ///
    /// # Errors
    /// If the engine itself is broken (out of kernel memory, a closed ring); operations stay in flight,
    /// and the call may be repeated.
    fn wait(&mut self, timeout: Duration, done: &mut Vec<Completion>) -> io::Result<()>;

    /// Something that interrupts [`Self::wait`] from any thread; costs no system call while the owner
    /// of the disk is not waiting.
    fn waker(&self) -> Waker;

    /// `"uring"`, `"blocking"` or `"sim"`, for logs and metrics.
    fn engine(&self) -> &'static str;

    /// Says that the first `bytes` of the arena given at opening have memory behind them, so that
    /// an engine that profits from it may pin and register them with the kernel. Call it from the owning
    /// thread, as often as more was touched. Returns how many bytes are registered now; 0 is
    /// no trouble, just the plain way.
    fn arena_touched(&mut self, bytes: u64) -> u64;

    /// Waits for all operations in flight, drops their completions and closes the files.
    fn shut_down(self: Box<Self>);
}
