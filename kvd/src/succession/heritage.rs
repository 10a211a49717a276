//! The memory that the life before left with the service manager, or hands over.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use kvd_proto::ids::SessionId;

/// The name under which the arena is kept.
pub const ARENA: &str = "kvd-arena";
/// The name under which the ledger is kept.
pub const LEDGER: &str = "kvd-ledger";

/// What was handed over at the start. Nothing of it is believed yet.
#[derive(Debug, Default)]
pub struct Heritage {
    /// Descriptors called [`ARENA`].
    pub arenas: Vec<OwnedFd>,
    /// Descriptors called [`LEDGER`].
    pub ledgers: Vec<OwnedFd>,
    /// What goes on, if the life before hands over and still runs.
    pub handover: Option<Continuity>,
    /// For the log, which is not open yet when descriptors are taken.
    remarks: Vec<String>,
}

/// What goes on of a life whose memory is handed over.
#[derive(Debug, Default)]
pub struct Continuity {
    /// Its epoch, which is in the names of rights that clients hold.
    pub epoch: u64,
    /// Sessions whose connections are handed over, too.
    pub connected: BTreeSet<SessionId>,
    /// Descriptors of the processes behind sessions, open or closed.
    pub processes: BTreeMap<SessionId, OwnedFd>,
}

impl Heritage {
    /// What a running daemon hands over.
    #[must_use]
    pub fn handed_over(arena: OwnedFd, ledger: OwnedFd, continuity: Continuity) -> Self {
        Self {
            arenas: vec![arena],
            ledgers: vec![ledger],
            handover: Some(continuity),
            remarks: Vec::new(),
        }
    }

    pub(super) fn of_process() -> Self {
        match kvd_shm::inherited::descriptors() {
            Ok(passed) => Self::sorted(passed),
            Err(error) => {
                let remark = format!("the descriptors that were passed can't be taken: {error}");
                Self { remarks: vec![remark], ..Self::default() }
            }
        }
    }

    /// Keeps what is ours and closes the rest.
    fn sorted(passed: Vec<(String, OwnedFd)>) -> Self {
        let mut heritage = Self::default();
        for (name, descriptor) in passed {
            match name.as_str() {
                ARENA => heritage.arenas.push(descriptor),
                LEDGER => heritage.ledgers.push(descriptor),
                _ => {
                    let remark = format!("a descriptor {name:?} was passed that nobody asked for");
                    heritage.remarks.push(format!("{remark}; it is closed"));
                }
            }
        }
        heritage
    }

    /// Whether anything of ours was left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arenas.is_empty() && self.ledgers.is_empty()
    }

    /// Writes to the log what was odd.
    pub fn log_remarks(&self) {
        for remark in &self.remarks {
            tracing::warn!("{remark}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn what_is_not_ours_is_closed_and_told() {
        let (mut read, write) = std::io::pipe().unwrap();
        let (arena, ledger) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let heritage = Heritage::sorted(vec![
            ("http".to_owned(), OwnedFd::from(write)),
            (LEDGER.to_owned(), ledger.into()),
            (ARENA.to_owned(), arena.into()),
        ]);
        assert_eq!((heritage.arenas.len(), heritage.ledgers.len()), (1, 1));
        assert!(heritage.remarks.len() == 1 && heritage.remarks[0].contains("\"http\""));
        assert_eq!(read.read(&mut [0]).unwrap(), 0, "closed");
    }
}
