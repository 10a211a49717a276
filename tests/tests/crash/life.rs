//! A random life of one client on a rig, with a history; and a look at all its keys on another rig, after a crash.

use std::collections::BTreeMap;

use kvd_client::{Namespace, Retention};
use kvd_store::{Verdict, WaitId};
use kvd_tests::content::Random;
use kvd_tests::parts::history::{History, Promise, Stored, block};

use crate::rig::{Put, Rig};

const SPACES: [Namespace<'static>; 2] =
    [Namespace { model: "m", compat_key: "0" }, Namespace { model: "m", compat_key: "1" }];

/// What is done, in shares of a hundred.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    pub(crate) puts: usize,
    pub(crate) clears: usize,
    /// Keys in each namespace.
    pub(crate) keys: usize,
    pub(crate) len_max: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Life {
    random: Random,
    habits: Habits,
    pub(crate) history: History,
    /// What waits for the disk, by key; a clear by every key that it is about.
    pending: BTreeMap<Vec<u8>, WaitId>,
}

impl Life {
    pub(crate) fn new(seed: u64, habits: Habits) -> Self {
        let random = Random::seeded(seed);
        Self { random, habits, history: History::default(), pending: BTreeMap::new() }
    }

    fn key(&self, space: usize, number: usize) -> Vec<u8> {
        format!("{space}/{number}").into_bytes()
    }

    fn any_key(&mut self) -> (usize, Vec<u8>) {
        let (space, number) =
            (self.random.below(SPACES.len()), self.random.below(self.habits.keys));
        (space, self.key(space, number))
    }

    /// Does some things, with turns of the device between them.
    pub(crate) fn live(&mut self, rig: &mut Rig, things: usize) {
        for _ in 0..things {
            let clears = self.habits.puts + self.habits.clears;
            match self.random.below(100) {
                thing if thing < self.habits.puts => self.put(rig),
                thing if thing < clears => self.clear(rig),
                _ => self.look(rig),
            }
            for _ in 0..self.random.below(4) {
                rig.turn();
                self.ask(rig);
            }
        }
        assert!(rig.is_well(), "the device is out of use");
    }

    /// Notes what has been decided.
    fn ask(&mut self, rig: &mut Rig) {
        let mut waits: Vec<WaitId> = self.pending.values().copied().collect();
        waits.dedup();
        for wait in waits {
            // All of a clear's keys have the same wait, which is forgotten with its answer.
            if self.pending.values().any(|other| *other == wait) {
                let verdict = rig.verdict(wait);
                self.decided(rig, wait, verdict);
            }
        }
    }

    fn decided(&mut self, rig: &Rig, wait: WaitId, verdict: Verdict) {
        if verdict == Verdict::Pending {
            return;
        }
        let position = rig.position();
        let keys: Vec<Vec<u8>> = self.pending.keys().cloned().collect();
        for key in keys {
            if self.pending.get(&key) == Some(&wait) {
                self.pending.remove(&key);
                if verdict != Verdict::Failed {
                    self.history.acknowledged(&key, position);
                }
            }
        }
    }

    /// Waits for what is under way with a key.
    fn finish(&mut self, rig: &mut Rig, key: &[u8]) {
        if let Some(&wait) = self.pending.get(key) {
            let verdict = rig.decide(wait);
            self.decided(rig, wait, verdict);
        }
    }

    /// Something new for a key, or once more what it was given last.
    fn any_block(&mut self, key: &[u8]) -> Stored {
        if let Some(latest) = self.history.latest(key)
            && self.random.below(8) == 0
        {
            return latest;
        }
        let len = 8 + match self.random.below(4) {
            0 => 0,
            1 => self.random.below(500),
            _ => self.random.below(self.habits.len_max - 8),
        };
        let class = match self.random.below(10) {
            0..7 => Retention::Long,
            7 | 8 => Retention::Short,
            _ => Retention::Ephemeral,
        };
        Stored { version: self.history.new_version(), len, class, ttl: None }
    }

    fn put(&mut self, rig: &mut Rig) {
        let (space, key) = self.any_key();
        self.finish(rig, &key);
        let stored = self.any_block(&key);
        let Stored { len, class, .. } = stored;
        self.history.storing(&key, stored, rig.position());
        match rig.put(SPACES[space], &key, &block(&key, stored.version, len), class) {
            Put::Done => self.history.acknowledged(&key, rig.position()),
            Put::Waits(wait) => drop(self.pending.insert(key, wait)),
            Put::Refused => self.history.refused(&key),
        }
    }

    fn clear(&mut self, rig: &mut Rig) {
        let space = self.random.below(SPACES.len());
        let keys: Vec<Vec<u8>> =
            (0..self.habits.keys).map(|number| self.key(space, number)).collect();
        keys.iter().for_each(|key| self.finish(rig, key));
        self.history.clearing(&keys, rig.position());
        let wait = rig.clear(SPACES[space]);
        for key in keys {
            match wait {
                Some(wait) => drop(self.pending.insert(key, wait)),
                None => self.history.acknowledged(&key, rig.position()),
            }
        }
    }

    fn look(&mut self, rig: &mut Rig) {
        let (space, key) = self.any_key();
        self.finish(rig, &key);
        let found = rig.get(SPACES[space], &key);
        self.ask(rig);
        let judged = self.history.judge_now(&key, found.as_deref());
        judged.unwrap_or_else(|wrong| panic!("{}: {wrong}", key.escape_ascii()));
    }

    /// Looks at every key on a rig that came up after a crash; how many are there, or the first thing that is wrong.
    pub(crate) fn check(&self, rig: &mut Rig, cut: u64, promise: Promise) -> Result<usize, String> {
        let mut hits = 0;
        for (space, namespace) in SPACES.into_iter().enumerate() {
            for number in 0..self.habits.keys {
                let key = self.key(space, number);
                let found = rig.get(namespace, &key);
                self.history
                    .judge(&key, found.as_deref(), cut, promise)
                    .map_err(|wrong| format!("{}: {wrong}; {}", key.escape_ascii(), rig.report))?;
                hits += usize::from(found.is_some());
            }
        }
        Ok(hits)
    }

    /// Goes on with what is there after a crash at `cut`, with other luck than it had before.
    pub(crate) fn go_on(&self, rig: &mut Rig, cut: u64, seed: u64) -> Self {
        let mut life = Self::new(seed, self.habits);
        life.history = self.history.clone();
        life.history.go_back(cut);
        for (space, namespace) in SPACES.into_iter().enumerate() {
            for number in 0..self.habits.keys {
                let key = self.key(space, number);
                let found = rig.get(namespace, &key);
                life.history.settle(&key, found.as_deref());
            }
        }
        life
    }
}
