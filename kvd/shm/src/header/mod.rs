//! The 16 bytes right before each payload, written for protocol-1 readers and never believed here.
//!
//! | bytes before the payload | content, little-endian |
//! |---|---|
//! | 16 to 13 | version: odd while the payload is written, even once it is stable |
//! | 12 to 9 | payload length in bytes |
//! | 8 to 1 | reserved, not written |
//!
//! A protocol-1 reader believes a payload if it sees the even version that the daemon named in its
//! reply. So the writer's order is: odd version, payload, length, even version, and neither the
//! payload may become visible before the odd version nor after the even one. [`HeaderWords`] holds
//! that order alone, on two atomics, so that `tests/loom_header.rs` can try every interleaving of
//! it; [`write_odd`] and [`publish`] apply it to a mapping.
//!
//! **Invariant:** no decision of the daemon reads a header.

#[cfg(not(loom))]
mod placed;

#[cfg(not(loom))]
pub use placed::{publish, read, write_odd};

use crate::sync::{AtomicU32, Ordering, fence};

/// Bytes of a header; the payload starts right behind it.
pub const HEADER_BYTES: u64 = 16;

/// A header as it was found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// Odd: being written. Even: stable.
    pub version: u32,
    /// Payload length in bytes.
    pub len: u32,
}

/// The two words of a header. One writer at a time; any number of readers.
#[derive(Clone, Copy, Debug)]
pub struct HeaderWords<'a> {
    version: &'a AtomicU32,
    len: &'a AtomicU32,
}

impl<'a> HeaderWords<'a> {
    /// The words, wherever they are.
    #[must_use]
    pub fn new(version: &'a AtomicU32, len: &'a AtomicU32) -> Self {
        Self { version, len }
    }

    /// Says that the payload is about to change.
    ///
    /// # Panics
    /// If `version` is even.
    pub fn write_odd(self, version: u32) {
        assert!(version % 2 == 1, "version {version} means stable");
        self.version.store(version.to_le(), Ordering::Relaxed);
        // Pairs with the acquire fence of a reader between its payload loads and its second look
        // at the version: whoever saw a byte that is stored after this fence sees the odd version.
        fence(Ordering::Release);
    }

    /// Says that the payload is complete.
    ///
    /// # Panics
    /// If `version` is odd.
    pub fn publish(self, version: u32, len: u32) {
        assert!(version.is_multiple_of(2), "version {version} means being written");
        self.len.store(len.to_le(), Ordering::Relaxed);
        // Pairs with the acquire load of the version in a reader (`read`): whoever sees the even
        // version sees the length and every payload byte.
        self.version.store(version.to_le(), Ordering::Release);
    }

    /// Looks at the header. Payload loads that follow are not older than this look.
    #[must_use]
    pub fn read(self) -> Header {
        // Pairs with the release store in `publish`.
        let version = u32::from_le(self.version.load(Ordering::Acquire));
        Header { version, len: u32::from_le(self.len.load(Ordering::Relaxed)) }
    }

    /// Whether the version is still the one that was seen before the payload was read: only then
    /// are the bytes that were read the bytes that were published.
    #[must_use]
    pub fn unchanged_since(self, seen: Header) -> bool {
        // Pairs with the release fence in `write_odd`: our payload loads may not sink below this.
        fence(Ordering::Acquire);
        u32::from_le(self.version.load(Ordering::Relaxed)) == seen.version
    }
}
