//! The x86-64 copies: `rep movsb` for what fits a cache, non-temporal vector stores for the rest.

#![expect(
    unsafe_code,
    reason = "assembler: the compiler must not know these accesses"
)]

use std::arch::asm;

use super::NON_TEMPORAL_MIN;

/// Copies `len` bytes. When it returns, the bytes are visible before any later store.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes; the ranges must not overlap. Other
/// processes may write either range at the same time.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    if len < NON_TEMPORAL_MIN {
        // SAFETY: as our caller promises.
        unsafe { copy_cached(to, from, len) }
    } else if is_x86_feature_detected!("avx512f") {
        // SAFETY: as our caller promises, and the processor has the instructions.
        unsafe { around(to, from, len, copy_blocks_avx512) }
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: as our caller promises, and the processor has the instructions.
        unsafe { around(to, from, len, copy_blocks_avx2) }
    } else {
        // SAFETY: as our caller promises.
        unsafe { copy_cached(to, from, len) }
    }
}

/// The shape of [`copy`] and of its parts.
type Copy = unsafe fn(*mut u8, *const u8, usize);

/// Bytes that the vector loops copy in one turn; their destination is aligned to a cache line.
const BLOCK_BYTES: usize = 256;
const LINE_BYTES: usize = 64;

/// Copies with ordinary stores.
///
/// # Safety
/// As [`copy`].
unsafe fn copy_cached(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: reads `len` bytes from `from` and writes them to `to`, which the caller allows; the
    // direction flag is clear, as the calling convention demands.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies the ends with ordinary stores and the blocks between them with `blocks`.
///
/// # Safety
/// As [`copy`], and the processor must have the instructions of `blocks`.
unsafe fn around(to: *mut u8, from: *const u8, len: usize, blocks: Copy) {
    let head = (to.addr().wrapping_neg() % LINE_BYTES).min(len);
    let body = (len - head) / BLOCK_BYTES * BLOCK_BYTES;
    let tail = len - head - body;
    // SAFETY: the first `head <= len` bytes of both ranges.
    unsafe { copy_cached(to, from, head) };
    let (to_body, from_body) = (to.wrapping_add(head), from.wrapping_add(head));
    if body > 0 {
        // SAFETY: the next `body` bytes: whole blocks, destination aligned to a line.
        unsafe { blocks(to_body, from_body, body) };
    }
    // SAFETY: the last `tail` bytes; `head + body + tail == len`.
    unsafe {
        copy_cached(
            to_body.wrapping_add(body),
            from_body.wrapping_add(body),
            tail,
        )
    };
}

/// Copies `len` bytes past the cache, 64 at a time.
///
/// The fences keep two orders that non-temporal stores do not keep by themselves: they stay behind
/// earlier stores (a header that says "being written") and before later ones ("complete").
///
/// # Safety
/// As [`copy`]; `len` must be a positive multiple of [`BLOCK_BYTES`] and `to` aligned to a line.
#[target_feature(enable = "avx512f")]
unsafe fn copy_blocks_avx512(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: reads `len` bytes from `from` and writes them to `to`, which the caller allows; the
    // prefetches cannot fault.
    unsafe {
        asm!(
            "sfence",
            "2:",
            "prefetcht0 [{from} + 1024]",
            "prefetcht0 [{from} + 1088]",
            "prefetcht0 [{from} + 1152]",
            "prefetcht0 [{from} + 1216]",
            "vmovdqu64 {a}, [{from}]",
            "vmovdqu64 {b}, [{from} + 64]",
            "vmovdqu64 {c}, [{from} + 128]",
            "vmovdqu64 {d}, [{from} + 192]",
            "vmovntdq [{to}], {a}",
            "vmovntdq [{to} + 64], {b}",
            "vmovntdq [{to} + 128], {c}",
            "vmovntdq [{to} + 192], {d}",
            "add {from}, 256",
            "add {to}, 256",
            "sub {len}, 256",
            "jnz 2b",
            "sfence",
            "vzeroupper",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            a = out(zmm_reg) _,
            b = out(zmm_reg) _,
            c = out(zmm_reg) _,
            d = out(zmm_reg) _,
            options(nostack),
        );
    }
}

/// As [`copy_blocks_avx512`], 32 bytes at a time.
///
/// # Safety
/// As [`copy_blocks_avx512`].
#[target_feature(enable = "avx2")]
unsafe fn copy_blocks_avx2(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as in `copy_blocks_avx512`.
    unsafe {
        asm!(
            "sfence",
            "2:",
            "prefetcht0 [{from} + 1024]",
            "prefetcht0 [{from} + 1088]",
            "prefetcht0 [{from} + 1152]",
            "prefetcht0 [{from} + 1216]",
            "vmovdqu {a}, [{from}]",
            "vmovdqu {b}, [{from} + 32]",
            "vmovdqu {c}, [{from} + 64]",
            "vmovdqu {d}, [{from} + 96]",
            "vmovdqu {e}, [{from} + 128]",
            "vmovdqu {f}, [{from} + 160]",
            "vmovdqu {g}, [{from} + 192]",
            "vmovdqu {h}, [{from} + 224]",
            "vmovntdq [{to}], {a}",
            "vmovntdq [{to} + 32], {b}",
            "vmovntdq [{to} + 64], {c}",
            "vmovntdq [{to} + 96], {d}",
            "vmovntdq [{to} + 128], {e}",
            "vmovntdq [{to} + 160], {f}",
            "vmovntdq [{to} + 192], {g}",
            "vmovntdq [{to} + 224], {h}",
            "add {from}, 256",
            "add {to}, 256",
            "sub {len}, 256",
            "jnz 2b",
            "sfence",
            "vzeroupper",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            a = out(ymm_reg) _,
            b = out(ymm_reg) _,
            c = out(ymm_reg) _,
            d = out(ymm_reg) _,
            e = out(ymm_reg) _,
            f = out(ymm_reg) _,
            g = out(ymm_reg) _,
            h = out(ymm_reg) _,
            options(nostack),
        );
    }
}

/// The copies that this processor can run, each for any length: for the tests.
#[cfg(test)]
pub(super) fn every_copy() -> Vec<(&'static str, Copy)> {
    let mut all: Vec<(&'static str, Copy)> = vec![("cached", copy_cached)];
    if is_x86_feature_detected!("avx2") {
        // SAFETY: as `around` demands; the feature was detected.
        all.push(("avx2", |to, from, len| unsafe {
            around(to, from, len, copy_blocks_avx2)
        }));
    }
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: as `around` demands; the feature was detected.
        all.push(("avx512", |to, from, len| unsafe {
            around(to, from, len, copy_blocks_avx512)
        }));
    }
    all
}
