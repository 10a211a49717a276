//! The target whose score is least.

use crate::score::ettft::{Request, Target, Terms};
use crate::score::reference::{Asked, Cost, Known};

use super::ties;

/// Picks, and keeps its memory between picks.
#[derive(Clone, Debug, Default)]
pub struct KvAware {
    terms: Vec<Terms>,
    costs: Vec<Cost>,
}

/// A target, and all there was to choose from.
#[derive(Clone, Copy, Debug)]
pub struct Pick<'a, T> {
    /// The target.
    pub target: usize,
    /// What every target was given, in the order of the targets.
    pub terms: &'a [T],
    /// Targets with at most this score were as good as the best.
    pub limit: f64,
}

/// What is compared; the least wins.
pub trait Scored {
    /// In seconds, or in blocks.
    fn score(&self) -> f64;
}

impl Scored for Terms {
    fn score(&self) -> f64 {
        self.score
    }
}

impl Scored for Cost {
    fn score(&self) -> f64 {
        self.cost
    }
}

impl<T: Scored> Pick<'_, T> {
    /// The picked one's terms.
    #[must_use]
    pub fn picked(&self) -> Option<&T> {
        self.terms.get(self.target)
    }

    /// All targets, best first, the picked one before all: who is asked next if it fails.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.terms.len()).collect();
        order.sort_by(|left, right| {
            let key = |at: &usize| self.terms.get(*at).map_or(f64::INFINITY, Scored::score);
            let is_other = |at: &usize| *at != self.target;
            is_other(left).cmp(&is_other(right)).then(key(left).total_cmp(&key(right)))
        });
        order
    }

    /// The targets that were as good as the best, the picked one among them.
    pub fn as_good(&self) -> impl Iterator<Item = usize> {
        let close = self.terms.iter().enumerate();
        close.filter(|(_, terms)| terms.score() <= self.limit).map(|(target, _)| target)
    }
}

impl KvAware {
    /// A picker without memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The target with the shortest expected time to the first token; among those that are as good, one by chance, those
    /// with shorter queues more often. Nothing if there is no target.
    pub fn pick<'t>(
        &mut self,
        request: &Request,
        targets: impl Iterator<Item = Target<'t>>,
        seed: u64,
    ) -> Option<Pick<'_, Terms>> {
        self.terms.clear();
        self.terms.extend(targets.map(|target| Terms::of(request, &target)));
        self.draw(seed)
    }

    /// The same for a target that only answers, what was computed elsewhere.
    pub fn pick_decode<'t>(
        &mut self,
        request: &Request,
        targets: impl Iterator<Item = Target<'t>>,
        seed: u64,
    ) -> Option<Pick<'_, Terms>> {
        self.terms.clear();
        self.terms.extend(targets.map(|target| Terms::of_decode(request, &target)));
        self.draw(seed)
    }

    fn draw(&self, seed: u64) -> Option<Pick<'_, Terms>> {
        let best = self.terms.iter().map(Scored::score).fold(f64::INFINITY, f64::min);
        let limit = ties::as_good_as(best);
        let drawn = self.terms.iter().map(|terms| (terms.score, 1.0 / (1.0 + terms.queued_tokens)));
        let target = ties::draw(drawn, limit, seed)?;
        Some(Pick { target, terms: &self.terms, limit })
    }

    /// The reference's choice: the least cost, then the least load, then by chance.
    pub fn pick_as_reference(
        &mut self,
        asked: &Asked,
        targets: impl Iterator<Item = Known>,
        seed: u64,
    ) -> Option<Pick<'_, Cost>> {
        self.costs.clear();
        self.costs.extend(targets.map(|known| Cost::of(asked, &known)));
        let limit = self.costs.iter().map(Scored::score).fold(f64::INFINITY, f64::min);
        let cheapest = self.costs.iter().filter(|cost| cost.cost <= limit);
        let load = cheapest.map(|cost| cost.load).fold(f64::INFINITY, f64::min);
        let drawn = self.costs.iter().map(|cost| {
            let is_drawn = cost.cost <= limit && cost.load <= load;
            (if is_drawn { limit } else { f64::INFINITY }, 1.0)
        });
        let target = ties::draw(drawn, limit, seed)?;
        Some(Pick { target, terms: &self.costs, limit })
    }
}
