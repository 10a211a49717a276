//! Sizes in bytes as people write them: `4096`, `64K`, `1.5G`; units are powers of 1024, capitals
//! do not matter.

const UNITS: [(char, u64); 4] = [('T', 1 << 40), ('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

/// Most digits after the point: more cannot matter below one byte of a terabyte.
const FRACTION_DIGITS_MAX: usize = 15;

/// Reads a size. A plain number is whole bytes; with a unit it may have a fraction, rounded down to
/// bytes.
#[must_use]
pub(super) fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let last = text.chars().next_back()?.to_ascii_uppercase();
    let Some((_, unit)) = UNITS.iter().find(|(letter, _)| *letter == last) else {
        return only_digits(text).then(|| text.parse().ok()).flatten();
    };
    let number = text.get(..text.len() - 1)?.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.len() > FRACTION_DIGITS_MAX {
        return None;
    }
    let whole = digits(whole)?.checked_mul(u128::from(*unit))?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = digits(fraction)?.checked_mul(u128::from(*unit))?.checked_div(scale)?;
    u64::try_from(whole.checked_add(part)?).ok()
}

/// Writes a size with the largest unit that divides it.
#[must_use]
pub(super) fn show(bytes: u64) -> String {
    UNITS
        .iter()
        .find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit))
        .map_or_else(|| bytes.to_string(), |(letter, unit)| format!("{}{letter}", bytes / unit))
}

fn only_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Digits as a number; nothing at all counts as 0, so that `.5G` and `5.G` work.
fn digits(text: &str) -> Option<u128> {
    if text.is_empty() {
        return Some(0);
    }
    only_digits(text).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_reads_as_bytes() {
        for (text, wanted) in [
            ("0", 0),
            ("10", 10),
            ("65536", 65_536),
            ("64K", 65_536),
            ("64k", 65_536),
            ("1M", 1 << 20),
            ("8G", 8 << 30),
            ("8g", 8 << 30),
            ("2T", 2 << 40),
            ("1.5G", 3 << 29),
            ("0.5k", 512),
            (".5K", 512),
            ("5.K", 5120),
            ("0.0001K", 0),
            (" 4 M ", 4 << 20),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Some(wanted), "{text:?}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            " ",
            "K",
            ".",
            ".K",
            "1.5",
            "-1",
            "+1",
            "-1K",
            "1e3K",
            "0x10",
            "8GB",
            "8GiB",
            "1 2K",
            "1..5K",
            "1.2.3K",
            "G8",
            "８G",
            "18446744073709551616",
            "16777216T",
            "eight",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(bytes in 0..=u64::MAX) {
            prop_assert_eq!(parse(&show(bytes)), Some(bytes));
        }

        #[test]
        fn round_sizes_read_back(count in 0..(1_u64 << 22), shift in 0..4_u32) {
            let bytes = count << (10 * (shift + 1));
            prop_assert_eq!(parse(&show(bytes)), Some(bytes));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _size = parse(&text);
        }
    }
}
