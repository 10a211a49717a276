//! How far one operation has come: what to ask of the kernel next, given its last answer.
//!
//! Pure, so that the engines agree on short transfers, retries and ends of file by construction.

use crate::fault::Fault;
use crate::operation::{Action, Operation};

/// Bytes asked for in one call, at most: the kernel cuts off just below 2 GiB, and a multiple of
/// every alignment keeps the rest of a long transfer aligned.
pub(crate) const CALL_BYTES_MAX: usize = 1 << 30;

/// Calls in a row that moved nothing and gave no final answer, before that is the answer.
const FRUITLESS_MAX: u32 = 100;

/// Sizes that direct I/O transfers are multiples of, at least.
const SECTOR_BYTES: usize = 512;

/// The state of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    action: Action,
    offset: u64,
    len: usize,
    moved: usize,
    fruitless: u32,
}

/// What to do next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Ask the kernel for this.
    Call(Call),
    /// The operation has ended.
    Ended(Result<(), Fault>),
}

/// One call: `len` bytes of the memory from `start` on, at `offset` of the file. All zero for a sync.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Call {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) offset: u64,
}

impl Transfer {
    pub(crate) fn of(operation: &Operation) -> Self {
        Self {
            action: operation.action(),
            offset: operation.offset(),
            len: operation.len(),
            moved: 0,
            fruitless: 0,
        }
    }

