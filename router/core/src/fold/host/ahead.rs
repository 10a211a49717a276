//! The way back, from what a request needs to the keys by which the daemon can read it ahead.

use core::ops::Range;
use std::sync::Arc;

use kvd_proto::events::CacheTier;

use super::super::families::without_ranks;
use super::super::rows::SpaceName;
use super::{HostView, Space};
use crate::index::{Chains, is_same_model};

/// Most keys that are looked up for one request.
const KEYS_MAX: usize = 1 << 16;

/// What may be read ahead.
#[derive(Clone, Copy, Debug)]
pub enum Ahead<'a> {
    /// Blocks of a prompt, by their places in it.
    Blocks {
        /// The names of all its blocks.
        chains: &'a Chains<'a>,
        /// Those that are meant.
        blocks: &'a [Range<u32>],
    },
    /// Entries by the daemon's keys.
    Keys {
        /// Of whom: all ranks of whoever has this key; empty for everybody.
        compat_key: &'a str,
        /// The keys.
        keys: &'a [&'a [u8]],
    },
}

/// Keys of one namespace of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Its model, as the daemon has it.
    pub model: Box<str>,
    /// Its compatibility key.
    pub compat_key: Box<str>,
    /// The keys, in the order of what was asked.
    pub keys: Vec<Arc<[u8]>>,
}

impl HostView {
    /// What of `ahead` is below the host's memory and not in it, of a model with these names: the daemon's keys, namespace by namespace, so rank by
    /// rank. Nothing if it is not known what the daemon has; of blocks what is known counts even if it is doubted,
    /// because then so does the score that is to come true.
    #[must_use]
    pub fn keys_ahead(&self, models: &[Arc<str>], ahead: &Ahead<'_>) -> Option<Vec<Keys>> {
        let family = match ahead {
            Ahead::Blocks { .. } => None,
            Ahead::Keys { .. } if self.epoch.is_none() || self.is_doubted() => return None,
            Ahead::Keys { compat_key, .. } => Some(without_ranks(compat_key).0),
        };
        let is_meant = |compat_key: &str| match &family {
            Some(text) if !text.is_empty() => without_ranks(compat_key).0 == *text,
            Some(_) | None => true,
        };
        let (mut found, mut room) = (Vec::new(), KEYS_MAX);
        for (name, space) in &self.spaces {
            let name = name.name();
            let is_below = matches!(name.tier, CacheTier::L3 | CacheTier::L4);
            let is_of_model = models.iter().any(|model| is_same_model(name.model, model));
            if !is_below || !is_of_model || !is_meant(name.compat_key) {
                continue;
            }
            let in_memory = SpaceName { pool: None, tier: CacheTier::L2, ..name };
            let in_memory = self.spaces.get(&in_memory).map(|space| &space.rows);
            let mut keys = self.keys_in(space, name.tier, ahead);
            keys.retain(|key| in_memory.is_none_or(|rows| !rows.has(key)));
            keys.truncate(room);
            room -= keys.len();
            if !keys.is_empty() {
                let (model, compat_key) = (name.model.into(), name.compat_key.into());
                found.push(Keys { model, compat_key, keys });
            }
        }
        Some(found)
    }

    fn keys_in(&self, space: &Space, tier: CacheTier, ahead: &Ahead<'_>) -> Vec<Arc<[u8]>> {
        match ahead {
            Ahead::Keys { keys, .. } => {
                let there = keys.iter().filter(|key| space.rows.has(key));
                there.take(KEYS_MAX).map(|key| Arc::from(*key)).collect()
            }
            Ahead::Blocks { chains, blocks } => {
                let shapes = space.family.into_iter().flat_map(|it| self.families.shapes(it, tier));
                let names = shapes.flat_map(|(kind, stride)| {
                    let chunks = blocks.iter().flat_map(move |range| chunks_of(range, stride));
                    chunks.filter_map(move |chunk| chains.name(kind, stride, chunk))
                });
                names.filter_map(|name| space.rows.key_of(name)).take(KEYS_MAX).cloned().collect()
            }
        }
    }
}

/// The chunks that some of these blocks are in.
fn chunks_of(blocks: &Range<u32>, stride: u32) -> Range<usize> {
    let stride = stride.max(1);
    (blocks.start / stride) as usize..blocks.end.div_ceil(stride) as usize
}
