//! Blocks in the order of their last use. Those that somebody holds are not in that order, and never the oldest.

use std::collections::HashMap;

use foldhash::fast::FixedState;

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    block: u64,
    holds: u32,
    older: u32,
    newer: u32,
}

/// Named blocks of one cache.
#[derive(Debug)]
pub struct Lru {
    places: HashMap<u64, u32, FixedState>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    held: usize,
}

impl Default for Lru {
    fn default() -> Self {
        Self {
            places: HashMap::default(),
            nodes: Vec::new(),
            free: Vec::new(),
            oldest: NOWHERE,
            newest: NOWHERE,
            held: 0,
        }
    }
}

impl Lru {
    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Number of blocks that somebody holds.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Whether a block is there.
    #[must_use]
    pub fn contains(&self, block: u64) -> bool {
        self.places.contains_key(&block)
    }

    /// How many of `blocks` are there and held by somebody.
    #[must_use]
    pub fn held_among(&self, blocks: &[u64]) -> usize {
        let is_held = |block: &&u64| {
            let at = self.places.get(*block);
            at.is_some_and(|at| self.nodes[*at as usize].holds > 0)
        };
        blocks.iter().filter(is_held).count()
    }

    /// How many of `blocks` are there, from the first one on.
    #[must_use]
    pub fn prefix(&self, blocks: &[u64]) -> usize {
        blocks.iter().take_while(|block| self.contains(**block)).count()
    }

    /// Uses a block now; true if it is new.
    pub fn touch(&mut self, block: u64) -> bool {
        let (at, is_new) = self.place(block);
        if !is_new && self.nodes[at as usize].holds == 0 {
            self.unlink(at);
        }
        if self.nodes[at as usize].holds == 0 {
            self.link(at);
        }
        is_new
    }

    /// Holds a block; true if it is new.
    pub fn hold(&mut self, block: u64) -> bool {
        let (at, is_new) = self.place(block);
        if self.nodes[at as usize].holds == 0 {
            self.held += 1;
            if !is_new {
                self.unlink(at);
            }
        }
        self.nodes[at as usize].holds += 1;
        is_new
    }

    /// Lets go of a block.
    pub fn let_go(&mut self, block: u64) {
        let at = self.places[&block];
        let node = &mut self.nodes[at as usize];
        node.holds -= 1;
        if node.holds == 0 {
            self.held -= 1;
            self.link(at);
        }
    }

    /// Removes the block that was not used for longest, if nobody holds it.
    pub fn evict(&mut self) -> Option<u64> {
        let at = self.oldest;
        let block = self.nodes.get(at as usize)?.block;
        self.unlink(at);
        self.places.remove(&block);
        self.free.push(at);
        Some(block)
    }

    /// Where a block is, and whether it came just now; then it is not in the order yet.
    fn place(&mut self, block: u64) -> (u32, bool) {
        if let Some(at) = self.places.get(&block) {
            return (*at, false);
        }
        let node = Node { block, holds: 0, older: NOWHERE, newer: NOWHERE };
        let at = if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            at
        } else {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).unwrap_or(NOWHERE)
        };
        self.places.insert(block, at);
        (at, true)
    }

    fn link(&mut self, at: u32) {
        let newest = self.newest;
        let node = &mut self.nodes[at as usize];
        (node.older, node.newer) = (newest, NOWHERE);
        match self.nodes.get_mut(newest as usize) {
            Some(before) => before.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: u32) {
        let Node { older, newer, .. } = self.nodes[at as usize];
        match self.nodes.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => self.oldest = newer,
        }
        match self.nodes.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_nobody_holds_goes_first() {
        let mut lru = Lru::default();
        for block in 1..=4 {
            assert!(lru.touch(block));
        }
        assert!(!lru.touch(1) && !lru.hold(2));
        assert_eq!((lru.prefix(&[1, 2, 3, 9, 4]), lru.held()), (3, 1));
        assert_eq!(
            [lru.evict(), lru.evict(), lru.evict(), lru.evict()],
            [Some(3), Some(4), Some(1), None]
        );
        lru.let_go(2);
        assert!(lru.hold(5));
        assert_eq!((lru.evict(), lru.evict(), lru.len()), (Some(2), None, 1));
    }
}
