//! What hangs on a lease, and what is to be done about it. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// A key and what is to stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The whole key.
    pub key: String,
    /// The value.
    pub value: String,
}

/// A lease, and what was put there under it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) lease: i64,
    put: BTreeMap<String, String>,
    contested: BTreeSet<String>,
}

/// What an entry needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It stands as it should, or is somebody else's, which has been told.
    Nothing,
    /// It is to be put.
    Put,
    /// Somebody else has it now, which has not been told yet.
    Contested,
}

impl Held {
    pub(crate) fn new(lease: i64) -> Self {
        Self { lease, put: BTreeMap::new(), contested: BTreeSet::new() }
    }

    /// What `entry` needs, if its key hangs on the lease `holder` (0 for none; nothing if the key is not there). What somebody removed
    /// is put back. What another process has written since is left to it: it began later.
    pub(crate) fn step(&mut self, entry: &Entry, holder: Option<i64>) -> Step {
        let Some(put) = self.put.get(&entry.key) else { return Step::Put };
        match holder {
            None => Step::Put,
            Some(holder) if holder == self.lease => {
                self.contested.remove(&entry.key);
                if *put == entry.value { Step::Nothing } else { Step::Put }
            }
            Some(_) if self.contested.insert(entry.key.clone()) => Step::Contested,
            Some(_) => Step::Nothing,
        }
    }

    /// `entry` was put.
    pub(crate) fn put(&mut self, entry: Entry) {
        self.contested.remove(&entry.key);
        self.put.insert(entry.key, entry.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &str) -> Entry {
        Entry { key: "k".to_owned(), value: value.to_owned() }
    }

    #[test]
    fn a_key_is_put_once_and_again_if_it_changes_or_goes() {
        let mut held = Held::new(7);
        // Whoever begins takes the key, whoever has it.
        assert_eq!(held.step(&entry("a"), Some(5)), Step::Put);
        assert_eq!(held.step(&entry("a"), None), Step::Put);
        held.put(entry("a"));
        assert_eq!(held.step(&entry("a"), Some(7)), Step::Nothing);
        assert_eq!(held.step(&entry("b"), Some(7)), Step::Put);
        assert_eq!(held.step(&entry("a"), None), Step::Put);
    }

    #[test]
    fn what_another_process_took_is_left_to_it_and_told_once() {
        let mut held = Held::new(7);
        held.put(entry("a"));
        for holder in [0, 8] {
            let told = held.step(&entry("a"), Some(holder));
            assert_eq!(told, if holder == 0 { Step::Contested } else { Step::Nothing });
            assert_eq!(held.step(&entry("b"), Some(holder)), Step::Nothing);
        }
        // It has left.
        assert_eq!(held.step(&entry("b"), None), Step::Put);
        held.put(entry("b"));
        assert_eq!(held.step(&entry("b"), Some(8)), Step::Contested, "once for each time");
    }
}
