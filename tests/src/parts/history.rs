//! What was done to keys, and what may be found of it after a crash.
//!
//! The bytes of a block begin with a version and follow from key and version, so whoever finds some can tell which
//! store they come from. Positions say when: a crash at a position leaves what was acknowledged up to there for
//! certain, and what was begun up to there perhaps. Each key has one owner that does one thing at a time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kvd_client::Retention;

use crate::content::bytes_of;

/// Bytes of the version at the beginning of a block.
const VERSION_BYTES: usize = 8;
/// A clock counts in milliseconds, and the daemon looks at it a moment before the client does.
const CLOCK_SLACK: Duration = Duration::from_millis(50);

/// The bytes of a version of a key; at least 8.
#[must_use]
pub fn block(key: &[u8], version: u64, len: usize) -> Vec<u8> {
    let mut seed = key.to_vec();
    seed.extend(version.to_le_bytes());
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(bytes_of(&seed, len.saturating_sub(VERSION_BYTES)));
    bytes
}

/// What was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Which version of its key.
    pub version: u64,
    /// How many bytes.
    pub len: usize,
    /// Its class.
    pub class: Retention,
    /// How long it may be found.
    pub ttl: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Store(Stored),
    Clear,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    did: Did,
    begun: u64,
    acknowledged: Option<u64>,
    /// After this moment it must not be found.
    gone_by: Option<Instant>,
}

/// What the daemon promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// An acknowledged block of class long is found, and what it replaced is not.
    Strict,
    /// A block may be forgotten. What was cleared or replaced is not found.
    Forgetful,
    /// As before, but what was replaced may be found.
    Relaxed,
}

/// All that was done to the keys of one owner. A key is whatever the owner calls it by.
#[derive(Clone, Debug, Default)]
pub struct History {
    keys: BTreeMap<Vec<u8>, Vec<Event>>,
    versions: u64,
}

impl History {
    /// The next version of any key.
    pub fn new_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// A block is about to be stored; perhaps one that was stored before.
    pub fn storing(&mut self, key: &[u8], stored: Stored, position: u64) {
        self.begin(key, Did::Store(stored), position);
    }

    /// What was stored last, if nothing was done to the key since.
    #[must_use]
    pub fn latest(&self, key: &[u8]) -> Option<Stored> {
        match self.keys.get(key)?.last()?.did {
            Did::Store(stored) => Some(stored),
            Did::Clear => None,
        }
    }

    /// All of `keys` are about to be cleared.
    pub fn clearing(&mut self, keys: &[Vec<u8>], position: u64) {
        for key in keys {
            self.begin(key, Did::Clear, position);
        }
    }

    fn begin(&mut self, key: &[u8], did: Did, begun: u64) {
        let event = Event { did, begun, acknowledged: None, gone_by: None };
        self.keys.entry(key.to_vec()).or_default().push(event);
    }

    /// What was begun last with the key is acknowledged.
    ///
    /// # Panics
    /// If nothing was begun.
    pub fn acknowledged(&mut self, key: &[u8], position: u64) {
        let event = self.keys.get_mut(key).and_then(|events| events.last_mut()).expect("an event");
        event.acknowledged = Some(position);
        if let Did::Store(Stored { ttl: Some(ttl), .. }) = event.did {
            event.gone_by = Some(Instant::now() + ttl + CLOCK_SLACK);
        }
    }

    /// What was begun last with the key was refused, and has changed nothing.
    ///
    /// # Panics
    /// If nothing was begun.
    pub fn refused(&mut self, key: &[u8]) {
        self.keys.get_mut(key).and_then(Vec::pop).expect("an event");
    }

