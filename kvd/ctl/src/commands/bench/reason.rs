//! Why blocks of a measurement were not taken, found or given, and what to do about it.

use kvd_client::{MissReason, Refusal};

use crate::advice;
use crate::text;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Refused(Refusal),
    Missed(MissReason),
}

impl Reason {
    /// A line about so many blocks of a lap, in an arena of `arena_bytes`.
    pub(crate) fn in_words(self, lap: &str, blocks: u64, arena_bytes: u64) -> String {
        let why = match self {
            Self::Refused(refusal) => advice::refused(refusal).unwrap_or_default().to_owned(),
            Self::Missed(MissReason::Shed) if lap == "locate" => format!(
                "what is located is kept for the daemon's --promise-window, and no more than a quarter of the arena ({} of {}) \
                 may be: give fewer --blocks, or the daemon a larger --max-bytes",
                text::bytes(arena_bytes / 4),
                text::bytes(arena_bytes),
            ),
            Self::Missed(MissReason::Shed) => {
                "more than one session may hold at once (--leases-max, --in-flight-bytes-max of the daemon): give a smaller \
                 --batch"
                    .to_owned()
            }
            Self::Missed(MissReason::NeverStored) => "see what was refused above".to_owned(),
            Self::Missed(MissReason::Evicted(_)) => {
                "the arena cannot hold all of them: give fewer --blocks, or the daemon a larger --max-bytes"
                    .to_owned()
            }
            Self::Missed(MissReason::Deadline) => "the daemon took too long".to_owned(),
            Self::Missed(_) => String::new(),
        };
        let head = format!("{lap}: {} blocks {}", text::count(blocks), self.word());
        if why.is_empty() { head } else { format!("{head}: {why}") }
    }

    fn word(self) -> String {
        match self {
            Self::Refused(refusal) => format!("refused ({})", refusal.as_str()),
            Self::Missed(reason) => format!("missed ({})", reason.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_and_the_way_out_are_named() {
        let said = Reason::Missed(MissReason::Shed).in_words("locate", 1_034, 16 << 20);
        for part in
            ["locate: 1,034 blocks", "4.00 MiB of 16.00 MiB", "--promise-window", "--max-bytes"]
        {
            assert!(said.contains(part), "{part} in {said}");
        }
        let said = Reason::Refused(Refusal::ArenaFull).in_words("put", 1, 16 << 20);
        assert!(said.starts_with("put: 1 blocks refused (arena_full): "), "{said}");
    }
}
