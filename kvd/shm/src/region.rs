//! One shared mapping of a file: where it is, how long it is, and that it goes away with its owner.

#![expect(unsafe_code, reason = "mmap and munmap")]

use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::memory_file::{HUGE_PAGE_BYTES, is_from_pool};

/// A mapped range whose first byte is the file's first byte, 2 MiB-aligned.
///
/// The alignment is what lets the kernel map 2 MiB pages in every process, and collapse small
/// pages into them.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// Unmaps the range, and the unused ends around it, when the region goes.
    _reserved: Reservation,
}

// SAFETY: a region is a range of addresses that any thread may use; who may write what in it is
// settled by the callers of `Mapping`, byte by byte, with accesses that tolerate other writers.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out an address and a length and nothing else.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the first `bytes` bytes of `file`, shared with everybody who maps it.
    ///
    /// # Panics
    /// If `bytes` is zero.
    pub(crate) fn map(
        file: BorrowedFd<'_>,
        bytes: usize,
        protection: ProtFlags,
    ) -> Result<Self, Errno> {
        let length = NonZeroUsize::new(bytes);
        let Some(length) = length else { panic!("a mapping of zero bytes") };
        if is_from_pool(file) {
            return Self::map_from_pool(file, length, protection);
        }
        let reserved = Reservation::new(bytes.checked_add(HUGE_PAGE_BYTES).ok_or(Errno::ENOMEM)?)?;
        let base = reserved.first_aligned();
        let address = base.addr();
        // SAFETY: the addresses `base .. base + bytes` lie inside our own reservation (it is one
        // huge page longer than `bytes`, and `base` is less than one huge page into it), which
        // nobody else uses, so replacing them hurts nobody.
        let mapped = unsafe {
            mmap(
                Some(address),
                length,
                protection,
                MapFlags::MAP_SHARED | MapFlags::MAP_FIXED,
                file,
                0,
            )
        };
        match mapped {
            Ok(_same) => Ok(Self { base, bytes, _reserved: reserved }),
            Err(errno) => {
                // A failed fixed mapping may have removed part of the reservation, where another
                // thread may have mapped something since: the reservation is given up, not unmapped.
                reserved.abandon();
                Err(errno)
            }
        }
    }

    /// The kernel places mappings of the pool on huge page boundaries by itself, and fails here,
    /// not at the first touch, when the pool has no room.
    fn map_from_pool(
        file: BorrowedFd<'_>,
        length: NonZeroUsize,
        protection: ProtFlags,
    ) -> Result<Self, Errno> {
        // SAFETY: no address is asked for, so the kernel takes unused ones.
        let mapped = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0)? };
        let base = mapped.cast();
        let reserved = Reservation { start: base, bytes: length.get() };
        Ok(Self { base, bytes: length.get(), _reserved: reserved })
    }

    /// The address of the first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many bytes are mapped.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the byte at `start`, of which `len` are about to be used.
    ///
    /// # Panics
    /// If `start .. start + len` is not inside the mapping.
    pub(crate) fn at(&self, start: usize, len: usize) -> NonNull<u8> {
        assert!(
            start <= self.bytes && len <= self.bytes - start,
            "range {start} + {len} leaves the mapping of {} bytes",
            self.bytes
        );
        // SAFETY: `start <= bytes`, so the result is inside the mapping or one past its end, and
        // a mapping never spans more than `isize::MAX` bytes.
        unsafe { self.base.add(start) }
    }
}

/// Addresses that are ours, whatever is mapped there now.
#[derive(Debug)]
struct Reservation {
    start: NonNull<u8>,
    bytes: usize,
}

impl Reservation {
    /// Addresses without memory behind them: any use of them faults.
    fn new(bytes: usize) -> Result<Self, Errno> {
        let length = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: no address is asked for, so the kernel takes unused ones.
        let start = unsafe { mmap_anonymous(None, length, ProtFlags::PROT_NONE, flags)? };
        Ok(Self { start: start.cast(), bytes })
    }

    fn first_aligned(&self) -> NonNull<u8> {
        let skip = self.start.addr().get().wrapping_neg() % HUGE_PAGE_BYTES;
        // SAFETY: `skip` is less than one huge page, and every reservation that is aligned here is
        // at least that long.
        unsafe { self.start.add(skip) }
    }

    fn abandon(self) {
        let _never_dropped = ManuallyDrop::new(self);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: these addresses are ours since `new` or `map_from_pool`, and everything that
        // points into them borrows or owns the region that owns `self`.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own range: {unmapped:?}");
    }
}
