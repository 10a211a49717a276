//! What an operation belongs to, in the one word that comes back with its end.

use super::record::Step;

/// The owner of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// A part of a block.
    Block {
        slot: u32,
        part: usize,
    },
    Journal(Step),
    Snapshot(Step),
    Flush,
}

/// The word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(pub(super) u64);

const KIND_SHIFT: u32 = 60;
const PART_SHIFT: u32 = 32;
const PART_MASK: u64 = (1 << (KIND_SHIFT - PART_SHIFT)) - 1;

const BLOCK: u64 = 0;
const JOURNAL: u64 = 1;
const SNAPSHOT: u64 = 2;
const FLUSH: u64 = 3;

impl Token {
    pub(super) fn new(of: Of) -> Self {
        let (kind, rest) = match of {
            Of::Block { slot, part } => {
                let part = part as u64;
                assert!(part <= PART_MASK, "a block of {part} parts");
                (BLOCK, part << PART_SHIFT | u64::from(slot))
            }
            Of::Journal(step) => (JOURNAL, step as u64),
            Of::Snapshot(step) => (SNAPSHOT, step as u64),
            Of::Flush => (FLUSH, 0),
        };
        Self(kind << KIND_SHIFT | rest)
    }

    pub(super) fn of(self) -> Of {
        let part = usize::try_from(self.0 >> PART_SHIFT & PART_MASK).unwrap_or(usize::MAX);
        let low = u32::try_from(self.0 & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let step = match low {
            0 => Step::Write,
            1 => Step::Container,
            _ => Step::File,
        };
        match self.0 >> KIND_SHIFT {
            BLOCK => Of::Block { slot: low, part },
            JOURNAL => Of::Journal(step),
            SNAPSHOT => Of::Snapshot(step),
            _ => Of::Flush,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_tells_what_it_was_made_of() {
        let steps = [Step::Write, Step::Container, Step::File];
        let blocks =
            [(0, 0), (1, 2), (u32::MAX, 262_143)].map(|(slot, part)| Of::Block { slot, part });
        let records = steps.into_iter().flat_map(|step| [Of::Journal(step), Of::Snapshot(step)]);
        for of in blocks.into_iter().chain(records).chain([Of::Flush]) {
            assert_eq!(Token::new(of).of(), of);
        }
    }
}
