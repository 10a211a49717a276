//! When what a view knows is worth half: it may have missed that blocks are gone.

use super::Moment;

/// How long a doubt lasts if nothing confirms the view.
const DOUBT_MS: u64 = 600_000;
/// So many answers of the engine that agree end it before.
const CONFIRMATIONS: u32 = 3;
/// What blocks are worth meanwhile.
pub const DOUBTED_CREDIT: f32 = 0.5;

/// Whether a view may have missed something for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    until: Option<Moment>,
    confirmations: u32,
}

impl Doubt {
    /// Something was missed.
    pub const fn raise(&mut self, now: Moment) {
        self.until = Some(now.after(DOUBT_MS));
        self.confirmations = 0;
    }

    /// The engine had what the view said.
    pub const fn confirm(&mut self) {
        self.confirmations = self.confirmations.saturating_add(1);
        if self.confirmations >= CONFIRMATIONS {
            self.until = None;
        }
    }

    /// Everything is known anew.
    pub const fn settle(&mut self) {
        self.until = None;
    }

    /// Time passes.
    pub fn tick(&mut self, now: Moment) {
        self.until = self.until.filter(|until| now < *until);
    }

    /// Whether there is a doubt.
    #[must_use]
    pub const fn is_raised(&self) -> bool {
        self.until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_ends_after_ten_minutes_or_three_confirmations() {
        let mut doubt = Doubt::default();
        doubt.raise(Moment(5));
        doubt.tick(Moment(600_004));
        assert!(doubt.is_raised());
        doubt.tick(Moment(600_005));
        assert!(!doubt.is_raised());
        doubt.raise(Moment(0));
        doubt.confirm();
        doubt.confirm();
        assert!(doubt.is_raised());
        doubt.confirm();
        assert!(!doubt.is_raised());
    }
}
