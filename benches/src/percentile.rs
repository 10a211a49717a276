//! Order statistics of small samples.

/// The smallest value that at least `share` (0 to 1) of the samples do not exceed. Sorts them; 0 if there are none.
#[must_use]
pub fn of(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank: between 1 and the number of samples"
    )]
    let rank = (share * samples.len() as f64).ceil().max(1.0) as usize;
    samples.get(rank.min(samples.len()).wrapping_sub(1)).copied().unwrap_or(0.0)
}

/// The middle value; the lower one of two.
#[must_use]
pub fn median(samples: &mut [f64]) -> f64 {
    of(samples, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_textbook() {
        let mut samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let found = [0.0, 0.01, 0.5, 0.99, 0.991, 1.0].map(|share| of(&mut samples, share));
        let expected = [1.0, 1.0, 50.0, 99.0, 100.0, 100.0];
        assert!(
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9),
            "{found:?}"
        );
        assert!((median(&mut [3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!(of(&mut [], 0.5).abs() < 1e-9);
    }
}
