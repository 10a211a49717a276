//! Interleaved speeds: ours and the floor's, round by round.

use crate::percentile;

/// Bytes a second of each round.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    ours: Vec<f64>,
    floor: Vec<f64>,
}

impl Pace {
    /// Adds one round.
    pub fn add(&mut self, ours: f64, floor: f64) {
        self.ours.push(ours);
        self.floor.push(floor);
    }

    /// The median over all rounds of our speed divided by the floor's; no number without rounds.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.ours.is_empty() {
            return f64::NAN;
        }
        let rounds = self.ours.iter().zip(&self.floor);
        percentile::median(&mut rounds.map(|(ours, floor)| ours / floor).collect::<Vec<_>>())
    }

    /// Ours and the floor's medians, for people.
    #[must_use]
    pub fn texts(&self) -> [String; 2] {
        [&self.ours, &self.floor]
            .map(|side| format!("{:.2} GB/s", percentile::median(&mut side.clone()) / 1e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_ratios_and_none_without_rounds() {
        let mut pace = Pace::default();
        assert!(pace.ratio().is_nan());
        for (ours, floor) in [(1.0, 1.0), (3.0, 2.0), (2.0, 1.0)] {
            pace.add(ours, floor);
        }
        assert!((pace.ratio() - 1.5).abs() < 1e-9);
    }
}
