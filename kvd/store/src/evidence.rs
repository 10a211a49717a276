//! Why a key is not there: memory of the past in two tables of fixed size.
//!
//! *Removals*, by hash of namespace and key: how the last row under this name left.
//! *Elsewhere*, by hash of the key alone: namespaces that stored it. Both forget the oldest entry
//! of a bucket when it is full, so an answer may be missing, and says "never stored" then.
//! A removal is believed on 48 equal bits of its hash; a namespace is checked against the index.

use kvd_proto::miss::MissReason;

use crate::namespaces::NamespaceId;

/// Entries that share one bucket, newest first: half a cache line.
const WAYS: usize = 4;

const CODE_BITS: u64 = 0xff;
const NUMBER_BITS: u64 = 0xffff_ffff;

#[derive(Debug)]
pub(crate) struct Evidence {
    /// Upper 56 bits of the hash, then the code of the reason. 0: empty.
    removals: Table,
    /// Upper 32 bits of the hash, then the number of the namespace plus one. 0: empty.
    elsewhere: Table,
}

impl Evidence {
    /// Two tables of `slots` (rounded up to a power of two) times 8 bytes.
    pub(crate) fn new(slots: u32) -> Self {
        Self { removals: Table::new(slots), elsewhere: Table::new(slots) }
    }

    /// The row under `hash` left for `reason`.
    pub(crate) fn removed(&mut self, hash: u64, reason: MissReason) {
        let tag = hash & !CODE_BITS;
        let bucket = self.removals.bucket_mut(hash >> 16);
        put(bucket, tag | u64::from(reason.code()), |slot| slot & !CODE_BITS == tag);
    }

    /// A row came under `hash`, whose key alone has `key_hash`, in `namespace`.
    pub(crate) fn stored(&mut self, hash: u64, key_hash: u64, namespace: NamespaceId) {
        let tag = hash & !CODE_BITS;
        for slot in self.removals.bucket_mut(hash >> 16) {
            if *slot & !CODE_BITS == tag {
                *slot = 0;
            }
        }
        let word = (key_hash & !NUMBER_BITS) | (u64::from(namespace.0) + 1);
        put(self.elsewhere.bucket_mut(key_hash), word, |slot| slot == word);
    }

    /// How the row under `hash` left, if remembered.
    pub(crate) fn removal(&self, hash: u64) -> Option<MissReason> {
        let tag = hash & !CODE_BITS;
        let bucket = self.removals.bucket(hash >> 16);
        let slot = bucket.iter().find(|&&slot| slot & !CODE_BITS == tag)?;
        let [code, ..] = slot.to_le_bytes();
        MissReason::from_code(code)
    }

    /// Namespaces that may hold the key with this hash, newest first.
    pub(crate) fn elsewhere(&self, key_hash: u64) -> impl Iterator<Item = NamespaceId> + '_ {
        let bucket = self.elsewhere.bucket(key_hash);
        let same = move |slot: &&u64| **slot & !NUMBER_BITS == key_hash & !NUMBER_BITS;
        bucket.iter().filter(same).filter_map(|slot| {
            let number = u32::try_from(slot & NUMBER_BITS).ok()?.checked_sub(1)?;
            Some(NamespaceId(number))
        })
    }
}

#[derive(Debug)]
struct Table {
    slots: Box<[u64]>,
}

impl Table {
    fn new(slots: u32) -> Self {
        let slots = (slots as usize).max(WAYS).next_power_of_two();
        Self { slots: vec![0; slots].into_boxed_slice() }
    }

    fn start(&self, hash: u64) -> usize {
        let buckets = (self.slots.len() / WAYS) as u64;
        usize::try_from(hash % buckets).unwrap_or(0) * WAYS
    }

    fn bucket(&self, hash: u64) -> &[u64] {
        let start = self.start(hash);
        &self.slots[start..start + WAYS]
    }

    fn bucket_mut(&mut self, hash: u64) -> &mut [u64] {
        let start = self.start(hash);
        &mut self.slots[start..start + WAYS]
    }
}

/// Puts `word` first; it takes the place of the entry that `same` picks, or of the oldest.
fn put(bucket: &mut [u64], word: u64, same: impl Fn(u64) -> bool) {
    let of = |wanted: &dyn Fn(u64) -> bool| bucket.iter().position(|&slot| wanted(slot));
    let gap = of(&same).or_else(|| of(&|slot| slot == 0)).unwrap_or(WAYS - 1);
    bucket[..=gap].rotate_right(1);
    bucket[0] = word;
}

#[cfg(test)]
mod tests {
    use super::Evidence;
    use crate::namespaces::NamespaceId;
    use kvd_proto::miss::MissReason;
    use kvd_proto::retention::Retention;

    #[test]
    fn the_last_removal_counts_until_the_key_is_stored_again() {
        let mut evidence = Evidence::new(64);
        let hash = 0xdead_beef_0123_4567;
        assert_eq!(evidence.removal(hash), None);
        evidence.removed(hash, MissReason::Expired);
        evidence.removed(hash, MissReason::Evicted(Retention::Long));
        assert_eq!(evidence.removal(hash), Some(MissReason::Evicted(Retention::Long)));
        assert_eq!(evidence.removal(hash ^ (1 << 60)), None);
        evidence.stored(hash, 1, NamespaceId(0));
        assert_eq!(evidence.removal(hash), None);
    }

    #[test]
    fn a_full_bucket_forgets_the_oldest() {
        let mut evidence = Evidence::new(1);
        for high in 1..=5_u64 {
            evidence.removed(high << 40, MissReason::Cleared);
        }
        assert_eq!(evidence.removal(1 << 40), None);
        for high in 2..=5_u64 {
            assert_eq!(evidence.removal(high << 40), Some(MissReason::Cleared));
        }
    }

    #[test]
    fn several_namespaces_of_one_key_are_kept() {
        let mut evidence = Evidence::new(64);
        for namespace in [3, 0, 3, 7] {
            evidence.stored(9, 0xabcd_0000_0000_0001, NamespaceId(namespace));
        }
        let all: Vec<_> = evidence.elsewhere(0xabcd_0000_0000_0001).collect();
        assert_eq!(all, [NamespaceId(7), NamespaceId(3), NamespaceId(0)]);
        assert_eq!(evidence.elsewhere(0xabce_0000_0000_0001).count(), 0);
    }
}
