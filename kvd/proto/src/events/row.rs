//! What events, snapshots and digests say of one entry of the daemon. One place, so that they say the same.

use super::block::{BlockHash, ExtraKeys, Parent};
use super::event::{Chunk, Namespace, Owner, Reason, Removed, Stored};
use super::figures::Tally;
use super::place::{CacheTier, Place};
use crate::lineage::LineageView;
use crate::pack::Array;

/// Length of a key that is a whole SHA-256 as hexadecimal digits: SGLang's name of a page.
const PAGE_KEY_BYTES: usize = 64;
/// Digits of it that are its 64-bit hash.
const PAGE_HASH_DIGITS: usize = 16;

/// An entry: its key, and the blocks that it stands for as far as they are known.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    key: &'a [u8],
    lineage: Option<LineageView<'a>>,
    /// The hash that the key itself tells.
    page: Option<[BlockHash<'a>; 1]>,
}

impl<'a> Row<'a> {
    /// An entry with the lineage that it was committed with. A lineage that cannot be read, or that has a hash of
    /// fewer than 64 bits, tells nothing.
    #[must_use]
    pub fn new(key: &'a [u8], lineage: Option<&'a [u8]>) -> Self {
        let lineage = lineage.and_then(|bytes| LineageView::parse(bytes).ok());
        let lineage = lineage.filter(|lineage| {
            let mut hashes = lineage.engine_hashes.iter().chain(lineage.parent);
            hashes.all(|hash| hash.len() >= size_of::<u64>())
        });
        let page = if lineage.is_none() { page_hash(key) } else { None };
        Self { key, lineage, page: page.map(|hash| [BlockHash::Bits(hash)]) }
    }

    /// What it adds to a digest.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally::of_row(self.block_hashes().iter().map(|hash| hash.bits()), self.key)
    }

    /// The event that it can be read in `tier`.
    #[must_use]
    pub fn stored(
        &self,
        len_bytes: u32,
        tier: CacheTier,
        owner: Owner<'a>,
        namespace: Namespace<'a>,
    ) -> Stored<'_> {
        let lineage = self.lineage.as_ref();
        let parent = lineage.map_or(Parent::Unknown, |lineage| match lineage.parent {
            Some(hash) => Parent::Block(BlockHash::Digest(hash)),
            None => Parent::Root,
        });
        Stored {
            block_hashes: self.block_hashes(),
            parent,
            block_size: lineage.map_or(0, |lineage| lineage.tokens_per_block),
            lora_name: lineage.and_then(|lineage| lineage.lora),
            extra_keys: lineage.and_then(|lineage| lineage.salt).map(ExtraKeys::Salt),
            router_hashes: self.router_hashes(),
            chunk: Some(self.chunk(len_bytes)),
            place: Place::of(tier),
            owner,
            namespace,
            ..Stored::default()
        }
    }

    /// The event that it can no longer be read in `tier`.
    #[must_use]
    pub fn removed(
        &self,
        len_bytes: u32,
        tier: CacheTier,
        owner: Owner<'a>,
        namespace: Namespace<'a>,
        reason: Option<Reason>,
    ) -> Removed<'_> {
        Removed {
            block_hashes: self.block_hashes(),
            router_hashes: self.router_hashes(),
            chunk: Some(self.chunk(len_bytes)),
            place: Place::of(tier),
            owner,
            namespace,
            reason,
            ..Removed::default()
        }
    }

    fn block_hashes(&self) -> Array<'_, BlockHash<'_>> {
        match (&self.lineage, &self.page) {
            // Both are lists of bytes, of at least eight each.
            (Some(LineageView { engine_hashes: Array::Frame(items), .. }), _) => {
                Array::Frame(*items)
            }
            (_, Some(page)) => Array::Slice(page),
            (_, None) => Array::Slice(&[]),
        }
    }

    fn router_hashes(&self) -> Array<'_, u64> {
        self.lineage.map_or(Array::Slice(&[]), |lineage| lineage.router_hashes)
    }

    fn chunk(&self, len_bytes: u32) -> Chunk<'_> {
        let blocks = self.block_hashes().len().max(self.router_hashes().len());
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Chunk { key: self.key, blocks, bytes: len_bytes.into() }
    }
}

