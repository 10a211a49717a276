//! Times to live as protocol 1 writes them.

/// What a `ttl_seconds` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// The row stays until it is evicted.
    Never,
    /// The row expires after this many milliseconds, at least 1.
    Millis(u64),
    /// The row would be expired at once: it is counted and acknowledged, and nothing is stored.
    Past,
}

impl Ttl {
    /// From the field of `set` and `batch_set`. Not-a-number and times beyond 2^63 ms never end,
    /// as a comparison with them is never true.
    #[must_use]
    pub fn from_seconds(seconds: Option<f64>) -> Self {
        const MILLIS_MAX: f64 = (1_u64 << 63) as f64;
        let Some(seconds) = seconds else {
            return Self::Never;
        };
        if seconds <= 0.0 {
            return Self::Past;
        }
        let millis = (seconds * 1000.0).ceil();
        if millis < MILLIS_MAX {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a whole number between 1 and 2^63"
            )]
            Self::Millis(millis as u64)
        } else {
            Self::Never
        }
    }

    /// From the field of `set_commit`, where 0 and less mean no time to live.
    #[must_use]
    pub fn from_commit_seconds(seconds: i64) -> Self {
        match u64::try_from(seconds) {
            Ok(0) | Err(_) => Self::Never,
            Ok(seconds) => Self::Millis(seconds.saturating_mul(1000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ttl;

    #[test]
    fn seconds_become_whole_milliseconds() {
        assert_eq!(Ttl::from_seconds(None), Ttl::Never);
        assert_eq!(Ttl::from_seconds(Some(1.5)), Ttl::Millis(1500));
        assert_eq!(Ttl::from_seconds(Some(1e-9)), Ttl::Millis(1));
        assert_eq!(Ttl::from_seconds(Some(0.0)), Ttl::Past);
        assert_eq!(Ttl::from_seconds(Some(-0.0)), Ttl::Past);
        assert_eq!(Ttl::from_seconds(Some(f64::NEG_INFINITY)), Ttl::Past);
        assert_eq!(Ttl::from_seconds(Some(f64::INFINITY)), Ttl::Never);
        assert_eq!(Ttl::from_seconds(Some(f64::NAN)), Ttl::Never);
        assert_eq!(Ttl::from_seconds(Some(1e300)), Ttl::Never);
        assert_eq!(Ttl::from_commit_seconds(0), Ttl::Never);
        assert_eq!(Ttl::from_commit_seconds(-5), Ttl::Never);
        assert_eq!(Ttl::from_commit_seconds(2), Ttl::Millis(2000));
        assert_eq!(Ttl::from_commit_seconds(i64::MAX), Ttl::Millis(u64::MAX));
    }
}
