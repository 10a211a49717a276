//! Free ranges by size: best fit.

use std::collections::BTreeSet;

use super::ExtentId;
use super::layout::{Footprint, Layout};

/// Ranges of nearly the right size that are tried for their alignment before one is taken that
/// is large enough for any.
const ALIGNMENT_TRIES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Holes {
    /// (bytes, start, extent): the smallest that fits comes first, the lowest of equals.
    by_size: BTreeSet<(u64, u64, ExtentId)>,
}

impl Holes {
    pub(super) fn insert(&mut self, bytes: u64, start: u64, id: ExtentId) {
        assert!(self.by_size.insert((bytes, start, id)), "hole {id:?} is known already");
    }

    pub(super) fn remove(&mut self, bytes: u64, start: u64, id: ExtentId) {
        assert!(self.by_size.remove(&(bytes, start, id)), "hole {id:?} is unknown");
    }

    /// The best hole for `need` and the place in it.
    pub(super) fn fit(&self, layout: &Layout, need: Footprint) -> Option<(ExtentId, u64)> {
        let place = |&(bytes, start, id): &(u64, u64, ExtentId)| {
            layout.place(start, start + bytes, need).map(|at| (id, at))
        };
        let near = self.by_size.range((need.bytes, 0, ExtentId(0))..).take(ALIGNMENT_TRIES);
        near.filter_map(place).next().or_else(|| {
            let sure = need.bytes + need.align;
            self.by_size.range((sure, 0, ExtentId(0))..).next().and_then(place)
        })
    }

    pub(super) fn contains(&self, bytes: u64, start: u64, id: ExtentId) -> bool {
        self.by_size.contains(&(bytes, start, id))
    }

    pub(super) fn len(&self) -> u64 {
        self.by_size.len() as u64
    }

    pub(super) fn largest_bytes(&self) -> u64 {
        self.by_size.last().map_or(0, |&(bytes, ..)| bytes)
    }
}
