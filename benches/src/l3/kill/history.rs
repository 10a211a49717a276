//! What happened to one key, and what may therefore be found under it after a kill.
//!
//! One writer has a key for itself and does one thing after the other, so only the last thing may be in doubt: it was
//! asked for and not answered before the daemon died.

use std::time::{Duration, SystemTime};

use kvd_client::Retention;

/// Wall clocks are compared, the daemon's with ours: it is the same clock, read at other moments.
const SLACK: Duration = Duration::from_millis(100);

/// When a value ends: the daemon counts from a moment between the request and its answer, and with strict durability the
/// answer waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// It is there until then: its time to live after the request.
    pub earliest: SystemTime,
    /// It is gone from then on: its time to live after the answer.
    pub latest: SystemTime,
}

/// A value that was stored, or may have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Which value: no two of a key have the same number.
    pub version: u64,
    /// Its class.
    pub class: Retention,
    /// When it ends, if it does.
    pub ends: Option<Ends>,
}

/// Something that was done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A value was stored.
    Put(Put),
    /// Its namespace was cleared.
    Clear,
}

/// What is known of one key.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Values before the latest acknowledged deed.
    older: Vec<u64>,
    /// The latest deed that was acknowledged.
    latest: Option<Deed>,
    /// One that was asked for after it and not answered.
    doubtful: Option<Deed>,
}

/// What the daemon says after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// The value with this number.
    Version(u64),
    /// Bytes that were never stored under the key.
    WrongBytes,
}

/// What that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it must be.
    Right,
    /// Nothing, where a block of class long was acknowledged.
    Lost,
    /// A value that an acknowledged one has replaced.
    Stale,
    /// A value that was cleared, has ended, or was gone before.
    Phantom,
    /// Bytes that never were a value of this key.
    Wrong,
}

impl History {
    /// A deed is about to be asked for.
    pub fn ask(&mut self, deed: Deed) {
        self.doubtful = Some(deed);
    }

    /// The deed that was asked for was acknowledged; a value with this end.
    pub fn acknowledge(&mut self, ends: Option<Ends>) {
        let Some(mut deed) = self.doubtful.take() else { return };
        if let Deed::Put(put) = &mut deed {
            put.ends = ends;
        }
        if let Some(Deed::Put(before)) = self.latest.replace(deed) {
            self.older.push(before.version);
        }
    }

    /// The deed that was asked for was refused: nothing has changed.
    pub fn refuse(&mut self) {
        self.doubtful = None;
    }

    /// Every value that was ever asked for and has not been forgotten since.
    pub fn versions(&self) -> impl Iterator<Item = u64> {
        let put = |deed: &Option<Deed>| match deed {
            Some(Deed::Put(put)) => Some(put.version),
            _ => None,
        };
        let recent = [put(&self.doubtful), put(&self.latest)].into_iter().flatten();
        recent.chain(self.older.iter().rev().copied())
    }

    /// The latest deed that was acknowledged.
    #[must_use]
    pub const fn latest(&self) -> Option<Deed> {
        self.latest
    }

    /// Judges what was found by a look-up that was sent at `now`.
    #[must_use]
    pub fn judge(&self, found: Found, now: SystemTime) -> Verdict {
        match found {
            Found::WrongBytes => Verdict::Wrong,
            Found::Nothing => self.judge_nothing(now),
            Found::Version(version) => self.judge_version(version, now),
        }
    }

    fn judge_nothing(&self, now: SystemTime) -> Verdict {
        let must_be_there = match (self.latest, self.doubtful) {
            // A block that replaces one may fail to be stored when the old one is gone already.
            (_, Some(_)) => false,
            (Some(Deed::Put(put)), None) => {
                put.class == Retention::Long
                    && put.ends.is_none_or(|ends| now < ends.earliest - SLACK)
            }
            _ => false,
        };
        if must_be_there { Verdict::Lost } else { Verdict::Right }
    }

