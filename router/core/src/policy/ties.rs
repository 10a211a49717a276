//! Among targets that are as good as the best, one is drawn. The caller brings the number that decides.

/// Scores this close, in seconds or relative to the best, are equal.
const CLOSE_SECONDS: f64 = 0.001;
const CLOSE_SHARE: f64 = 0.03;

/// A number from 0 to below 1, from a seed.
#[must_use]
fn fraction(seed: u64) -> f64 {
    // The steps of splitmix64: neighbouring seeds end up far apart.
    let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mixed = mixed ^ (mixed >> 31);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// How far above the best score another one is as good.
#[must_use]
pub fn as_good_as(best: f64) -> f64 {
    best + CLOSE_SECONDS.max(CLOSE_SHARE * best.abs())
}

/// Draws one of the targets whose score is at most `limit`; each by its weight. `targets` are scores and weights above
/// zero. Nothing if there is none.
#[must_use]
pub fn draw(
    targets: impl Iterator<Item = (f64, f64)> + Clone,
    limit: f64,
    seed: u64,
) -> Option<usize> {
    let close = targets.enumerate().filter(|(_, (score, _))| *score <= limit);
    let all: f64 = close.clone().map(|(_, (_, weight))| weight).sum();
    let mut left = fraction(seed) * all;
    let mut drawn = None;
    for (target, (_, weight)) in close {
        drawn = Some(target);
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares<const N: usize>(targets: [(f64, f64); N], limit: f64) -> [f64; N] {
        let mut counts = [0.0; N];
        for seed in 0..10_000 {
            counts[draw(targets.into_iter(), limit, seed).unwrap()] += 1e-4;
        }
        counts
    }

    #[test]
    fn equals_share_by_weight_and_others_get_nothing() {
        let [first, second, third, fourth] =
            shares([(1.0, 1.0), (1.02, 1.0), (2.0, 9.0), (1.0, 2.0)], as_good_as(1.0));
        assert!((first - 0.25).abs() < 0.02 && (second - 0.25).abs() < 0.02);
        assert!(third == 0.0 && (fourth - 0.5).abs() < 0.02);
    }

    #[test]
    fn nobody_is_drawn_from_nobody() {
        assert_eq!(draw(core::iter::empty(), 1.0, 7), None);
        assert_eq!(draw([(f64::NAN, 1.0)].into_iter(), 1.0, 7), None);
    }

    #[test]
    fn close_is_a_millisecond_or_three_percent() {
        assert!((as_good_as(0.0) - 0.001).abs() < 1e-12);
        assert!((as_good_as(1.0) - 1.03).abs() < 1e-12);
    }
}