    /// Every key.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.keys().map(Vec::as_slice)
    }

    /// How many things were acknowledged up to `position`.
    #[must_use]
    pub fn acknowledged_by(&self, position: u64) -> usize {
        let events = self.keys.values().flatten();
        events.filter(|event| event.acknowledged.is_some_and(|at| at <= position)).count()
    }

    /// Holds what was found under a key, while nothing was under way, against what was done: the latest version or
    /// nothing.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge_now(&self, key: &[u8], found: Option<&[u8]>) -> Result<(), String> {
        let Some(bytes) = found else {
            return Ok(());
        };
        let (number, events) = self.which(key, bytes, u64::MAX)?;
        match events.get(number + 1) {
            Some(later) => Err(format!("found {:?} after {later:?}", events[number])),
            None => self.judge_age(&events[number]),
        }
    }

    /// Holds what was found under a key after a crash at `cut` against what was done.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(
        &self,
        key: &[u8],
        found: Option<&[u8]>,
        cut: u64,
        promise: Promise,
    ) -> Result<(), String> {
        let Some(bytes) = found else {
            return self.judge_missing(key, cut, promise);
        };
        let (number, events) = self.which(key, bytes, cut)?;
        let event = events[number];
        let certain = |later: &&Event| later.acknowledged.is_some_and(|at| at <= cut);
        let forbids =
            |later: &&Event| promise != Promise::Relaxed || matches!(later.did, Did::Clear);
        match events[number + 1..].iter().filter(certain).find(forbids) {
            Some(later) => Err(format!("phantom: found {event:?} after {later:?}")),
            None => self.judge_age(&event),
        }
    }

    fn judge_missing(&self, key: &[u8], cut: u64, promise: Promise) -> Result<(), String> {
        let mut events = self.keys.get(key).into_iter().flatten().rev();
        let last = events.find(|event| event.begun <= cut);
        match last {
            Some(Event {
                did: Did::Store(Stored { class: Retention::Long, ttl: None, .. }),
                acknowledged: Some(at),
                ..
            }) if *at <= cut && promise == Promise::Strict => Err(format!("lost: {last:?}")),
            _ => Ok(()),
        }
    }

    fn judge_age(&self, event: &Event) -> Result<(), String> {
        match event.gone_by {
            Some(moment) if Instant::now() > moment => Err(format!("expired: {event:?}")),
            _ => Ok(()),
        }
    }

    /// The event that bytes come from: the latest that had begun at `cut`.
    fn which(&self, key: &[u8], bytes: &[u8], cut: u64) -> Result<(usize, &[Event]), String> {
        let version = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let events = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        let is_it = |event: &Event| match event.did {
            Did::Store(stored) => Some(stored.version) == version && stored.len == bytes.len(),
            Did::Clear => false,
        };
        let Some(first) = events.iter().position(is_it) else {
            return Err(format!("wrong bytes: version {version:?}, {} bytes", bytes.len()));
        };
        if bytes != block(key, version.unwrap_or_default(), bytes.len()) {
            return Err(format!("wrong bytes under version {version:?}"));
        }
        let number = events.iter().rposition(|event| is_it(event) && event.begun <= cut);
        match number {
            Some(number) => Ok((number, events)),
            None => Err(format!("found {:?}, begun after {cut}", events[first])),
        }
    }

    /// Goes back to a crash at `cut`: what was begun later never was, and positions count from 0 again.
    pub fn go_back(&mut self, cut: u64) {
        for events in self.keys.values_mut() {
            events.retain(|event| event.begun <= cut);
            for event in events {
                event.begun = 0;
                event.acknowledged = event.acknowledged.filter(|at| *at <= cut).map(|_| 0);
            }
        }
    }

    /// After a crash: what was found is what there is, whatever was under way.
    pub fn settle(&mut self, key: &[u8], found: Option<&[u8]>) {
        let Some(bytes) = found else {
            return;
        };
        let Ok((number, _)) = self.which(key, bytes, u64::MAX) else {
            return;
        };
        if let Some(events) = self.keys.get_mut(key) {
            let mut event = events[number];
            event.acknowledged.get_or_insert(event.begun);
            *events = vec![event];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"key";

    fn stored(version: u64, class: Retention) -> Stored {
        Stored { version, len: 100, class, ttl: None }
    }

    /// Version 1 stored at 1..2, version 2 at 3..4, cleared at 5..6, version 3 begun at 7.
    fn history(class: Retention) -> History {
        let mut history = History::default();
        for (version, begun) in [(1, 1), (2, 3)] {
            history.storing(KEY, stored(version, class), begun);
            history.acknowledged(KEY, begun + 1);
        }
        history.clearing(&[KEY.to_vec()], 5);
        history.acknowledged(KEY, 6);
        history.storing(KEY, stored(3, class), 7);
        history
    }

    fn judge(cut: u64, version: Option<u64>, promise: Promise) -> bool {
        let found = version.map(|version| block(KEY, version, 100));
        history(Retention::Long).judge(KEY, found.as_deref(), cut, promise).is_ok()
    }

    #[test]
    fn strict_knows_no_loss_and_no_phantom() {
        // What may be found after a crash at each position: versions, 0 for nothing.
        let allowed: [(u64, &[u64]); 8] = [
            (0, &[0]),
            (1, &[0, 1]),
            (2, &[1]),
            (3, &[0, 1, 2]),
            (4, &[2]),
            (5, &[0, 2]),
            (6, &[0]),
            (7, &[0, 3]),
        ];
        for (cut, allowed) in allowed {
            for version in 0..=3 {
                let found = (version > 0).then_some(version);
                let is_fine = judge(cut, found, Promise::Strict);
                // A block that is being replaced may be gone for a moment.
                assert_eq!(is_fine, allowed.contains(&version), "version {version} at {cut}");
            }
        }
    }

    #[test]
    fn relaxed_may_forget_and_may_know_what_was_replaced_but_not_what_was_cleared() {
        assert!(judge(4, None, Promise::Relaxed) && judge(4, Some(1), Promise::Relaxed));
        assert!(!judge(6, Some(2), Promise::Relaxed) && !judge(3, Some(3), Promise::Relaxed));
        assert!(judge(4, None, Promise::Forgetful) && !judge(4, Some(1), Promise::Forgetful));
    }

    #[test]
    fn wrong_bytes_are_wrong_whatever_was_promised() {
        let mut bytes = block(KEY, 2, 100);
        bytes[60] ^= 1;
        let judged = history(Retention::Short).judge(KEY, Some(&bytes), 4, Promise::Relaxed);
        assert!(judged.unwrap_err().starts_with("wrong bytes"));
        let other = block(b"other", 2, 100);
        history(Retention::Short).judge(KEY, Some(&other), 4, Promise::Relaxed).unwrap_err();
    }

    #[test]
    fn without_a_crash_only_the_latest_is_right() {
        let mut history = history(Retention::Long);
        history.acknowledged(KEY, 8);
        assert!(history.judge_now(KEY, Some(&block(KEY, 3, 100))).is_ok());
        assert!(history.judge_now(KEY, None).is_ok(), "it may be evicted");
        assert!(history.judge_now(KEY, Some(&block(KEY, 2, 100))).is_err());
    }

    #[test]
    fn what_is_stored_again_is_the_latest() {
        let mut history = history(Retention::Long);
        history.storing(KEY, stored(2, Retention::Long), 8);
        history.acknowledged(KEY, 9);
        assert_eq!(history.latest(KEY), Some(stored(2, Retention::Long)));
        let block = block(KEY, 2, 100);
        assert!(history.judge(KEY, Some(&block), 9, Promise::Strict).is_ok());
        assert!(history.judge(KEY, Some(&block), 6, Promise::Strict).is_err(), "cleared then");
        assert!(history.judge(KEY, Some(&block), 4, Promise::Strict).is_ok());
    }

    #[test]
    fn what_has_expired_is_not_to_be_found() {
        let mut history = History::default();
        let ttl = Some(Duration::ZERO);
        history.storing(KEY, Stored { ttl, ..stored(1, Retention::Long) }, 1);
        history.acknowledged(KEY, 2);
        crate::until::until_true("it has expired", || {
            history.judge(KEY, Some(&block(KEY, 1, 100)), 2, Promise::Strict).is_err()
        });
        assert!(history.judge(KEY, None, 2, Promise::Strict).is_ok());
    }

    #[test]
    fn what_is_found_after_a_crash_counts_from_then_on() {
        let mut history = history(Retention::Long);
        let mut earlier = history.clone();
        earlier.go_back(4);
        assert!(earlier.judge(KEY, Some(&block(KEY, 2, 100)), 0, Promise::Strict).is_ok());
        assert!(earlier.judge(KEY, None, 0, Promise::Strict).is_err());
        assert!(earlier.judge(KEY, Some(&block(KEY, 3, 100)), 0, Promise::Relaxed).is_err());
        history.settle(KEY, Some(&block(KEY, 3, 100)));
        assert!(history.judge(KEY, None, 9, Promise::Strict).is_err(), "it was there");
        assert!(history.judge(KEY, Some(&block(KEY, 2, 100)), 9, Promise::Strict).is_err());
    }
}
