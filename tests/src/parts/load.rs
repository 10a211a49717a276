//! Clients that store, overwrite, clear and read at random, each its own keys, and keep a history of it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kvd_client::{ClearScope, Client, ClientError, MissReason, Namespace, Refusal, Retention};

use super::history::{History, Promise, Stored, block};
use crate::content::Random;
use crate::engine::client_at;

/// Namespaces of each client; a clear hits one of them.
const NAMESPACES: usize = 2;
/// Keys in each namespace.
const KEYS: usize = 12;
/// Longest block. All blocks of all clients together must fit the device, so that nothing is evicted from it.
const LEN_MAX: usize = 192 << 10;

/// One client, over the lives of a daemon.
#[derive(Debug)]
pub struct Owner {
    name: String,
    random: Random,
    /// What it did.
    pub history: History,
}

/// What a look at all keys found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Keys with a value.
    pub hits: usize,
    /// Keys without.
    pub misses: usize,
}

impl Owner {
    /// A client that has not done anything; different numbers have different keys.
    #[must_use]
    pub fn new(number: u64, seed: u64) -> Self {
        let mut random = Random::seeded(seed.wrapping_add(number << 32));
        random.next_u64();
        Self { name: format!("owner-{number}"), random, history: History::default() }
    }

    /// Does one thing after the other until `stop` is set or the daemon is gone, and counts in `done`. `position` says
    /// when something is.
    ///
    /// # Errors
    /// What is wrong with something that was read.
    pub fn work(
        &mut self,
        socket: &Path,
        stop: &AtomicBool,
        done: &AtomicU64,
        position: impl Fn() -> u64,
    ) -> Result<(), String> {
        let client = client_at(socket);
        while !stop.load(Ordering::Relaxed) {
            done.fetch_add(1, Ordering::Relaxed);
            let went_on = match self.random.below(100) {
                0..55 => self.store(&client, &position),
                55..97 => self.look(&client)?,
                _ => self.clear(&client, &position),
            };
            if !went_on {
                break;
            }
        }
        Ok(())
    }

    fn space(&self, number: usize) -> (String, String) {
        (self.name.clone(), format!("space-{number}"))
    }

    fn key(space: usize, number: usize) -> Vec<u8> {
        format!("{space}/{number}").into_bytes()
    }

    fn any_key(&mut self) -> (usize, Vec<u8>) {
        let (space, number) = (self.random.below(NAMESPACES), self.random.below(KEYS));
        (space, self.unique(Self::key(space, number)))
    }

    /// Keys of different clients have different bytes, so that one cannot pass for another.
    fn unique(&self, key: Vec<u8>) -> Vec<u8> {
        [self.name.as_bytes(), b"/", &key].concat()
    }

    /// Something new for a key, or once more what it was given last.
    fn any_block(&mut self, key: &[u8]) -> Stored {
        if let Some(latest) = self.history.latest(key)
            && self.random.below(8) == 0
        {
            return latest;
        }
        let len = 8 + match self.random.below(3) {
            0 => self.random.below(4_096),
            1 => self.random.below(64 << 10),
            _ => self.random.below(LEN_MAX - 8),
        };
        let class = match self.random.below(10) {
            0..7 => Retention::Long,
            7 | 8 => Retention::Short,
            _ => Retention::Ephemeral,
        };
        let ttl = match self.random.below(10) {
            0 => Some(Duration::from_millis(200 + self.random.next_u64() % 2_000)),
            1 => Some(Duration::from_secs(3_600)),
            _ => None,
        };
        Stored { version: self.history.new_version(), len, class, ttl }
    }

    fn store(&mut self, client: &Client, position: impl Fn() -> u64) -> bool {
        let (space, key) = self.any_key();
        let (model, compat_key) = self.space(space);
        let namespace = Namespace { model: &model, compat_key: &compat_key };
        let stored = self.any_block(&key);
        let Stored { len, class, ttl, .. } = stored;
        let bytes = block(&key, stored.version, len);
        self.history.storing(&key, stored, position());
        match client.put(namespace, &key, &bytes, class, ttl) {
            Ok(()) => self.history.acknowledged(&key, position()),
            // It is in memory, and perhaps on disk.
            Err(ClientError::Declined(Refusal::NotDurable)) => {}
            Err(ClientError::Declined(_)) => self.history.refused(&key),
            Err(_) => return false,
        }
        true
    }

    fn look(&mut self, client: &Client) -> Result<bool, String> {
        let (space, key) = self.any_key();
        match self.get(client, space, &key) {
            Ok(found) => self.history.judge_now(&key, found.as_deref()).map(|()| true),
            Err(_) => Ok(false),
        }
    }

    fn get(
        &self,
        client: &Client,
        space: usize,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, ClientError> {
        let (model, compat_key) = self.space(space);
        match client.get(Namespace { model: &model, compat_key: &compat_key }, key) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(ClientError::Miss(_)) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    fn clear(&mut self, client: &Client, position: impl Fn() -> u64) -> bool {
        let space = self.random.below(NAMESPACES);
        let (model, compat_key) = self.space(space);
        let keys: Vec<Vec<u8>> =
            (0..KEYS).map(|number| self.unique(Self::key(space, number))).collect();
        self.history.clearing(&keys, position());
        let scope = ClearScope::Namespace(Namespace { model: &model, compat_key: &compat_key });
        if client.clear(scope).is_err() {
            return false;
        }
        let position = position();
        keys.iter().for_each(|key| self.history.acknowledged(key, position));
        true
    }

    /// Looks at every key after a crash at `cut`, and holds what is there against the history.
    ///
    /// # Errors
    /// The first thing that is wrong.
    ///
    /// # Panics
    /// If the daemon does not answer, or not in time.
    pub fn check(&self, client: &Client, cut: u64, promise: Promise) -> Result<Found, String> {
        let mut all = Found::default();
        for (key, found) in self.look_at_all(client) {
            let judged = self.history.judge(&key, found.as_deref(), cut, promise);
            judged.map_err(|wrong| format!("{}: {wrong}", String::from_utf8_lossy(&key)))?;
            match found {
                Some(_) => all.hits += 1,
                None => all.misses += 1,
            }
        }
        Ok(all)
    }

    /// After a crash: what is found now is what there is.
    ///
    /// # Panics
    /// As [`Owner::check`].
    pub fn settle(&mut self, client: &Client) {
        for (key, found) in self.look_at_all(client) {
            self.history.settle(&key, found.as_deref());
        }
    }

    fn look_at_all(&self, client: &Client) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut all = Vec::new();
        for space in 0..NAMESPACES {
            let (model, compat_key) = self.space(space);
            let namespace = Namespace { model: &model, compat_key: &compat_key };
            for number in 0..KEYS {
                let key = self.unique(Self::key(space, number));
                let found = match client.get(namespace, &key) {
                    Ok(bytes) => Some(bytes),
                    Err(ClientError::Miss(MissReason::Deadline | MissReason::Shed)) => {
                        panic!("no answer for {}", String::from_utf8_lossy(&key))
                    }
                    Err(ClientError::Miss(_)) => None,
                    Err(trouble) => panic!("{}: {trouble:?}", String::from_utf8_lossy(&key)),
                };
                all.push((key, found));
            }
        }
        all
    }
}

/// The seed that `KVD_PARTS_SEED` asks for, else `usual`.
///
/// # Panics
/// If it asks for something that is no number.
#[must_use]
pub fn seed(usual: u64) -> u64 {
    let asked = std::env::var("KVD_PARTS_SEED").ok();
    asked.map_or(usual, |seed| seed.parse().expect("KVD_PARTS_SEED is a number"))
}
