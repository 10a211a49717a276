//! The x86-64 copies: `rep movsb`, and vector loops with non-temporal stores.

#![expect(unsafe_code, reason = "assembler: the compiler must not know these accesses")]

use std::arch::asm;
use std::arch::x86_64::__cpuid;
use std::sync::OnceLock;

/// Bytes that the vector loops copy in one turn.
const BLOCK_BYTES: usize = 256;

/// Non-temporal stores fill whole lines, or they are slow.
const LINE_BYTES: usize = 64;

/// Copies with the processor's own string copy. It stays behind earlier stores and before later
/// ones, whatever it does inside.
///
/// # Safety
/// As [`super::copy`].
pub(super) unsafe fn copy_strings(to: *mut u8, from: *const u8, len: usize) {
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

/// Copies past the cache, 64 bytes at a time.
///
/// # Safety
/// As [`super::copy`]; the processor must have AVX-512.
pub(super) unsafe fn copy_avx512(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as our caller promises.
    unsafe { around(to, from, len, blocks_avx512) }
}

/// Copies past the cache, 32 bytes at a time.
///
/// # Safety
/// As [`super::copy`]; the processor must have AVX2.
pub(super) unsafe fn copy_avx2(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as our caller promises.
    unsafe { around(to, from, len, blocks_avx2) }
}

/// Copies the ends with ordinary stores and the whole lines between them with `blocks`.
///
/// # Safety
/// As [`super::copy`], and the processor must have the instructions of `blocks`.
unsafe fn around(
    to: *mut u8,
    from: *const u8,
    len: usize,
    blocks: unsafe fn(*mut u8, *const u8, usize),
) {
    let head = (to.addr().wrapping_neg() % LINE_BYTES).min(len);
    let body = (len - head) / BLOCK_BYTES * BLOCK_BYTES;
    let tail = len - head - body;
    // SAFETY: the first `head <= len` bytes of both ranges.
    unsafe { copy_strings(to, from, head) };
    let (to_body, from_body) = (to.wrapping_add(head), from.wrapping_add(head));
    if body > 0 {
        // SAFETY: the next `body` bytes: whole blocks, destination aligned to a line.
        unsafe { blocks(to_body, from_body, body) };
    }
    // SAFETY: the last `tail` bytes; `head + body + tail == len`.
    unsafe { copy_strings(to_body.wrapping_add(body), from_body.wrapping_add(body), tail) };
}

/// The blocks of [`copy_avx512`].
///
/// The fences keep two orders that non-temporal stores do not keep by themselves: they stay behind
/// earlier stores (a header that says "being written") and before later ones ("complete").
///
/// # Safety
/// As [`super::copy`]; `len` must be a positive multiple of [`BLOCK_BYTES`] and `to` aligned to a
/// line.
#[target_feature(enable = "avx512f")]
unsafe fn blocks_avx512(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: reads `len` bytes from `from` and writes them to `to`, which the caller allows; the
    // prefetches cannot fault.
    unsafe {
        asm!(
            "sfence",
            "2:",
            "prefetcht0 [{from} + 512]",
            "prefetcht0 [{from} + 576]",
            "prefetcht0 [{from} + 640]",
            "prefetcht0 [{from} + 704]",
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

/// The blocks of [`copy_avx2`], with the fences of [`blocks_avx512`].
///
/// # Safety
/// As [`blocks_avx512`].
#[target_feature(enable = "avx2")]
unsafe fn blocks_avx2(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as in `blocks_avx512`.
    unsafe {
        asm!(
            "sfence",
            "2:",
            "prefetcht0 [{from} + 512]",
            "prefetcht0 [{from} + 576]",
            "vmovdqu {a}, [{from}]",
            "vmovdqu {b}, [{from} + 32]",
            "vmovdqu {c}, [{from} + 64]",
            "vmovdqu {d}, [{from} + 96]",
            "vmovntdq [{to}], {a}",
            "vmovntdq [{to} + 32], {b}",
            "vmovntdq [{to} + 64], {c}",
            "vmovntdq [{to} + 96], {d}",
            "add {from}, 128",
            "add {to}, 128",
            "sub {len}, 128",
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
            options(nostack),
        );
    }
}

/// Zen 5 is family 26.
pub(super) fn is_amd_family_26_or_later() -> bool {
    // On a virtual machine `cpuid` is a trip to the host: asked once.
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let vendor = __cpuid(0);
        let is_amd = [vendor.ebx, vendor.edx, vendor.ecx]
            == [*b"Auth", *b"enti", *b"cAMD"].map(u32::from_le_bytes);
        let signature = __cpuid(1).eax;
        let (base, extended) = (signature >> 8 & 0xf, signature >> 20 & 0xff);
        let family = if base == 0xf { base + extended } else { base };
        is_amd && family >= 26
    })
}
