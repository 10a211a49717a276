//! The blocks of one holder, counted, and where they don't go back to a beginning.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::index::{HolderId, Index, Kind, Name};

/// What comes before a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing: a prompt begins here.
    Nothing,
    /// This block.
    Block(u64),
    /// Nobody knows.
    Unknown,
}

/// A block, or a gap in front of one: then `names` is 0.
#[derive(Clone, Copy, Debug)]
struct Node {
    before: u64,
    /// Hashes of the engine that stand for the block.
    names: u32,
    /// Blocks here that come right behind it.
    behind: u32,
}

const BEGINNING: u64 = 0;
const UNKNOWN: u64 = u64::MAX;

impl Before {
    const fn pack(self) -> u64 {
        match self {
            Self::Nothing => BEGINNING,
            Self::Block(bits) => bits,
            Self::Unknown => UNKNOWN,
        }
    }

    const fn unpack(bits: u64) -> Self {
        match bits {
            BEGINNING => Self::Nothing,
            UNKNOWN => Self::Unknown,
            bits => Self::Block(bits),
        }
    }
}

#[derive(Debug)]
pub(super) struct Holding {
    id: HolderId,
    kind: Kind,
    nodes: HashMap<u64, Node, FixedState>,
}

impl Holding {
    pub(super) fn new(id: HolderId, kind: Kind) -> Self {
        Self { id, kind, nodes: HashMap::default() }
    }

    pub(super) const fn id(&self) -> HolderId {
        self.id
    }

    pub(super) fn has(&self, bits: u64) -> bool {
        self.nodes.get(&bits).is_some_and(|node| node.names > 0)
    }

    /// What comes before a block that is here.
    pub(super) fn before(&self, bits: u64) -> Option<Before> {
        self.nodes.get(&bits).filter(|node| node.names > 0).map(|node| Before::unpack(node.before))
    }

    /// One more name stands for the block. False if there was no room for it.
    pub(super) fn add(&mut self, index: &Index, bits: u64, before: Before) -> bool {
        let name = Name::new(self.kind, bits);
        let node = match self.nodes.entry(bits) {
            Entry::Occupied(mut known) if known.get().names > 0 => {
                let node = known.get_mut();
                node.names = node.names.saturating_add(1);
                return true;
            }
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(Node { before: BEGINNING, names: 0, behind: 0 }),
        };
        if before == Before::Unknown {
            index.mark_crack(name);
        }
        if !index.insert(self.id, name) {
            if before == Before::Unknown {
                index.unmark_crack(name);
            }
            if node.behind == 0 {
                self.nodes.remove(&bits);
            }
            return false;
        }
        let was_gap = node.behind > 0;
        (node.names, node.before) = (1, before.pack());
        if let Before::Block(parent) = before {
            self.gain_child(index, parent);
        }
        if was_gap {
            index.unmark_crack(name);
        }
        true
    }

    fn gain_child(&mut self, index: &Index, parent: u64) {
        let gap = Node { before: BEGINNING, names: 0, behind: 0 };
        let node = self.nodes.entry(parent).or_insert(gap);
        if node.names == 0 && node.behind == 0 {
            index.mark_crack(Name::new(self.kind, parent));
        }
        node.behind = node.behind.saturating_add(1);
    }

    /// One name less stands for the block; with the last one it leaves.
    pub(super) fn release(&mut self, index: &Index, bits: u64) {
        let Some(node) = self.nodes.get_mut(&bits).filter(|node| node.names > 0) else {
            return;
        };
        node.names -= 1;
        if node.names == 0 {
            self.leave(index, bits);
        }
    }

    /// The block leaves, however many names stand for it.
    pub(super) fn drop_block(&mut self, index: &Index, bits: u64) {
        if let Some(node) = self.nodes.get_mut(&bits).filter(|node| node.names > 0) {
            node.names = 0;
            self.leave(index, bits);
        }
    }

    /// Its last name is gone.
    fn leave(&mut self, index: &Index, bits: u64) {
        let Some(node) = self.nodes.get(&bits).copied() else {
            return;
        };
        let name = Name::new(self.kind, bits);
        if node.behind > 0 {
            index.mark_crack(name);
        } else {
            self.nodes.remove(&bits);
        }
        index.remove(self.id, name);
        match Before::unpack(node.before) {
            Before::Nothing => {}
            Before::Unknown => index.unmark_crack(name),
            Before::Block(parent) => self.lose_child(index, parent),
        }
    }

    fn lose_child(&mut self, index: &Index, parent: u64) {
        let Some(node) = self.nodes.get_mut(&parent) else {
            return;
        };
        node.behind = node.behind.saturating_sub(1);
        if node.names == 0 && node.behind == 0 {
            self.nodes.remove(&parent);
            index.unmark_crack(Name::new(self.kind, parent));
        }
    }

    /// Everything leaves.
    pub(super) fn drop_all(&mut self, index: &Index) {
        let (id, kind) = (self.id, self.kind);
        self.nodes.drain().for_each(|(bits, node)| {
            let name = Name::new(kind, bits);
            if node.names == 0 {
                index.unmark_crack(name);
                return;
            }
            index.remove(id, name);
            if Before::unpack(node.before) == Before::Unknown {
                index.unmark_crack(name);
            }
        });
    }
}
