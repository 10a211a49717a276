//! Numbers from a seed, in streams that do not shift one another.

/// One stream (the splitmix64 generator: 64 bits of state, every seed is good).
#[derive(Clone, Debug)]
pub(super) struct Stream {
    state: u64,
}

impl Stream {
    /// The stream of that name (any number) for the seed.
    pub(super) fn new(seed: u64, name: u64) -> Self {
        let mut stream = Self { state: seed ^ name.wrapping_mul(0xd134_2543_de82_ef95) };
        // The first draws of close seeds are far apart, the states are not: mix once.
        stream.state = stream.next();
        stream
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// As [`Self::below`], for places in memory.
    pub(super) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap_or(0)
    }

    /// True `per_million` times in a million. Draws in any case, so that a changed rate does not
    /// shift what comes after.
    pub(super) fn happens(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, name| {
            let mut stream = Stream::new(seed, name);
            (0..8).map(|_| stream.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn rates_are_kept() {
        let mut stream = Stream::new(7, 7);
        let hits = (0..100_000).filter(|_| stream.happens(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !stream.happens(0)));
        assert!((0..1000).all(|_| stream.happens(1_000_000)));
    }
}
