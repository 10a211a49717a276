//! Pauses between attempts.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// The pause after a lost connection: doubled from one to the next up to a bound, back after a good one.
#[derive(Debug)]
pub struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Pause {
    /// The next one, between half of it and all of it as `draw` says (0 to 1): who lost the same etcd does not come back at once.
    #[must_use]
    pub fn next(&mut self, draw: f64) -> Duration {
        let pause = self.0.mul_f64(0.5 + draw.clamp(0.0, 1.0) / 2.0);
        self.0 = (self.0 * 2).min(LONGEST);
        pause
    }

    /// A connection was good: the next pause is the first one again.
    pub fn reset(&mut self) {
        self.0 = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_begin_anew() {
        let mut pause = Pause::default();
        let millis: Vec<u128> = (0..8).map(|_| pause.next(1.0).as_millis()).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(pause.next(0.0), LONGEST / 2);
        pause.reset();
        assert_eq!(pause.next(0.5), FIRST.mul_f64(0.75));
    }
}
