//! The four bytes in front of every message: the length of its body, big-endian.

use crate::malformed::Malformed;

/// Length of the prefix, in bytes.
pub const PREFIX_BYTES: usize = 4;

/// Default limit of a protocol-1 body: values of single sets and whole batches travel inline.
pub const FRAME_BYTES_MAX_DEFAULT: u32 = 2 << 30;

/// Limit of a protocol-2 body, both directions. Values never travel inline there; the largest
/// legitimate frame is a commit of 4096 keys with lineages.
pub const V2_FRAME_BYTES_MAX: u32 = 16 << 20;

/// The prefix of a body of `body_bytes` bytes.
#[must_use]
pub const fn prefix(body_bytes: u32) -> [u8; PREFIX_BYTES] {
    body_bytes.to_be_bytes()
}

/// Length of the body that follows `prefix`, checked against `limit_bytes`.
///
/// # Errors
/// [`Malformed::Empty`] for 0, [`Malformed::FrameTooLarge`] above the limit.
pub const fn parse_prefix(prefix: [u8; PREFIX_BYTES], limit_bytes: u32) -> Result<u32, Malformed> {
    let len_bytes = u32::from_be_bytes(prefix);
    if len_bytes == 0 {
        return Err(Malformed::Empty);
    }
    if len_bytes > limit_bytes {
        return Err(Malformed::FrameTooLarge {
            len_bytes: len_bytes as u64,
            limit_bytes: limit_bytes as u64,
        });
    }
    Ok(len_bytes)
}

/// Splits one complete frame into its body and what follows it.
///
/// # Errors
/// As [`parse_prefix`], and [`Malformed::Truncated`] if the frame is not complete.
pub fn split(bytes: &[u8], limit_bytes: u32) -> Result<(&[u8], &[u8]), Malformed> {
    let short = |needed: u64, left: usize| Malformed::Truncated { needed, left: left as u64 };
    let (prefix, rest) = bytes
        .split_first_chunk::<PREFIX_BYTES>()
        .ok_or_else(|| short(PREFIX_BYTES as u64, bytes.len()))?;
    let body_bytes = parse_prefix(*prefix, limit_bytes)?;
    rest.split_at_checked(body_bytes as usize)
        .ok_or_else(|| short(u64::from(body_bytes), rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_inclusive_and_zero_is_illegal() {
        assert_eq!(parse_prefix([0, 0, 0, 0], 10), Err(Malformed::Empty));
        assert_eq!(parse_prefix([0, 0, 0, 10], 10), Ok(10));
        assert_eq!(
            parse_prefix([0xff; 4], FRAME_BYTES_MAX_DEFAULT),
            Err(Malformed::FrameTooLarge { len_bytes: 0xffff_ffff, limit_bytes: 2 << 30 })
        );
        assert_eq!(prefix(0x0102_0304), [1, 2, 3, 4]);
    }

    #[test]
    fn split_needs_the_whole_frame() {
        let bytes = [0, 0, 0, 2, 7, 8, 9];
        assert_eq!(split(&bytes, 100), Ok((&[7_u8, 8][..], &[9_u8][..])));
        for end in 0..6 {
            assert!(matches!(split(&bytes[..end], 100), Err(Malformed::Truncated { .. })));
        }
    }
}
