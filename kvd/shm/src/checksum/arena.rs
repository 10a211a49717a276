//! Checksums of arena bytes, and of bytes on their way into and out of the arena.
//!
//! No slice of arena bytes may be made (see [`crate::mapping`]), so they pass through a small buffer of
//! our own that stays in the first-level cache. What is summed is therefore exactly what was copied,
//! even while somebody else writes the same bytes.

use std::cell::RefCell;

use super::Checksum;
use crate::copy::Method;
use crate::mapping::{ArenaSlice, Foreign, Mapping};

/// Bytes that are copied and summed at a time. They fit the first-level cache of current processors; with half as
/// many, the copies of the arena's cold bytes lose a tenth, with an eighth two fifths.
const PIECE_BYTES: usize = 32 << 10;

/// A buffer that begins on a cache line, as the copies like it.
#[repr(align(64))]
struct Piece([u8; PIECE_BYTES]);

thread_local! {
    /// Kept from call to call: clearing it anew would cost as much as a small copy.
    static PIECE: RefCell<Box<Piece>> = RefCell::new(Box::new(Piece([0; PIECE_BYTES])));
}

impl Mapping {
    /// Adds `len` bytes of the arena to `checksum`. If another process writes them meanwhile, the
    /// result is that of any mix of old and new bytes.
    pub fn sum(&self, offset: u64, len: usize, checksum: &mut Checksum) {
        self.readable(offset, len);
        PIECE.with_borrow_mut(|piece| {
            for (at, taken) in pieces(len) {
                let piece = &mut piece.0[..taken];
                self.copy_out(offset + at as u64, piece);
                checksum.update(piece);
            }
        });
    }

    /// As [`Mapping::copy_in`], and adds the bytes to `checksum`.
    pub fn copy_in_summed(&self, offset: u64, from: &[u8], checksum: &mut Checksum) {
        self.writable(offset, from.len());
        // The whole copy's length decides: its pieces are part of one long stream.
        let method = Method::to_copy_in(from.len());
        for (at, taken) in pieces(from.len()) {
            // The sum leaves the piece in the cache for the copy. Nobody else may write a slice.
            let piece = &from[at..at + taken];
            checksum.update(piece);
            self.copy_in_by(method, offset + at as u64, piece);
        }
    }

    /// As [`Mapping::copy_in_foreign`], and adds the bytes that were copied to `checksum`.
    pub fn copy_in_foreign_summed(&self, offset: u64, from: Foreign<'_>, checksum: &mut Checksum) {
        self.writable(offset, from.len());
        if self.overlaps(from) {
            // Piece by piece, the copy would read what it has just written.
            self.copy_in_foreign(offset, from);
            self.sum(offset, from.len(), checksum);
            return;
        }
        let method = Method::to_copy_in(from.len());
        PIECE.with_borrow_mut(|piece| {
            for (at, taken) in pieces(from.len()) {
                let piece = &mut piece.0[..taken];
                from.copy_part_to(at, piece);
                checksum.update(piece);
                self.copy_in_by(method, offset + at as u64, piece);
            }
        });
    }
}

impl ArenaSlice {
    /// Adds these bytes to `checksum`, as [`Mapping::sum`] does.
    pub fn sum(&self, checksum: &mut Checksum) {
        self.mapping().sum(self.offset(), self.len(), checksum);
    }

    /// The checksum of the block with this payload and the key `key`.
    #[must_use]
    pub fn checksum(&self, key: &[u8]) -> u64 {
        let mut checksum = Checksum::new();
        self.sum(&mut checksum);
        checksum.update(key);
        checksum.value()
    }
}

/// Where the pieces of `len` bytes start, and how long they are.
fn pieces(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(PIECE_BYTES).map(move |at| (at, PIECE_BYTES.min(len - at)))
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "vouches for arena memory as a source")]

    use super::*;
    use crate::arena::{Arena, ArenaConfig};
    use crate::checksum::of_block;
    use crate::numa::NumaPolicy;

    /// Around the pieces, and around the size from which copies go past the cache.
    const LENS: [usize; 8] =
        [0, 1, 63, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, 200_001];

    fn arena() -> Arena {
        let numa = NumaPolicy::Interleave;
        let config = ArenaConfig { bytes: 1 << 20, hugetlb: false, numa, pin: false };
        Arena::create(config).unwrap()
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0_u8..251).cycle().take(len).collect()
    }

    #[test]
    fn every_way_sums_what_it_copies() {
        let arena = arena();
        let mapping = arena.mapping();
        for len in LENS {
            let wanted = pattern(len);
            let answer = of_block(&wanted, b"");
            let (mut copied, mut foreign) = (Checksum::new(), Checksum::new());
            mapping.copy_in_summed(77, &wanted, &mut copied);
            assert!(mapping.slice(77, len).to_vec() == wanted, "{len}");
            mapping.copy_in_foreign_summed(300_000, wanted.as_slice().into(), &mut foreign);
            assert!(mapping.slice(300_000, len).to_vec() == wanted, "{len}");
            assert_eq!([copied.value(), foreign.value()], [answer; 2], "{len}");
            assert_eq!(mapping.slice(77, len).checksum(b""), answer, "{len}");
            let with_key = mapping.slice(77, len).checksum(b"key");
            assert_eq!(with_key, of_block(&wanted, b"key"), "{len}");
        }
    }

    #[test]
    fn one_changed_byte_is_noticed_wherever_it_is() {
        let (arena, wanted) = (arena(), pattern(100_000));
        let mapping = arena.mapping();
        let mut checksum = Checksum::new();
        mapping.copy_in_summed(0, &wanted, &mut checksum);
        for at in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 99_999] {
            mapping.copy_in(at as u64, &[wanted[at] ^ 1]);
            assert_ne!(mapping.slice(0, wanted.len()).checksum(b""), checksum.value(), "{at}");
            mapping.copy_in(at as u64, &[wanted[at]]);
        }
        assert_eq!(mapping.slice(0, wanted.len()).checksum(b""), checksum.value());
    }

    #[test]
    fn arena_memory_may_be_the_source_of_its_own_copy() {
        let (arena, wanted) = (arena(), pattern(100_000));
        let mapping = arena.mapping();
        for (from, to) in [(1000, 1700), (1700, 1000), (0, 500_000)] {
            mapping.copy_in(from, &wanted);
            let block = mapping.slice(from, wanted.len());
            // SAFETY: `block` keeps its bytes mapped.
            let source = unsafe { Foreign::new(block.as_ptr(), wanted.len()) };
            let mut checksum = Checksum::new();
            mapping.copy_in_foreign_summed(to, source, &mut checksum);
            assert_eq!(checksum.value(), of_block(&wanted, b""), "{from} to {to}");
            assert!(mapping.slice(to, wanted.len()).to_vec() == wanted, "{from} to {to}");
        }
    }

    #[test]
    #[should_panic(expected = "leaves the mapping")]
    fn a_range_outside_the_arena_is_refused_before_anything_is_read() {
        arena().mapping().sum((1 << 20) - 1, 2, &mut Checksum::new());
    }
}
