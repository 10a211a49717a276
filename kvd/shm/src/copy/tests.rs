//! Every way to copy, at every alignment, against the language's own copy; the bytes around the
//! target must not change.

#![expect(unsafe_code, reason = "calls the copies")]

use proptest::prelude::*;

use super::{NON_TEMPORAL_MIN, words};

type Copy = unsafe fn(*mut u8, *const u8, usize);

const MARGIN: usize = 300;

fn every_copy() -> Vec<(&'static str, Copy)> {
    let mut all: Vec<(&'static str, Copy)> = vec![("chosen", super::copy), ("words", words::copy)];
    #[cfg(target_arch = "x86_64")]
    all.extend(super::x86::every_copy());
    all
}

/// Bytes that differ from their neighbours and from the neighbours of the target.
fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|index| (index % 251).to_le_bytes()[0] ^ salt)
        .collect()
}

fn check(name: &str, copy: Copy, len: usize, from_skew: usize, to_skew: usize) {
    let source = pattern(len + 2 * MARGIN, 0x5a);
    let mut target = pattern(len + 2 * MARGIN, 0xc3);
    let mut expected = target.clone();
    let (from, to) = (MARGIN / 2 + from_skew, MARGIN / 2 + to_skew);
    expected[to..to + len].copy_from_slice(&source[from..from + len]);
    // SAFETY: both ranges lie inside their vectors: the skews are below half the margin.
    unsafe {
        copy(
            target.as_mut_ptr().wrapping_add(to),
            source.as_ptr().wrapping_add(from),
            len,
        )
    };
    // Not `assert_eq!`: printing megabytes helps nobody.
    let wrong = target
        .iter()
        .zip(&expected)
        .position(|(found, wanted)| found != wanted);
    assert_eq!(
        wrong, None,
        "{name}: len {len}, skews {from_skew} and {to_skew}, target at {to}"
    );
}

#[test]
fn every_alignment_of_small_copies() {
    for (name, copy) in every_copy() {
        for len in (0..=70).chain([255, 256, 257, 511, 512, 1023, 4096]) {
            for to_skew in 0..64 {
                check(name, copy, len, to_skew * 7 % 64, to_skew);
            }
        }
    }
}

#[test]
fn around_the_threshold() {
    for (name, copy) in every_copy() {
        for len in [NON_TEMPORAL_MIN - 1, NON_TEMPORAL_MIN, NON_TEMPORAL_MIN + 1] {
            for skew in [0, 1, 16, 63] {
                check(name, copy, len, 63 - skew, skew);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_length_at_any_place(
        len in 0..2 * NON_TEMPORAL_MIN + 5000,
        from_skew in 0..128_usize,
        to_skew in 0..128_usize,
    ) {
        for (name, copy) in every_copy() {
            check(name, copy, len, from_skew, to_skew);
        }
    }
}