    /// The first step.
    pub(crate) fn begin(&self) -> Step {
        let end = self.offset.checked_add(self.len as u64);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Step::Ended(Err(Fault::Errno(libc::EINVAL)));
        }
        match self.action {
            Action::Read | Action::Write if self.len == 0 => Step::Ended(Ok(())),
            Action::Read | Action::Write | Action::Sync => Step::Call(self.call()),
        }
    }

    /// The step after the kernel's answer: how many bytes, or which errno.
    pub(crate) fn answered(&mut self, answer: Result<usize, i32>) -> Step {
        match (self.action, answer) {
            (_, Err(libc::EINTR | libc::EAGAIN)) => self.fruitless(answer),
            (Action::Read, Err(libc::EINVAL)) if !self.moved.is_multiple_of(SECTOR_BYTES) => {
                // The odd length before was the end of the file; direct reads cannot ask beyond it.
                Step::Ended(Err(self.end_of_file()))
            }
            (_, Err(errno)) => Step::Ended(Err(Fault::Errno(errno))),
            (Action::Sync, Ok(_)) => Step::Ended(Ok(())),
            (Action::Read, Ok(0)) => Step::Ended(Err(self.end_of_file())),
            (Action::Write, Ok(0)) => self.fruitless(answer),
            (Action::Read | Action::Write, Ok(moved)) => self.went_on(moved),
        }
    }

    fn went_on(&mut self, moved: usize) -> Step {
        self.fruitless = 0;
        self.moved = self.moved.saturating_add(moved);
        assert!(self.moved <= self.len, "the kernel moved more than it was asked to");
        if self.moved == self.len { Step::Ended(Ok(())) } else { Step::Call(self.call()) }
    }

    fn fruitless(&mut self, answer: Result<usize, i32>) -> Step {
        self.fruitless = self.fruitless.saturating_add(1);
        if self.fruitless < FRUITLESS_MAX {
            return Step::Call(self.call());
        }
        Step::Ended(Err(match answer {
            Err(errno) => Fault::Errno(errno),
            Ok(_) => Fault::NoProgress {
                offset: self.offset,
                transferred: self.moved as u64,
                asked: self.len as u64,
            },
        }))
    }

    fn end_of_file(&self) -> Fault {
        Fault::EndOfFile {
            offset: self.offset,
            transferred: self.moved as u64,
            asked: self.len as u64,
        }
    }

    fn call(&self) -> Call {
        Call {
            start: self.moved,
            len: self.len.saturating_sub(self.moved).min(CALL_BYTES_MAX),
            offset: self.offset.saturating_add(self.moved as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn transfer(action: Action, offset: u64, len: usize) -> Transfer {
        Transfer { action, offset, len, moved: 0, fruitless: 0 }
    }

    fn call(start: usize, len: usize, offset: u64) -> Step {
        Step::Call(Call { start, len, offset })
    }

    #[test]
    fn long_transfers_are_cut_below_two_gib() {
        let mut write = transfer(Action::Write, 4096, 5 << 29);
        assert_eq!(write.begin(), call(0, 1 << 30, 4096));
        assert_eq!(write.answered(Ok(1 << 30)), call(1 << 30, 1 << 30, 4096 + (1 << 30)));
        assert_eq!(write.answered(Ok(1 << 30)), call(1 << 31, 1 << 29, 4096 + (1 << 31)));
        assert_eq!(write.answered(Ok(1 << 29)), Step::Ended(Ok(())));
    }

    #[test]
    fn nothing_to_move_is_no_call_and_a_sync_is_one() {
        assert_eq!(transfer(Action::Read, 9, 0).begin(), Step::Ended(Ok(())));
        let mut sync = transfer(Action::Sync, 0, 0);
        assert_eq!(sync.begin(), call(0, 0, 0));
        assert_eq!(sync.answered(Ok(0)), Step::Ended(Ok(())));
        assert_eq!(sync.answered(Err(5)), Step::Ended(Err(Fault::Errno(5))));
    }

    #[test]
    fn places_beyond_every_file_are_refused() {
        let refused = Step::Ended(Err(Fault::Errno(libc::EINVAL)));
        assert_eq!(transfer(Action::Read, u64::MAX, 1).begin(), refused);
        assert_eq!(transfer(Action::Write, i64::MAX.unsigned_abs(), 1).begin(), refused);
        assert!(matches!(transfer(Action::Read, 1 << 60, 1).begin(), Step::Call(_)));
    }

    #[test]
    fn an_odd_length_and_then_a_refusal_is_the_end_of_the_file() {
        let mut read = transfer(Action::Read, 0, 8192);
        assert_eq!(read.answered(Ok(1000)), call(1000, 7192, 1000));
        let ended = Fault::EndOfFile { offset: 0, transferred: 1000, asked: 8192 };
        assert_eq!(read.answered(Err(libc::EINVAL)), Step::Ended(Err(ended)));
        let mut read = transfer(Action::Read, 0, 8192);
        assert_eq!(read.answered(Err(libc::EINVAL)), Step::Ended(Err(Fault::Errno(libc::EINVAL))));
    }

    #[test]
    fn fruitless_calls_end() {
        for (answer, fault) in [
            (Err(libc::EAGAIN), Fault::Errno(libc::EAGAIN)),
            (Ok(0), Fault::NoProgress { offset: 5, transferred: 0, asked: 10 }),
        ] {
            let mut write = transfer(Action::Write, 5, 10);
            let steps: Vec<_> = (0..FRUITLESS_MAX).map(|_| write.answered(answer)).collect();
            let (last, before) = steps.split_last().unwrap();
            assert!(before.iter().all(|step| *step == call(0, 10, 5)));
            assert_eq!(*last, Step::Ended(Err(fault)));
        }
    }

    proptest! {
        /// Whatever the kernel answers, every byte is asked for in order, and the end is right.
        #[test]
        fn transfers_cover_every_byte_once(
            len in 1..20_000_usize,
            file_len in 0..20_000_usize,
            most in 1..4000_usize,
            answers in prop::collection::vec(prop_oneof![3 => (1..4000_usize).prop_map(Ok),
                1 => Just(Err(libc::EINTR))], 0..40),
        ) {
            let mut read = transfer(Action::Read, 0, len);
            let mut step = read.begin();
            let mut read_to = 0;
            let answers: Vec<_> = answers.into_iter().chain([Ok(most)]).collect();
            for answer in answers.into_iter().cycle() {
                let asked = match step {
                    Step::Call(asked) => asked,
                    Step::Ended(result) => {
                        let expected = if file_len >= len { Ok(()) } else {
                            let transferred = file_len as u64;
                            Err(Fault::EndOfFile { offset: 0, transferred, asked: len as u64 })
                        };
                        prop_assert_eq!(result, expected);
                        return Ok(());
                    }
                };
                prop_assert_eq!((asked.start, asked.offset), (read_to, read_to as u64));
                let answer = answer.map(|most: usize| most.min(asked.len).min(file_len - read_to));
                read_to += answer.unwrap_or(0);
                step = read.answered(answer);
            }
        }
    }
}
