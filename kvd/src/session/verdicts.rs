//! Answers that hold only once something is durable: strict SETs and commits, and every clear.

use std::sync::Arc;
use std::time::Instant;

use kvd_proto::refusal::Refusal;
use kvd_store::{Input, Outcome, Verdict, WaitId};

use super::service::Service;
use crate::parkers::Waited;

/// Stored, and what that still waits for; or refused.
pub(super) type Stored = Result<Option<WaitId>, Refusal>;

impl Service {
    /// The answer to a commit that was just applied.
    pub(super) fn stored(&self, outcome: Outcome) -> Stored {
        match outcome {
            Outcome::Committed(Ok(())) => Ok(self.effects.wait),
            Outcome::Committed(Err(refusal)) => Err(refusal),
            _ => Err(Refusal::Shed),
        }
    }

    /// Waits until what was stored may be acknowledged.
    pub(super) fn settle(&mut self, stored: Stored) -> Result<(), Refusal> {
        match stored? {
            Some(wait) if !self.is_durable(wait) => Err(Refusal::NotDurable),
            Some(_) | None => Ok(()),
        }
    }

    /// Waits for a verdict, at most as long as any request waits for the disk.
    pub(super) fn is_durable(&mut self, wait: WaitId) -> bool {
        let deadline = Instant::now() + self.daemon.settings.disk.load_deadline;
        let (brain, parker) = (Arc::clone(&self.daemon.brain), Arc::clone(&self.parker));
        // Known to the brain before the first question: a verdict from now on wakes this thread.
        let parked = brain.parkers.for_verdict(wait, &parker);
        let mut give_up = parked.is_none();
        loop {
            match self.ask(Input::Verdict { wait, give_up }) {
                Outcome::Verdict(Verdict::Met) => return true,
                Outcome::Verdict(Verdict::Pending) if !give_up => {}
                _ => return false,
            }
            give_up = parker.wait(deadline) == Waited::TooLate || brain.parkers.are_over();
        }
    }
}
