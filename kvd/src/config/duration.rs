//! Times as people write them: `500ms`, `30s`, `1.5m`, `1h`. The unit is required: a bare number
//! says nothing.

use std::time::Duration;

/// Unit and its length in milliseconds; `ms` first, as it also ends in `s`.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Most digits after the point; the result is whole milliseconds.
const FRACTION_DIGITS_MAX: usize = 9;

/// Reads a time, rounded down to milliseconds.
#[must_use]
pub(super) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim().to_ascii_lowercase();
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, *unit)))?;
    let (whole, fraction) = number.trim_end().split_once('.').unwrap_or((number.trim_end(), ""));
    let is_number = !whole.is_empty()
        && fraction.len() <= FRACTION_DIGITS_MAX
        && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if !is_number {
        return None;
    }
    let whole_ms = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let part: u64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let part_ms = part.checked_mul(unit)? / scale;
    Some(Duration::from_millis(whole_ms.checked_add(part_ms)?))
}

/// Writes a time with the largest unit that divides it.
#[must_use]
pub(super) fn show(time: Duration) -> String {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    UNITS
        .iter()
        .rev()
        .find(|(_, unit)| ms >= *unit && ms.is_multiple_of(*unit))
        .map_or_else(|| "0s".to_owned(), |(suffix, unit)| format!("{}{suffix}", ms / unit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_unit_reads_as_milliseconds() {
        for (text, wanted_ms) in [
            ("500ms", 500),
            ("0s", 0),
            ("30s", 30_000),
            ("1.5s", 1_500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1 H", 3_600_000),
            ("10MS", 10),
            ("0.0004s", 0),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(wanted_ms)), "{text:?}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", "30", "s", "-1s", "1d", "1e3s", ".5s", "1 0s", "1..5s", "99999999999999999999h"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(ms in 0..=u64::MAX) {
            let time = Duration::from_millis(ms);
            prop_assert_eq!(parse(&show(time)), Some(time));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _time = parse(&text);
        }
    }
}
