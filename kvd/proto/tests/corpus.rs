//! The fuzz targets' checks on the stable toolchain: every file of the seed corpus, and seeded
//! mutations of it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test helper fails by panicking")]

#[path = "../../../tests/fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "a crate of its own for the fuzz targets")]
mod checks;

use std::path::Path;

/// Mutations per file. Raise it, or change the seed, to search longer.
const MUTATIONS: u64 = 400;
const SEED: u64 = 0x6b76_645f_7072_6f74;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 15, "the corpus of {target} is not there");
    files.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// `splitmix64`: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    fn below(&mut self, end: usize) -> usize {
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

    fn mutate(&mut self, body: &mut Vec<u8>, others: &[Vec<u8>]) {
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

fn run(target: &str, check: fn(&[u8])) {
    let files = corpus(target);
    let mut random = Random(SEED);
    for file in &files {
        check(file);
        for _ in 0..MUTATIONS {
            let mut body = file.clone();
            for _ in 0..=random.below(4) {
                random.mutate(&mut body, &files);
            }
            check(&body);
        }
    }
}

#[test]
fn protocol_1_requests() {
    run("v1_request", checks::v1_request);
}

#[test]
fn protocol_2_requests() {
    run("v2_request", checks::v2_request);
}

#[test]
fn protocol_2_replies() {
    run("v2_reply", checks::v2_reply);
}

#[test]
fn mutations_reach_both_outcomes() {
    let files = corpus("v1_request");
    let mut random = Random(SEED);
    let (mut served, mut closed, mut told) = (0, 0, 0);
    for _ in 0..4000 {
        let mut body = files[random.below(files.len())].clone();
        random.mutate(&mut body, &files);
        match kvd_proto::v1::Request::decode(&body) {
            Ok(_) => served += 1,
            Err(rejected) if rejected.closes() => closed += 1,
            Err(_) => told += 1,
        }
    }
    assert!(served > 100 && closed > 100 && told > 100, "{served} {closed} {told}");
}
