//! Which vital records were read. They are counted since the device exists, and every batch says
//! which ones it has: those that are missing are found whatever was read in which order.

/// Vital records, by number, that some batches have without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    from: u64,
    to: u64,
    /// The latest generation that came before the first of these batches.
    generation_before: u64,
}

#[derive(Debug, Default)]
pub(super) struct Vitals {
    runs: Vec<Run>,
}

impl Vitals {
    /// A batch has the records `from..to`.
    pub(super) fn read(&mut self, from: u64, to: u64, generation_before: u64) {
        match self.runs.last_mut() {
            Some(run) if run.from <= from && from <= run.to => run.to = run.to.max(to),
            Some(_) | None => self.runs.push(Run { from, to, generation_before }),
        }
    }

    /// One more than the latest record that was read, `base` if there is none. Calls `missing`
    /// for each gap behind `base` with the generation up to which entries are in doubt.
    pub(super) fn end(mut self, base: Option<u64>, mut missing: impl FnMut(u64)) -> u64 {
        self.runs.sort_unstable();
        let first = self.runs.first().map_or(0, |run| run.from);
        let mut end = base.unwrap_or(first);
        for run in self.runs {
            if run.from > end {
                missing(run.generation_before);
            }
            end = end.max(run.to);
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::Vitals;

    fn end(runs: &[(u64, u64, u64)], base: Option<u64>) -> (u64, Vec<u64>) {
        let mut vitals = Vitals::default();
        runs.iter().for_each(|&(from, to, generation)| vitals.read(from, to, generation));
        let mut missing = Vec::new();
        let end = vitals.end(base, |generation| missing.push(generation));
        (end, missing)
    }

    #[test]
    fn gaps_are_found_in_any_order() {
        assert_eq!(end(&[], None), (0, vec![]));
        assert_eq!(end(&[], Some(7)), (7, vec![]));
        let whole = [(0, 2, 10), (1, 3, 20), (3, 3, 30)];
        assert_eq!(end(&whole, Some(0)), (3, vec![]));
        let gap = [(0, 2, 10), (4, 5, 30), (5, 9, 40)];
        assert_eq!(end(&gap, Some(0)), (9, vec![30]));
        let reversed = [(4, 5, 30), (5, 9, 40), (0, 2, 10)];
        assert_eq!(end(&reversed, Some(0)), (9, vec![30]));
        let filled = [(4, 5, 30), (0, 2, 10), (2, 4, 20)];
        assert_eq!(end(&filled, Some(0)), (5, vec![]));
    }

    #[test]
    fn what_was_before_the_first_is_missing_only_if_it_is_known() {
        assert_eq!(end(&[(3, 4, 9)], None), (4, vec![]));
        assert_eq!(end(&[(3, 4, 9)], Some(3)), (4, vec![]));
        assert_eq!(end(&[(3, 4, 9)], Some(2)), (4, vec![9]));
    }
}