    fn judge_version(&self, version: u64, now: SystemTime) -> Verdict {
        if let Some(Deed::Put(put)) = self.doubtful
            && put.version == version
        {
            return Verdict::Right;
        }
        match self.latest {
            Some(Deed::Put(put)) if put.version == version => {
                let over = put.ends.is_some_and(|ends| now > ends.latest + SLACK);
                if over { Verdict::Phantom } else { Verdict::Right }
            }
            Some(Deed::Put(_)) => Verdict::Stale,
            _ => Verdict::Phantom,
        }
    }

    /// Goes on from what was found: that is all there is now.
    pub fn settle(&mut self, found: Found) {
        let put = [self.doubtful, self.latest].into_iter().flatten().find_map(|deed| match deed {
            Deed::Put(put) if Found::Version(put.version) == found => Some(put),
            _ => None,
        });
        // A stale value is what there is from now on; of its class and end nothing is known any more.
        let stale = match found {
            Found::Version(version) if put.is_none() => {
                Some(Put { version, class: Retention::Short, ends: None })
            }
            _ => None,
        };
        self.doubtful = None;
        self.latest = put.or(stale).map_or(Some(Deed::Clear), |put| Some(Deed::Put(put)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn put(version: u64) -> Deed {
        Deed::Put(Put { version, class: Retention::Long, ends: None })
    }

    fn after(deeds: &[Deed]) -> History {
        let mut history = History::default();
        for deed in deeds {
            history.ask(*deed);
            history.acknowledge(None);
        }
        history
    }

    #[test]
    fn the_latest_acknowledged_value_must_be_there() {
        let history = after(&[put(1), put(2)]);
        assert_eq!(history.judge(Found::Version(2), NOW), Verdict::Right);
        assert_eq!(history.judge(Found::Version(1), NOW), Verdict::Stale);
        assert_eq!(history.judge(Found::Nothing, NOW), Verdict::Lost);
        assert_eq!(history.judge(Found::WrongBytes, NOW), Verdict::Wrong);
        assert_eq!(history.versions().collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn a_deed_in_doubt_may_have_happened_or_not() {
        let mut history = after(&[put(1)]);
        history.ask(put(2));
        for found in [Found::Version(1), Found::Version(2), Found::Nothing] {
            assert_eq!(history.judge(found, NOW), Verdict::Right, "{found:?}");
        }
        history.refuse();
        assert_eq!(history.judge(Found::Nothing, NOW), Verdict::Lost);
        history.ask(Deed::Clear);
        assert_eq!(history.judge(Found::Version(1), NOW), Verdict::Right);
    }

    #[test]
    fn what_was_cleared_or_never_there_is_a_phantom() {
        let cleared = after(&[put(1), Deed::Clear]);
        assert_eq!(cleared.judge(Found::Version(1), NOW), Verdict::Phantom);
        assert_eq!(cleared.judge(Found::Nothing, NOW), Verdict::Right);
        assert_eq!(History::default().judge(Found::Version(1), NOW), Verdict::Phantom);
    }

    #[test]
    fn what_has_ended_is_a_phantom_and_not_lost() {
        let mut history = History::default();
        history.ask(put(1));
        let at = |seconds| NOW + Duration::from_secs(seconds);
        history.acknowledge(Some(Ends { earliest: at(1), latest: at(3) }));
        let (between, later) = (at(2), at(4));
        assert_eq!(history.judge(Found::Version(1), NOW), Verdict::Right);
        assert_eq!(history.judge(Found::Nothing, NOW), Verdict::Lost);
        assert_eq!(history.judge(Found::Version(1), between), Verdict::Right);
        assert_eq!(history.judge(Found::Nothing, between), Verdict::Right, "the answer was late");
        assert_eq!(history.judge(Found::Version(1), later), Verdict::Phantom);
        assert_eq!(history.judge(Found::Nothing, later), Verdict::Right);
    }

    #[test]
    fn what_was_gone_after_one_kill_is_a_phantom_after_the_next() {
        let mut history = after(&[put(1), put(2)]);
        history.settle(Found::Nothing);
        assert_eq!(history.judge(Found::Version(2), NOW), Verdict::Phantom);
        let mut history = after(&[put(1), put(2)]);
        history.settle(Found::Version(2));
        assert_eq!(history.judge(Found::Nothing, NOW), Verdict::Lost);
    }
}
