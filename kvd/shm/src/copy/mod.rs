//! Copies between this process's own memory and memory that other processes may be writing.
//!
//! Every access is made by an assembler block or by a relaxed atomic, so a racing store of another
//! process can tear the result but not the program.
//!
//! Which method is fastest depends on the size, the direction and the processor:
//!
//! * *In* (own, warm bytes to a cold arena): non-temporal stores from 64 KiB on. They do not fetch
//!   the lines that they overwrite.
//! * *Out* (cold arena to a buffer that may be warm): non-temporal stores from 64 KiB on, except on
//!   AMD family 26 (Zen 5) and later, whose `rep movsb` fetches ahead better than any loop tried,
//!   leaves a warm buffer in the cache, and does as well as non-temporal stores on a cold one.
//!
//! | GB/s | size | `memcpy` | `rep movsb` | non-temporal |
//! |---|---|---|---|---|
//! | in, Zen 5 | 16 KiB | 30.2 | 30.4 | 34.6 |
//! | in, Zen 5 | 64 KiB | 32.7 | 32.2 | **40.2** |
//! | in, Zen 5 | 4 MiB | 27.6 | 30.2 | **41.7** |
//! | in, Zen 4 | 64 KiB, 4 MiB | 17.8, 22.5 | – | **26.6, 27.7** |
//! | out, Zen 5 | 16 KiB | 17.6 | 17.4 | 16.6 |
//! | out, Zen 5 | 4 MiB | 30.4 | **37.1** | 26.8 |
//! | out, Zen 5 | 64 MiB | 20.7 | **28.9** | 26.9 |
//! | out, Zen 4 | 64 KiB, 4 MiB | 15.0, 15.5 | – | **17.7, 20.6** |
//!
//! Below 64 KiB the ways differ by a seventh at most, and ordinary stores leave the bytes in the
//! cache for whoever reads them next.
//!
//! Source: 2-core virtual machines, one pinned thread, random bytes, arena on 2 MiB pages, medians.
//! Zen 5: `taskset -c 0 cargo run --release --example copy_sweep -p kvd-shm`. Zen 4: an earlier
//! tool, `rep movsb` not measured.

mod words;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Copies shorter than this go through the cache.
pub const NON_TEMPORAL_MIN: usize = 64 << 10;

/// A way to copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// Relaxed atomics, eight bytes at a time: any processor.
    Words,
    /// `rep movsb`: any x86-64 processor.
    Strings,
    /// Non-temporal stores of 32 bytes.
    Avx2,
    /// Non-temporal stores of 64 bytes.
    Avx512,
}

impl Method {
    /// All there are, slowest first.
    pub const ALL: [Self; 4] = [Self::Words, Self::Strings, Self::Avx2, Self::Avx512];

    /// Whether this processor can do it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Words => true,
            #[cfg(target_arch = "x86_64")]
            Self::Strings => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Strings | Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// The method for `len` bytes into the arena.
    #[must_use]
    pub fn to_copy_in(len: usize) -> Self {
        if len < NON_TEMPORAL_MIN { Self::cached() } else { Self::non_temporal() }
    }

    /// The method for `len` bytes out of the arena.
    #[must_use]
    pub fn to_copy_out(len: usize) -> Self {
        if len < NON_TEMPORAL_MIN || strings_fetch_ahead() {
            Self::cached()
        } else {
            Self::non_temporal()
        }
    }

    fn cached() -> Self {
        if Self::Strings.is_available() { Self::Strings } else { Self::Words }
    }

    fn non_temporal() -> Self {
        if Self::Avx512.is_available() {
            Self::Avx512
        } else if Self::Avx2.is_available() {
            Self::Avx2
        } else {
            Self::cached()
        }
    }
}

/// Whether `rep movsb` beats non-temporal stores for reading cold memory.
fn strings_fetch_ahead() -> bool {
    #[cfg(target_arch = "x86_64")]
    return x86::is_amd_family_26_or_later();
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Copies `len` bytes. When it returns, they are visible before any later store of this thread; none
/// of them was visible before any earlier one.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes; the ranges must not overlap. Other
/// processes may write either range at the same time.
///
/// # Panics
/// If the method is not available.
#[expect(unsafe_code, reason = "the copies take raw addresses")]
pub(crate) unsafe fn copy(method: Method, to: *mut u8, from: *const u8, len: usize) {
    assert!(method.is_available(), "this processor cannot copy by {method:?}");
    match method {
        // SAFETY: as our caller promises.
        Method::Words => unsafe { words::copy(to, from, len) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as our caller promises.
        Method::Strings => unsafe { x86::copy_strings(to, from, len) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as our caller promises; the processor has AVX2.
        Method::Avx2 => unsafe { x86::copy_avx2(to, from, len) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as our caller promises; the processor has AVX-512.
        Method::Avx512 => unsafe { x86::copy_avx512(to, from, len) },
        #[cfg(not(target_arch = "x86_64"))]
        Method::Strings | Method::Avx2 | Method::Avx512 => unreachable!("not available"),
    }
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "calls the copies")]

    use super::*;
    use proptest::prelude::*;

    const MARGIN: usize = 300;

    /// Bytes that differ from their neighbours and from the neighbours of the target.
    fn pattern(len: usize, salt: u8) -> Vec<u8> {
        (0..len).map(|index| (index % 251).to_le_bytes()[0] ^ salt).collect()
    }

    /// Copies by every method and by the language; the bytes around the target must not change.
    fn check(len: usize, from_skew: usize, to_skew: usize) {
        let source = pattern(len + 2 * MARGIN, 0x5a);
        let target = pattern(len + 2 * MARGIN, 0xc3);
        let (from, to) = (MARGIN / 2 + from_skew, MARGIN / 2 + to_skew);
        let mut expected = target.clone();
        expected[to..to + len].copy_from_slice(&source[from..from + len]);
        for method in Method::ALL.into_iter().filter(|method| method.is_available()) {
            let mut target = target.clone();
            let (to_at, from_at) = (target[to..].as_mut_ptr(), source[from..].as_ptr());
            // SAFETY: both ranges lie inside their vectors: the skews are below half the margin.
            unsafe { copy(method, to_at, from_at, len) };
            let wrong = target.iter().zip(&expected).position(|(found, wanted)| found != wanted);
            assert_eq!(wrong, None, "{method:?}: {len} bytes, skews {from_skew} {to_skew}");
        }
    }

    #[test]
    fn every_alignment_of_small_copies() {
        for len in (0..=70).chain([255, 256, 257, 511, 512, 1023, 4096]) {
            for to_skew in 0..64 {
                check(len, to_skew * 7 % 64, to_skew);
                check(len, to_skew, to_skew);
            }
        }
    }

    #[test]
    fn around_the_threshold() {
        for len in [NON_TEMPORAL_MIN - 1, NON_TEMPORAL_MIN, NON_TEMPORAL_MIN + 1] {
            for skew in [0, 1, 16, 63] {
                check(len, 63 - skew, skew);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn any_length_at_any_place(
            len in 0..4 * NON_TEMPORAL_MIN,
            from_skew in 0..128_usize,
            to_skew in 0..128_usize,
        ) {
            check(len, from_skew, to_skew);
        }
    }

    #[test]
    fn the_chosen_method_can_be_used() {
        for len in [0, 1, NON_TEMPORAL_MIN - 1, NON_TEMPORAL_MIN, 1 << 30] {
            assert!(Method::to_copy_in(len).is_available());
            assert!(Method::to_copy_out(len).is_available());
        }
    }
}
