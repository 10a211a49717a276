//! Where sessions were last: what shares a `prompt_cache_key` is held to go on where it was. Bounded, and forgotten with
//! the process.

use std::collections::HashMap;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Sessions that are remembered at least; up to twice as many are.
const SESSIONS_MIN: usize = 32_768;

/// A session, by its model and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Session(u64);

impl Session {
    pub(super) fn new(model: &str, key: &str) -> Self {
        Self(xxh3_64_with_seed(key.as_bytes(), xxh3_64(model.as_bytes())))
    }
}

/// A target, by its worker and rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    pub(super) fn new(worker: &str, rank: Option<u32>) -> Self {
        Self(xxh3_64_with_seed(worker.as_bytes(), rank.map_or(0, |rank| u64::from(rank) + 1)))
    }
}

/// The last place of each.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    young: HashMap<Session, Place>,
    /// Those that were young when the young ones became too many.
    old: HashMap<Session, Place>,
}

impl Sessions {
    pub(super) fn last(&self, session: Session) -> Option<Place> {
        self.young.get(&session).or_else(|| self.old.get(&session)).copied()
    }

    pub(super) fn note(&mut self, session: Session, place: Place) {
        if self.young.len() >= SESSIONS_MIN && !self.young.contains_key(&session) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(session, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_where_they_were_last() {
        let mut sessions = Sessions::default();
        let (here, there) = (Place::new("a:1", None), Place::new("a:1", Some(0)));
        assert_ne!(here, there);
        let session = |number: usize| Session::new("m", &number.to_string());
        sessions.note(session(0), here);
        sessions.note(session(0), there);
        assert_eq!(sessions.last(session(0)), Some(there));
        assert_eq!(sessions.last(Session::new("other", "0")), None);
        for number in 1..=2 * SESSIONS_MIN {
            sessions.note(session(number), here);
        }
        assert_eq!(sessions.last(session(0)), None);
        assert_eq!(sessions.last(session(SESSIONS_MIN + 1)), Some(here));
        assert!(sessions.young.len() + sessions.old.len() <= 2 * SESSIONS_MIN);
    }
}
