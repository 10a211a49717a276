//! What the daemon itself leaves to its successor, in the last page of the ledger's file: the page before all regions is
//! the store's. Single words, each of them whole at any time.

use kvd_shm::ledger_file::LedgerFile;

/// Bytes that a ledger's file has behind the ledger.
pub const FRONT_BYTES: u64 = 4096;

/// Starts in a row that ended while they took over. One more may be ended by the same thing.
const ATTEMPTS_MAX: u64 = 5;

const ATTEMPTS: u64 = 0;
const GENERATION: u64 = 8;
const PID_NAMESPACE: u64 = 16;

/// The page.
#[derive(Debug, Clone, Copy)]
pub struct Front<'a> {
    file: &'a LedgerFile,
}

impl<'a> Front<'a> {
    /// The page of this file; `None` if the file is too short to have one.
    #[must_use]
    pub fn of(file: &'a LedgerFile) -> Option<Self> {
        (file.bytes() >= FRONT_BYTES).then_some(Self { file })
    }

    /// Notes that a life begins to take over. `false` if too many have ended so: what is wrong with what they took over
    /// must not end every life to come.
    #[must_use]
    pub fn begin(self) -> bool {
        let attempts = self.word(ATTEMPTS).saturating_add(1);
        self.store(ATTEMPTS, attempts);
        attempts <= ATTEMPTS_MAX
    }

    /// Notes that it has taken over. Whatever ends it from now on has other reasons.
    pub fn done(self) {
        self.store(ATTEMPTS, 0);
    }

    /// Notes that this life serves.
    pub fn serves(self, pid_namespace: u64) {
        self.store(GENERATION, self.generation().saturating_add(1));
        self.store(PID_NAMESPACE, pid_namespace);
    }

    /// How many lives have served what is kept.
    #[must_use]
    pub fn generation(self) -> u64 {
        self.word(GENERATION)
    }

    /// Where the numbers of processes that the ledger names mean something; 0 if that is not known.
    #[must_use]
    pub fn pid_namespace(self) -> u64 {
        self.word(PID_NAMESPACE)
    }

    fn word(self, at: u64) -> u64 {
        self.file.load(self.file.bytes() - FRONT_BYTES + at)
    }

    fn store(self, at: u64, word: u64) {
        self.file.store(self.file.bytes() - FRONT_BYTES + at, word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_counted_and_those_that_never_served() {
        let file = LedgerFile::create(3 * FRONT_BYTES).unwrap();
        let front = Front::of(&file).unwrap();
        front.serves(77);
        assert_eq!((front.generation(), front.pid_namespace()), (1, 77));
        for _ in 0..ATTEMPTS_MAX {
            assert!(front.begin());
        }
        front.done();
        front.serves(78);
        assert_eq!((front.generation(), front.pid_namespace()), (2, 78));
        for _ in 0..ATTEMPTS_MAX {
            assert!(front.begin());
        }
        assert!(!front.begin());
        let mut before = vec![1; 8192];
        file.read(0, &mut before);
        assert!(before.iter().all(|byte| *byte == 0), "the ledger is the store's");
    }
}
