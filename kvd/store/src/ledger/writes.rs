//! What is to be stored into the ledger, in order: words of 8 bytes, so that a killed process leaves
//! each of them whole, old or new.

/// Bits of a record's first word that say how many words follow.
const LEN_BITS: u32 = 8;

/// Words to store, in this order, each with one store, **before** the store is unlocked and before
/// [`crate::Effects::headers`]. Keeps its memory from input to input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerWrites {
    /// For each write: where, with the number of words in the low bits; then the words.
    log: Vec<u64>,
}

/// Some words that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerWrite<'a> {
    /// Where the first one goes, a multiple of 8.
    pub offset: u64,
    /// The words, to be stored from the first to the last, little-endian.
    pub words: &'a [u64],
}

impl LedgerWrites {
    /// Whether there is nothing to store.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// The writes, in their order.
    pub fn iter(&self) -> impl Iterator<Item = LedgerWrite<'_>> {
        let mut rest = self.log.as_slice();
        core::iter::from_fn(move || {
            let (&first, after) = rest.split_first()?;
            let (words, after) = after.split_at((first & ((1 << LEN_BITS) - 1)) as usize);
            rest = after;
            Some(LedgerWrite { offset: first >> LEN_BITS, words })
        })
    }

    pub(crate) fn clear(&mut self) {
        self.log.clear();
    }

    pub(super) fn push<const N: usize>(&mut self, offset: u64, words: [u64; N]) {
        const { assert!(N > 0 && N < 1 << LEN_BITS) };
        self.log.push(offset << LEN_BITS | N as u64);
        self.log.extend_from_slice(&words);
    }
}

/// The check of something small: of its words, and of where it is. Not against malice, which has no
/// way to these bytes: against damage.
pub(super) const fn check<const N: usize>(place: u64, words: [u64; N]) -> u64 {
    let mut sum = place ^ 0x6b76_646c_6564_6772;
    let mut at = 0;
    while at < N {
        // Short, because every hit pays for one: no two values of a word give the same sum.
        sum = (sum ^ words[at]).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        at += 1;
    }
    mix(sum)
}

/// The finalizer of splitmix64: every bit of the result depends on every bit given.
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::{LedgerWrite, LedgerWrites, check};

    #[test]
    fn writes_come_back_in_their_order() {
        let mut writes = LedgerWrites::default();
        assert!(writes.is_empty());
        writes.push(8, [1, 2, 3]);
        writes.push(1 << 50, [4]);
        let all: Vec<LedgerWrite<'_>> = writes.iter().collect();
        assert_eq!(all[0], LedgerWrite { offset: 8, words: &[1, 2, 3] });
        assert_eq!(all[1], LedgerWrite { offset: 1 << 50, words: &[4] });
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn a_check_depends_on_every_word_and_on_the_place() {
        let sum = check(1, [2, 3]);
        assert!(sum != check(0, [2, 3]) && sum != check(1, [3, 2]) && sum != check(1, [2, 3, 0]));
        assert_eq!(sum, check(1, [2, 3]));
    }
}
