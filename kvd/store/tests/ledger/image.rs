//! A ledger in plain memory, and every moment between two of its bytes.

use kvd_store::{LedgerHeader, LedgerLayout, LedgerWrites};

pub(crate) const LAYOUT: LedgerLayout =
    LedgerLayout { sessions: 16, rights: 64, reads: 8, namespaces: 4, rows: 48, tails: 64 };

pub(crate) fn fresh(arena_bytes: u64, layout: LedgerLayout) -> Vec<u8> {
    let header = LedgerHeader { arena_id: [7; 16], arena_bytes, epoch: 1, layout };
    let mut image = header.encode();
    image.resize(usize::try_from(layout.bytes()).unwrap(), 0);
    image
}

/// Single words, in order: what is stored at once.
pub(crate) fn words(writes: &LedgerWrites) -> Vec<(usize, u64)> {
    let each = |write: kvd_store::LedgerWrite<'_>| {
        let offset = usize::try_from(write.offset).unwrap();
        let words = write.words.iter().enumerate();
        words.map(|(index, &word)| (offset + 8 * index, word)).collect::<Vec<_>>()
    };
    writes.iter().flat_map(each).collect()
}

/// Stores the first so many bytes of a word.
pub(crate) fn store(image: &mut [u8], (offset, word): (usize, u64), bytes: usize) {
    image[offset..offset + bytes].copy_from_slice(&word.to_le_bytes()[..bytes]);
}

pub(crate) fn store_all(image: &mut [u8], writes: &LedgerWrites) {
    for word in words(writes) {
        store(image, word, 8);
    }
}
