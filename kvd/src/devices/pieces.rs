//! Where a block lies: its range in the line of all containers, cut into pieces that one operation
//! can move.

use kvd_disk::FileId;
use kvd_store::Half;

/// Offsets and lengths on a device are multiples of this.
pub const BLOCK_BYTES: u64 = 4096;
/// Most bytes of one operation. Larger ones gain nothing, and a read would wait longer behind each.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Number of the file of a journal.
#[must_use]
pub const fn journal_file(half: Half) -> FileId {
    match half {
        Half::A => FileId(0),
        Half::B => FileId(1),
    }
}

/// Number of the file of a snapshot.
#[must_use]
pub const fn snapshot_file(half: Half) -> FileId {
    match half {
        Half::A => FileId(2),
        Half::B => FileId(3),
    }
}

/// Number of the file of a container.
#[must_use]
pub const fn container_file(number: u32) -> FileId {
    FileId(number + 4)
}

/// A part of a block in one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The container.
    pub file: FileId,
    /// Where in the container.
    pub offset: u64,
    /// Where in the block.
    pub at: usize,
    /// How many bytes, a multiple of 4096.
    pub len: usize,
}

/// The pieces of a block of `len_bytes` that begins at `offset` of the line of containers, padding
/// up to whole blocks included.
pub fn pieces(
    offset: u64,
    len_bytes: u32,
    container_bytes: u64,
) -> impl Iterator<Item = Piece> + use<> {
    let end = offset + u64::from(len_bytes).next_multiple_of(BLOCK_BYTES);
    let mut next = offset;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let (container, inside) = (next / container_bytes, next % container_bytes);
        let len = (end - next).min(container_bytes - inside).min(PIECE_BYTES);
        let piece = Piece {
            file: container_file(u32::try_from(container).unwrap_or(u32::MAX - 4)),
            offset: inside,
            at: usize::try_from(next - offset).unwrap_or(usize::MAX),
            len: usize::try_from(len).unwrap_or(usize::MAX),
        };
        next += len;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_block_may_cross_from_one_container_into_the_next() {
        let found: Vec<Piece> = pieces(12_288, 9_000, 16_384).collect();
        let wanted = [
            Piece { file: container_file(0), offset: 12_288, at: 0, len: 4096 },
            Piece { file: container_file(1), offset: 0, at: 4096, len: 8192 },
        ];
        assert_eq!(found, wanted);
        assert_eq!(pieces(4096, 0, 16_384).count(), 0);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_padded_block_once(
            block in 0_u64..10_000,
            len_bytes in 1_u32..(64 << 20),
            container_blocks in 1_u64..5_000,
        ) {
            let container_bytes = container_blocks * BLOCK_BYTES;
            let offset = block * BLOCK_BYTES;
            let mut at = 0;
            for piece in pieces(offset, len_bytes, container_bytes) {
                prop_assert_eq!(piece.at, at);
                prop_assert!(piece.len as u64 <= PIECE_BYTES && piece.len > 0);
                prop_assert!(piece.offset + piece.len as u64 <= container_bytes);
                prop_assert!((piece.len as u64).is_multiple_of(BLOCK_BYTES));
                let line = u64::from(piece.file.0 - 4) * container_bytes + piece.offset;
                prop_assert_eq!(line, offset + at as u64);
                at += piece.len;
            }
            prop_assert_eq!(at as u64, u64::from(len_bytes).next_multiple_of(BLOCK_BYTES));
        }
    }
}
