//! What a view does with messages as the sequence lets them through, whoever sent them.

use super::doubt::Doubt;
use super::sequence::{Arrival, Need, Sequence};
use super::{Counts, Moment};
use crate::index::Index;

/// A view whose messages are numbered.
pub(super) trait InOrder {
    /// Its numbers, its doubt, and what is counted of both.
    fn course(&mut self) -> (&mut Sequence, &mut Doubt, &mut Counts);

    /// Applies one payload.
    fn apply(&mut self, index: &Index, payload: &[u8], now: Moment) -> Option<Need>;

    /// Tells the index what the view's word is worth now.
    fn show_credit(&self, index: &Index);

    /// Takes the kept messages that come before a replayed one.
    fn take_older(&mut self, index: &Index, replayed: u64, now: Moment) {
        while self.course().0.awaits_replay()
            && let Some((payload, arrival)) = self.course().0.next_kept_before(replayed)
        {
            let _recovering_already = self.take(index, arrival, &payload, now);
        }
    }

    /// Takes the kept messages that nothing is missing before.
    fn catch_up(&mut self, index: &Index, now: Moment) -> Option<Need> {
        let mut need = None;
        while let Some((payload, arrival)) = self.course().0.next_kept() {
            need = self.take(index, arrival, &payload, now).or(need);
        }
        self.show_credit(index);
        need
    }

    /// Takes one message.
    fn take(
        &mut self,
        index: &Index,
        arrival: Arrival,
        payload: &[u8],
        now: Moment,
    ) -> Option<Need> {
        let (sequence, doubt, counts) = self.course();
        match arrival {
            Arrival::Next => self.apply(index, payload, now),
            Arrival::AfterLoss => {
                counts.gaps += 1;
                doubt.raise(now);
                self.apply(index, payload, now)
            }
            Arrival::Kept(need) => {
                counts.gaps += u64::from(need.is_some() && sequence.last().is_some());
                need
            }
            Arrival::Known | Arrival::Restarted => None,
        }
    }
}