/// The hash of an SGLang page, if the key is the name of one: its first 64 bits.
fn page_hash(key: &[u8]) -> Option<u64> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    if key.len() != PAGE_KEY_BYTES || !key.iter().all(is_digit) {
        return None;
    }
    let digits = core::str::from_utf8(key.get(..PAGE_HASH_DIGITS)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Batch, BatchWriter, Event};
    use crate::lineage::Lineage;

    fn lineage() -> Lineage {
        Lineage {
            engine_hashes: vec![vec![1; 32], vec![2; 32]],
            router_hashes: vec![7, 8],
            parent: None,
            tokens_per_block: 16,
            lora: Some("sql".into()),
            salt: Some("t1".into()),
        }
    }

    #[test]
    fn a_lineage_becomes_the_fields_of_the_event() {
        let encoded = lineage().encode();
        let row = Row::new(b"key", Some(&encoded));
        let namespace =
            Namespace { model: Some("m"), compat_key: Some("c"), ..Namespace::default() };
        let owner = Owner { id: Some("h"), epoch: Some(3) };
        let mut payload = Vec::new();
        let mut batch = BatchWriter::begin(&mut payload, 1.0);
        batch.push(&Event::Stored(row.stored(100, CacheTier::L2, owner, namespace)));
        let reason = Some(Reason::Evict);
        batch.push(&Event::Removed(row.removed(100, CacheTier::L2, owner, namespace, reason)));
        batch.finish();
        let events: Vec<Event<'_>> = Batch::decode(&payload).unwrap().events().collect();
        let Event::Stored(stored) = events[0] else { panic!("{events:?}") };
        let bits = u64::from_be_bytes([1; 8]);
        assert_eq!(stored.block_hashes.iter().next().unwrap().bits(), bits);
        assert_eq!(stored.router_hashes.iter().collect::<Vec<_>>(), [7, 8]);
        assert_eq!((stored.parent, stored.block_size), (Parent::Root, 16));
        assert_eq!(stored.lora_name, Some("sql"));
        assert_eq!(stored.chunk, Some(Chunk { key: b"key", blocks: 2, bytes: 100 }));
        assert_eq!(stored.place.cache_tier(), Some(CacheTier::L2));
        assert_eq!(row.tally(), Tally { count: 2, xor: bits ^ u64::from_be_bytes([2; 8]) });
        let Event::Removed(removed) = events[1] else { panic!("{events:?}") };
        assert_eq!((removed.block_hashes.len(), removed.reason), (2, reason));
        assert_eq!(removed.owner, owner);
    }

    #[test]
    fn a_key_alone_is_its_own_block() {
        let row = Row::new(b"key", None);
        assert_eq!(row.tally(), Tally::of_row([], b"key"));
        let stored = row.stored(1, CacheTier::L3, Owner::default(), Namespace::default());
        assert_eq!((stored.parent, stored.block_hashes.len()), (Parent::Unknown, 0));
    }

    #[test]
    fn the_name_of_a_page_is_its_hash() {
        let key = b"cf97adeedb59e05b000000000000000000000000000000000000000000000000";
        let row = Row::new(key, None);
        let stored = row.stored(1, CacheTier::L2, Owner::default(), Namespace::default());
        let hashes: Vec<_> = stored.block_hashes.iter().collect();
        assert_eq!(hashes, [BlockHash::Bits((-3_488_128_144_981_237_669_i64).cast_unsigned())]);
        assert_eq!(Row::new(&key[1..], None).tally().count, 1);
        assert_eq!(Row::new(&key[1..], None).block_hashes().len(), 0);
    }

    #[test]
    fn a_lineage_with_short_hashes_tells_nothing() {
        let short = Lineage { engine_hashes: vec![vec![1; 7]], ..lineage() }.encode();
        for bytes in [&short[..], b"rubbish"] {
            let row = Row::new(b"key", Some(bytes));
            assert_eq!(row.tally(), Tally::of_row([], b"key"));
        }
    }
}
