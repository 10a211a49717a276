//! A block that was fetched: its bytes in place, held by a lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kvd_proto::ids::LeaseId;
use kvd_shm::mapping::{ArenaSlice, ForeignMut};

use crate::attachment::Attachment;
use crate::client::Core;

/// The bytes of one block, in the arena. While the view lives, the daemon neither moves nor reuses
/// them, even if the key is overwritten, evicted or cleared meanwhile.
///
/// The bytes are shared memory. A well-behaved process never writes to a committed block, but one
/// that misbehaves can; therefore they can be copied out, or reached through a pointer, but not
/// borrowed as a slice.
///
/// A view stays readable when the daemon stops or restarts: the old arena stays mapped until its
/// last view is dropped. If the next daemon has the same arena, the lease goes on there. Dropping gives the lease back without waiting for the daemon.
#[derive(Debug)]
pub struct View {
    bytes: ArenaSlice,
    lease: LeaseId,
    batch: Arc<Batch>,
}

/// What the views of one answer share.
#[derive(Debug)]
pub(crate) struct Batch {
    core: Arc<Core>,
    attachment: Arc<Attachment>,
    /// Views that have not been dropped.
    alive: AtomicUsize,
}

impl Batch {
    pub(crate) fn new(core: Arc<Core>, attachment: Arc<Attachment>) -> Arc<Self> {
        Arc::new(Self { core, attachment, alive: AtomicUsize::new(0) })
    }

    pub(crate) fn view(self: &Arc<Self>, bytes: ArenaSlice, lease: LeaseId) -> View {
        self.alive.fetch_add(1, Ordering::Relaxed);
        View { bytes, lease, batch: Arc::clone(self) }
    }
}

impl View {
    pub(crate) fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Length of the block in bytes. Blocks may be empty.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the block is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Copies the block out, past the cache if it is large.
    ///
    /// # Panics
    /// If `to` has another length than the block.
    pub fn copy_to(&self, to: &mut [u8]) {
        self.bytes.copy_to(to);
    }

    /// Copies a part of the block out, beginning `at` bytes from its start, as much as `to` takes.
    ///
    /// # Panics
    /// If the part goes past the end of the block.
    pub fn copy_part_to(&self, at: usize, to: &ForeignMut<'_>) {
        self.bytes.copy_part_to(at, to);
    }

    /// The block as a vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.to_vec()
    }

    /// Where the bytes are in this process, for devices and foreign languages. Valid while the view
    /// lives; see the type on why it must not become a reference.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let Batch { core, attachment, alive } = self.batch.as_ref();
        // Relaxed: the count orders nothing, it only says when a frame is worth sending.
        let last = alive.fetch_sub(1, Ordering::Relaxed) == 1;
        if attachment.returns.add_lease(attachment.connection(), self.lease, last) {
            core.give_back(attachment);
        }
    }
}
