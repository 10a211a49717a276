//! What daemons are asked to read ahead: blocks of prompts, by whatever name they have them, on their way to the thread
//! that knows the daemon's keys. What was asked for once is not asked for again while that is of use.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use router_core::fold::{Ahead, HostView, Keys, Moment};
use router_core::index::{Chains, Name};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Keys of one daemon of which it is remembered that they were asked for.
const REMEMBERED_MAX: usize = 1 << 16;

/// The names of a prompt's blocks, of every kind that was made of it.
#[derive(Debug, Default)]
pub struct Names {
    /// The router's hashes.
    pub router: Arc<[u64]>,
    /// Of SGLang's pages.
    pub sglang: Vec<u64>,
    /// Of vLLM's blocks.
    pub vllm: Vec<u64>,
    /// The daemon's keys, for each number of blocks that a chunk may have.
    pub chunk_keys: Vec<(u32, Vec<Name>)>,
}

impl Names {
    /// As questions have them.
    pub fn with_chains<T>(&self, then: impl FnOnce(&Chains<'_>) -> T) -> T {
        let Self { router, sglang, vllm, chunk_keys } = self;
        let keys = chunk_keys.iter().map(|(stride, keys)| (*stride, keys.as_slice()));
        let chunk_keys: Vec<(u32, &[Name])> = keys.collect();
        then(&Chains { router, sglang, vllm, chunk_keys: &chunk_keys })
    }
}

/// What a daemon is to read ahead.
#[derive(Debug)]
pub struct Reading {
    /// The model whose blocks these are, as requests and as the daemon may call it.
    pub models: Vec<Arc<str>>,
    /// Which ones.
    pub wanted: Wanted,
    /// How long they are of use.
    pub lifetime: Duration,
}

/// Which entries of a daemon are meant.
#[derive(Debug)]
pub enum Wanted {
    /// Blocks of a prompt.
    Blocks {
        /// The names of all its blocks.
        names: Arc<Names>,
        /// Those that are meant, by their places.
        blocks: Vec<Range<u32>>,
    },
    /// Entries by their keys.
    Keys {
        /// Whose; empty for everybody's.
        compat_key: String,
        /// The keys.
        keys: Arc<[Vec<u8>]>,
    },
}

impl Reading {
    /// The keys that are on the daemon's disk and not in its memory; nothing if that is not known.
    pub(super) fn keys(&self, view: &HostView) -> Option<Vec<Keys>> {
        match &self.wanted {
            Wanted::Blocks { names, blocks } => names.with_chains(|chains| {
                view.keys_ahead(&self.models, &Ahead::Blocks { chains, blocks })
            }),
            Wanted::Keys { compat_key, keys } => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                view.keys_ahead(&self.models, &Ahead::Keys { compat_key, keys: &keys })
            }
        }
    }

    pub(super) fn deadline_ms(&self) -> i64 {
        i64::try_from(self.lifetime.as_millis()).unwrap_or(i64::MAX)
    }
}

/// What one daemon was asked for, and how long that holds.
#[derive(Debug, Default)]
pub(super) struct Asked {
    until: HashMap<u64, Moment>,
}

impl Asked {
    /// Leaves those keys that were not asked for, or no longer count, and notes them.
    pub(super) fn keep_new(&mut self, keys: &mut Keys, now: Moment, lifetime: Duration) {
        let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let until = Moment(now.0.saturating_add(lifetime_ms));
        let seed = xxh3_64_with_seed(keys.model.as_bytes(), xxh3_64(keys.compat_key.as_bytes()));
        keys.keys.retain(|key| {
            let hash = xxh3_64_with_seed(key, seed);
            if self.until.get(&hash).is_some_and(|until| *until > now) {
                return false;
            }
            if self.until.len() >= REMEMBERED_MAX {
                self.until.retain(|_, until| *until > now);
            }
            // What is asked for twice costs little, what is remembered without end a lot.
            if self.until.len() >= REMEMBERED_MAX {
                self.until.clear();
            }
            self.until.insert(hash, until);
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(numbers: Range<u64>) -> Keys {
        let keys = numbers.map(|number| Arc::from(&number.to_be_bytes()[..])).collect();
        Keys { model: "m".into(), compat_key: "c".into(), keys }
    }

    fn new_ones(asked: &mut Asked, mut keys: Keys, now: u64) -> usize {
        asked.keep_new(&mut keys, Moment(now), Duration::from_millis(500));
        keys.keys.len()
    }

    #[test]
    fn a_key_is_asked_for_once_while_that_is_of_use() {
        let mut asked = Asked::default();
        assert_eq!(new_ones(&mut asked, keys(0..10), 0), 10);
        assert_eq!(new_ones(&mut asked, keys(5..15), 499), 5);
        assert_eq!(new_ones(&mut asked, keys(0..15), 500), 10);
        // Elsewhere it is another one.
        assert_eq!(new_ones(&mut asked, Keys { compat_key: "d".into(), ..keys(0..10) }, 0), 10);
        assert_eq!(new_ones(&mut asked, Keys { model: "n".into(), ..keys(0..10) }, 0), 10);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut asked = Asked::default();
        let many = REMEMBERED_MAX as u64;
        assert_eq!(new_ones(&mut asked, keys(0..3 * many), 0), 3 * REMEMBERED_MAX);
        assert!(asked.until.len() <= REMEMBERED_MAX);
        // What is over makes room first.
        assert_eq!(new_ones(&mut asked, keys(4 * many..4 * many + 10), 1_000), 10);
        assert!(asked.until.len() <= REMEMBERED_MAX);
    }
}
