//! Bytes that are a function of their key: whoever reads them can tell right from wrong by computing them again.
//!
//! The bytes are pseudo-random, so they neither compress nor repeat: copies of zeros are up to twice as fast as copies
//! of real data, and a block that was swapped, shifted or torn never looks like the right one.

/// The endless byte string that belongs to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    seed: u64,
}

/// Bytes of one word of content.
pub const WORD_BYTES: usize = size_of::<u64>();

/// 2^64 divided by the golden ratio: the step between the states of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Content {
    /// The content of a key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let mut seed = STEP ^ key.len() as u64;
        for chunk in key.chunks(WORD_BYTES) {
            let mut word = [0; WORD_BYTES];
            word[..chunk.len()].copy_from_slice(chunk);
            seed = mix(seed ^ u64::from_le_bytes(word));
        }
        Self { seed }
    }

    /// Its word at `index`: bytes `8 * index ..` in little-endian order. The generator is SplitMix64, which can be
    /// entered anywhere.
    #[must_use]
    pub fn word(self, index: usize) -> u64 {
        mix(self.seed.wrapping_add(STEP.wrapping_mul(index as u64)))
    }

    /// Writes its first bytes.
    pub fn fill(self, to: &mut [u8]) {
        let (words, tail) = to.as_chunks_mut::<WORD_BYTES>();
        let whole = words.len();
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.word(index).to_le_bytes();
        }
        let last = self.word(whole).to_le_bytes();
        tail.copy_from_slice(&last[..tail.len()]);
    }

    /// Where `bytes` first differ from its beginning, to the word; `None` if they are right.
    #[must_use]
    pub fn first_difference(self, bytes: &[u8]) -> Option<usize> {
        let (words, tail) = bytes.as_chunks::<WORD_BYTES>();
        let whole = words.len();
        let wrong =
            |(index, word): (usize, &[u8; WORD_BYTES])| *word != self.word(index).to_le_bytes();
        if let Some(index) = words.iter().enumerate().position(wrong) {
            return Some(index * WORD_BYTES);
        }
        let last = self.word(whole).to_le_bytes();
        (tail != &last[..tail.len()]).then_some(whole * WORD_BYTES)
    }
}

/// The output function of SplitMix64.
fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(key: &[u8], len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Content::of(key).fill(&mut bytes);
        bytes
    }

    #[test]
    fn one_flipped_bit_is_found_wherever_it_is() {
        for len in [1, 7, 8, 9, 100] {
            let right = filled(b"k", len);
            assert_eq!(Content::of(b"k").first_difference(&right), None);
            for bit in 0..8 * len {
                let mut wrong = right.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                let found = Content::of(b"k").first_difference(&wrong);
                assert_eq!(found, Some(bit / 64 * 8), "bit {bit} of {len} bytes");
            }
        }
    }

    #[test]
    fn other_keys_and_shifted_bytes_are_wrong() {
        let right = filled(b"one", 4096);
        assert!(Content::of(b"two").first_difference(&right).is_some());
        assert!(Content::of(b"one\0").first_difference(&right).is_some());
        assert!(Content::of(b"one").first_difference(&right[8..]).is_some());
    }

    #[test]
    fn every_byte_value_is_about_as_frequent_as_any_other() {
        let mut counts = [0_u32; 256];
        for byte in filled(b"k", 256 << 10) {
            counts[usize::from(byte)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1250).contains(count)), "{counts:?}");
    }
}
