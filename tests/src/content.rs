//! Bytes that follow from a key: whoever reads a block can tell by itself whether it is the right one. And the seeded
//! numbers that they are made of, so that a failure can be had again.

/// A stream of numbers that follows from its seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("a usize has at most 64 bits");
        usize::try_from(self.next_u64() % bound).expect("below a usize")
    }

    /// Any bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// The `len` bytes that belong to `key`.
#[must_use]
pub fn bytes_of(key: &[u8], len: usize) -> Vec<u8> {
    // FNV-1a: any mixing will do, as long as keys differ.
    let seed = key.iter().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    Random::seeded(seed).bytes(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_follow_from_the_key_and_nothing_else() {
        assert_eq!(bytes_of(b"a", 100), bytes_of(b"a", 100));
        assert_ne!(bytes_of(b"a", 100), bytes_of(b"b", 100));
        assert_eq!(bytes_of(b"a", 100)[..9], bytes_of(b"a", 9));
        assert!(bytes_of(b"", 0).is_empty());
    }

    #[test]
    fn numbers_follow_from_the_seed() {
        let numbers = |seed| {
            let mut random = Random::seeded(seed);
            [(); 64].map(|()| random.below(10))
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        assert!(numbers(3).iter().all(|number| *number < 10));
    }
}
