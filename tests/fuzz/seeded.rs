//! A short run of a fuzz target without a fuzzer: the seed corpus and mutations of it, the same ones
//! every time. Part of tests, see `Cargo.toml`.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use std::path::Path;

/// Change it to search elsewhere.
pub(crate) const SEED: u64 = 0x6b76_645f_7072_6f74;

/// The seeds of a target.
pub(crate) fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 15, "the corpus of {target} is not there");
    files.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// `splitmix64`: small, and the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap()
    }

    fn byte(&mut self) -> u8 {
        // Markers of containers, lengths and integers are what mutations should meet often.
        const TELLING: [u8; 24] = [
            0, 1, 0x7f, 0x80, 0x81, 0x8f, 0x90, 0x91, 0xa0, 0xa1, 0xbf, 0xc0, 0xc1, 0xc4, 0xc6,
            0xc7, 0xca, 0xcb, 0xcf, 0xd3, 0xd9, 0xdd, 0xdf, 0xff,
        ];
        let raw = self.next().to_le_bytes()[0];
        if raw.is_multiple_of(2) { TELLING[self.below(TELLING.len())] } else { raw }
    }

    pub(crate) fn mutate(&mut self, body: &mut Vec<u8>, others: &[Vec<u8>]) {
        let at = self.below(body.len());
        match self.below(6) {
            0 if !body.is_empty() => body[at] = self.byte(),
            1 if !body.is_empty() => body[at] ^= 1 << self.below(8),
            2 => body.truncate(at),
            3 => {
                let byte = self.byte();
                body.insert(at, byte);
            }
            4 => {
                let end = body.len().min(at + self.below(9));
                body.drain(at..end);
            }
            _ => {
                let other = &others[self.below(others.len())];
                let from = self.below(other.len());
                body.truncate(at);
                body.extend_from_slice(&other[from..]);
            }
        }
    }
}

/// Checks every seed, and so many mutations of each.
pub(crate) fn run(target: &str, mutations: u64, check: fn(&[u8])) {
    let files = corpus(target);
    let mut random = Random(SEED);
    for file in &files {
        check(file);
        for _ in 0..mutations {
            let mut body = file.clone();
            for _ in 0..=random.below(4) {
                random.mutate(&mut body, &files);
            }
            check(&body);
        }
    }
}
