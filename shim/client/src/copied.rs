//! The checksum of what was copied into a ticket's room, as long as it was copied front to back.
//!
//! Copying and summing in one pass costs less than summing later. Bytes that come otherwise (in another order, by several
//! threads at once, through the room's address) are not followed; the commit reads them once more instead.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kvd_shm::checksum::Checksum;

#[derive(Debug)]
pub(crate) struct Copied(Mutex<State>);

#[derive(Debug)]
enum State {
    /// The first `len` bytes, and nothing else, were copied; this is their checksum.
    FrontToBack { checksum: Checksum, len: usize },
    /// A copy that goes on from there is under way.
    Going,
    /// Only the room itself tells what is in it.
    Untold,
}

impl Copied {
    pub(crate) fn nothing() -> Self {
        Self(Mutex::new(State::FrontToBack { checksum: Checksum::new(), len: 0 }))
    }

    /// A copy to `at` begins: the checksum to go on with, or nothing if it need not be summed.
    pub(crate) fn go_on(&self, at: usize) -> Option<Checksum> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Untold) {
            State::FrontToBack { checksum, len } if len == at => {
                *state = State::Going;
                Some(checksum)
            }
            State::FrontToBack { .. } | State::Going | State::Untold => None,
        }
    }

    /// The copy that was begun has come to `len`.
    pub(crate) fn came_to(&self, len: usize, checksum: Checksum) {
        let mut state = self.state();
        if matches!(*state, State::Going) {
            *state = State::FrontToBack { checksum, len };
        }
    }

    /// From now on bytes may come without our knowing.
    pub(crate) fn lose_track(&self) {
        *self.state() = State::Untold;
    }

    /// The checksum of the room's first `len` bytes, if they are exactly what was copied.
    pub(crate) fn checksum(&self, len: usize) -> Option<Checksum> {
        match &*self.state() {
            State::FrontToBack { checksum, len: copied } if *copied == len => Some(*checksum),
            State::FrontToBack { .. } | State::Going | State::Untold => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(copied: &Copied, at: usize, bytes: &[u8]) {
        if let Some(mut checksum) = copied.go_on(at) {
            checksum.update(bytes);
            copied.came_to(at + bytes.len(), checksum);
        }
    }

    fn value(copied: &Copied, len: usize) -> Option<u64> {
        copied.checksum(len).map(|checksum| checksum.value())
    }

    #[test]
    fn copies_front_to_back_sum_to_the_whole() {
        let copied = Copied::nothing();
        assert_eq!(value(&copied, 0), Some(0));
        copy(&copied, 0, b"12345");
        copy(&copied, 5, b"6789");
        assert_eq!(value(&copied, 9), Some(0xae8b_1486_0a79_9888));
        assert_eq!(value(&copied, 5), None, "the block is shorter than what was copied");
    }

    #[test]
    fn any_other_order_is_not_followed_and_stays_so() {
        let copied = Copied::nothing();
        copy(&copied, 0, b"12345");
        copy(&copied, 0, b"12345");
        copy(&copied, 5, b"6789");
        assert_eq!((value(&copied, 5), value(&copied, 9)), (None, None));
        let copied = Copied::nothing();
        copied.lose_track();
        copy(&copied, 0, b"1");
        assert_eq!(value(&copied, 1), None);
    }

    #[test]
    fn two_copies_at_once_are_not_followed() {
        let copied = Copied::nothing();
        let first = copied.go_on(0).unwrap();
        assert!(copied.go_on(0).is_none());
        copied.came_to(1, first);
        assert_eq!(value(&copied, 1), None);
    }
}
