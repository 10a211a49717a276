//! Changes in their order, copied to where they can outlive the lock.

use kvd_proto::block_key::Namespace;
use kvd_proto::events::{CacheTier, Reason, Tally};

/// Changes in the order in which they were decided. Keeps its memory from input to input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierChanges {
    heads: Vec<Head>,
    /// Of each change one after the other: model, compatibility key, key, lineage.
    bytes: Vec<u8>,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierChange<'a> {
    /// A block can be read in a tier; if one with the same name could before, this one is there instead.
    Stored(TierBlock<'a>),
    /// A block can no longer be read in a tier, for this reason, if it is one that events know.
    Removed(TierBlock<'a>, Option<Reason>),
    /// Nothing can be read in a tier any more.
    Cleared(CacheTier),
    /// What a tier holds of a namespace after every change before this one.
    Digest(Namespace<'a>, CacheTier, Tally),
    /// More changed here than is told: only a look at everything shows what is held.
    Untold,
}

/// A block in a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierBlock<'a> {
    /// Where.
    pub tier: CacheTier,
    /// Where its key lives.
    pub namespace: Namespace<'a>,
    /// Its key.
    pub key: &'a [u8],
    /// Its encoded lineage.
    pub lineage: Option<&'a [u8]>,
    /// Payload length.
    pub len_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    kind: Kind,
    tier: CacheTier,
    has_lineage: bool,
    len_bytes: u32,
    model: u32,
    compat_key: u32,
    key: u32,
    lineage: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stored,
    Removed(Option<Reason>),
    Cleared,
    Digest(Tally),
    Untold,
}

impl TierChanges {
    /// Whether there is no change.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Number of changes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.heads.len()
    }

    /// Memory that they take.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len() + self.heads.len() * size_of::<Head>()
    }

    /// Forgets all changes, keeps the memory.
    pub fn clear(&mut self) {
        self.heads.clear();
        self.bytes.clear();
    }

    /// Adds a change behind all others.
    pub fn push(&mut self, change: TierChange<'_>) {
        match change {
            TierChange::Stored(block) => self.push_block(Kind::Stored, block),
            TierChange::Removed(block, reason) => self.push_block(Kind::Removed(reason), block),
            TierChange::Digest(namespace, tier, tally) => {
                let block = TierBlock { tier, namespace, key: &[], lineage: None, len_bytes: 0 };
                self.push_block(Kind::Digest(tally), block);
            }
            TierChange::Cleared(tier) => self.push_head(Kind::Cleared, tier),
            TierChange::Untold => self.push_head(Kind::Untold, CacheTier::L2),
        }
    }

    /// Adds all of `others` behind those that are there.
    pub fn append(&mut self, others: &Self) {
        self.heads.extend_from_slice(&others.heads);
        self.bytes.extend_from_slice(&others.bytes);
    }

    /// The changes, in their order.
    pub fn iter(&self) -> impl Iterator<Item = TierChange<'_>> {
        let mut rest = self.bytes.as_slice();
        self.heads.iter().map(move |head| {
            let mut next = |len: u32| {
                let (taken, after) = rest.split_at(len as usize);
                rest = after;
                taken
            };
            let model = text(next(head.model));
            let compat_key = text(next(head.compat_key));
            let (key, lineage) = (next(head.key), next(head.lineage));
            let namespace = Namespace { model, compat_key };
            let block = TierBlock {
                tier: head.tier,
                namespace,
                key,
                lineage: head.has_lineage.then_some(lineage),
                len_bytes: head.len_bytes,
            };
            match head.kind {
                Kind::Stored => TierChange::Stored(block),
                Kind::Removed(reason) => TierChange::Removed(block, reason),
                Kind::Cleared => TierChange::Cleared(head.tier),
                Kind::Digest(tally) => TierChange::Digest(namespace, head.tier, tally),
                Kind::Untold => TierChange::Untold,
            }
        })
    }

    fn push_block(&mut self, kind: Kind, block: TierBlock<'_>) {
        let TierBlock { tier, namespace: Namespace { model, compat_key }, key, .. } = block;
        let lineage = block.lineage.unwrap_or_default();
        self.heads.push(Head {
            kind,
            tier,
            has_lineage: block.lineage.is_some(),
            len_bytes: block.len_bytes,
            model: len_of(model.as_bytes()),
            compat_key: len_of(compat_key.as_bytes()),
            key: len_of(key),
            lineage: len_of(lineage),
        });
        for part in [model.as_bytes(), compat_key.as_bytes(), key, lineage] {
            self.bytes.extend_from_slice(part);
        }
    }

    fn push_head(&mut self, kind: Kind, tier: CacheTier) {
        let (len_bytes, model, compat_key, key, lineage) = (0, 0, 0, 0, 0);
        let has_lineage = false;
        self.heads.push(Head {
            kind,
            tier,
            has_lineage,
            len_bytes,
            model,
            compat_key,
            key,
            lineage,
        });
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "names, keys and lineages are of bounded length"
)]
const fn len_of(bytes: &[u8]) -> u32 {
    bytes.len() as u32
}

fn text(bytes: &[u8]) -> &str {
    let Ok(text) = core::str::from_utf8(bytes) else {
        panic!("it was text before");
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_in_their_order() {
        let block = |key: &'static [u8], lineage| TierBlock {
            tier: CacheTier::L3,
            namespace: Namespace { model: "mödel", compat_key: "" },
            key,
            lineage,
            len_bytes: 7,
        };
        let tally = Tally { count: 1, xor: 2 };
        let namespace = Namespace { model: "", compat_key: "c" };
        let all = [
            TierChange::Stored(block(b"", None)),
            TierChange::Cleared(CacheTier::L3),
            TierChange::Removed(block(b"k", Some(b"lineage")), Some(Reason::Ttl)),
            TierChange::Removed(block(b"k", Some(b"")), None),
            TierChange::Digest(namespace, CacheTier::L2, tally),
            TierChange::Untold,
        ];
        let mut changes = TierChanges::default();
        all.into_iter().for_each(|change| changes.push(change));
        assert!(changes.iter().eq(all));
        let mut twice = changes.clone();
        twice.append(&changes);
        assert!(twice.iter().eq(all.into_iter().chain(all)));
        assert!(twice.bytes() > 2 * changes.len() * size_of::<Head>());
        twice.clear();
        assert!(twice.is_empty() && twice.iter().next().is_none());
    }
}
