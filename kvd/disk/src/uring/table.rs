//! Who owns what the kernel works on: every operation in flight, at a place that its entries name.

use std::sync::Arc;
use std::time::Instant;

use super::files::Attached;
use crate::fault::Fault;
use crate::operation::{Action, Completion, Operation};
use crate::system::place as place_of;
use crate::transfer::{Call, Step, Transfer};

/// An operation with everything that must live as long as it.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) operation: Operation,
    pub(super) file: Arc<Attached>,
    pub(super) transfer: Transfer,
    pub(super) submitted: Instant,
}

impl InFlight {
    pub(super) fn is_read(&self) -> bool {
        self.operation.action() == Action::Read
    }

    /// The bytes of the call; `None` for a sync.
    pub(super) fn address(&self, call: Call) -> Option<(*mut u8, u32)> {
        let len = u32::try_from(call.len).unwrap_or(u32::MAX);
        self.operation.memory().map(|memory| (place_of(memory, call), len))
    }
}

/// Places for operations; a place is reused after its operation has ended.
#[derive(Debug)]
pub(super) struct Table {
    places: Vec<Option<InFlight>>,
    free: Vec<usize>,
}

impl Table {
    pub(super) fn with_room_for(depth: usize) -> Self {
        Self { places: (0..depth).map(|_| None).collect(), free: (0..depth).rev().collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len().saturating_sub(self.free.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// # Panics
    /// If all places are taken.
    pub(super) fn insert(&mut self, operation: InFlight) -> usize {
        let Some(place) = self.free.pop() else { panic!("more operations than places") };
        *self.at(place) = Some(operation);
        place
    }

    /// # Panics
    /// If nothing is there, as in the methods below: the kernel made up a number.
    pub(super) fn operation(&self, place: usize) -> &InFlight {
        let operation = self.places.get(place).and_then(Option::as_ref);
        let Some(operation) = operation else { panic!("no operation at place {place}") };
        operation
    }

    /// What to do after the kernel's answer to the operation's last call.
    pub(super) fn answered(&mut self, place: usize, answer: Result<usize, i32>) -> Step {
        let Some(operation) = self.at(place) else { panic!("no operation at place {place}") };
        operation.transfer.answered(answer)
    }

    /// Gives the operation's memory back.
    pub(super) fn end(&mut self, place: usize, result: Result<(), Fault>) -> Completion {
        let Some(ended) = self.at(place).take() else { panic!("no operation at place {place}") };
        self.free.push(place);
        ended.operation.ended(result, ended.submitted.elapsed())
    }

    fn at(&mut self, place: usize) -> &mut Option<InFlight> {
        let Some(at) = self.places.get_mut(place) else { panic!("there is no place {place}") };
        at
    }
}
