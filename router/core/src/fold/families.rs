//! What of a daemon's rows is whole: ranks store their parts of a chunk as rows of their own, and a chunk can be loaded
//! when all parts are there.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use kvd_proto::events::{CacheTier, Shard};

use super::NAMES_MAX;
use crate::index::{Holder, HolderId, Index, Kind, Name, Owner};

/// Most parts of a chunk.
const PARTS_MAX: u32 = 64;
/// Most sizes of chunks, and kinds of names, that one family has in one tier.
const HOLDERS_MAX: usize = 16;

/// A chunk, or a single block, as it is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Chunk {
    pub(super) kind: Kind,
    pub(super) name: Name,
    /// Blocks that it covers.
    pub(super) stride: u32,
}

/// Whose chunks: everything that is equal for all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FamilyName {
    pub(super) owner: Owner,
    pub(super) model: Arc<str>,
    /// The key without the numbers of ranks.
    pub(super) text: Arc<str>,
}

/// The parts of one chunk that are there.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    count: u32,
    l2: u64,
    l3: u64,
    l4: u64,
}

/// Chunks that can be loaded for the same engines.
#[derive(Debug)]
struct Family {
    name: FamilyName,
    chunks: HashMap<Chunk, Parts, FixedState>,
    holders: Vec<(CacheTier, Kind, u32, HolderId)>,
}

#[derive(Debug, Default)]
pub(super) struct Families {
    families: Vec<Family>,
}

const TIERS: [CacheTier; 3] = [CacheTier::L2, CacheTier::L3, CacheTier::L4];

impl Parts {
    fn of(&mut self, tier: CacheTier) -> Option<&mut u64> {
        match tier {
            CacheTier::Device => None,
            CacheTier::L2 => Some(&mut self.l2),
            CacheTier::L3 => Some(&mut self.l3),
            CacheTier::L4 => Some(&mut self.l4),
        }
    }

    /// In which tiers it is whole. One whose parts are in two tiers is where the slower parts are.
    const fn whole(&self) -> [bool; 3] {
        let all = if self.count >= PARTS_MAX { u64::MAX } else { (1 << self.count) - 1 };
        [self.l2 == all, self.l2 | self.l3 == all, self.l4 == all]
    }

    const fn is_gone(&self) -> bool {
        self.l2 | self.l3 | self.l4 == 0
    }
}

impl Families {
    /// The number of a family; nothing if there are too many.
    pub(super) fn number(&mut self, name: &FamilyName) -> Option<usize> {
        let known = self.families.iter().position(|family| family.name == *name);
        known.or_else(|| {
            (self.families.len() < NAMES_MAX).then(|| {
                let (chunks, holders) = (HashMap::default(), Vec::new());
                self.families.push(Family { name: name.clone(), chunks, holders });
                self.families.len() - 1
            })
        })
    }

    /// A part came. `bytes`: length of the part. False if it gives no credit for want of room.
    pub(super) fn add(
        &mut self,
        index: &Index,
        family: usize,
        tier: CacheTier,
        (chunk, shard): (Chunk, Shard),
        bytes: u64,
    ) -> bool {
        if shard.count > PARTS_MAX || shard.index >= shard.count {
            return false;
        }
        let Some(family) = self.families.get_mut(family) else {
            return false;
        };
        let parts = family.chunks.entry(chunk).or_default();
        let before = parts.whole_if_any();
        if parts.count != shard.count {
            *parts = Parts { count: shard.count, ..Parts::default() };
        }
        if let Some(mask) = parts.of(tier) {
            *mask |= 1 << shard.index;
        }
        let after = parts.whole();
        family.show(index, chunk, before, after, bytes.saturating_mul(shard.count.into()))
    }

    /// A part went.
    pub(super) fn take(
        &mut self,
        index: &Index,
        family: usize,
        tier: CacheTier,
        (chunk, shard): (Chunk, Shard),
    ) {
        let Some(family) = self.families.get_mut(family) else {
            return;
        };
        let Some(parts) = family.chunks.get_mut(&chunk).filter(|it| it.count == shard.count) else {
            return;
        };
        let before = parts.whole();
        if let Some(mask) = parts.of(tier) {
            *mask &= !(1 << shard.index);
        }
        let after = parts.whole();
        if parts.is_gone() {
            family.chunks.remove(&chunk);
        }
        family.show(index, chunk, before, after, 0);
    }

    /// How chunks of a family are called in a tier: the kind of name, and blocks in a chunk.
    pub(super) fn shapes(
        &self,
        family: usize,
        tier: CacheTier,
    ) -> impl Iterator<Item = (Kind, u32)> {
        let holders = self.families.get(family).map_or(&[][..], |family| &family.holders);
        let of_tier = holders.iter().filter(move |(of, ..)| *of == tier);
        of_tier.map(|(_, kind, stride, _)| (*kind, *stride))
    }

    /// All holders, with their tiers.
    pub(super) fn holders(&self) -> impl Iterator<Item = (CacheTier, HolderId)> {
        let holders = self.families.iter().flat_map(|family| &family.holders);
        holders.map(|(tier, _, _, id)| (*tier, *id))
    }

    /// Strikes all holders out. Their parts have to be gone.
    pub(super) fn leave(&mut self, index: &Index) {
        for family in self.families.drain(..) {
            for (_, _, _, id) in family.holders {
                index.close(id);
            }
        }
    }
}

impl Parts {
    /// As [`Parts::whole`], of a chunk that may be new.
    const fn whole_if_any(&self) -> [bool; 3] {
        if self.count == 0 { [false; 3] } else { self.whole() }
    }
}

impl Family {
    /// Puts into the index what changed. False if there was no room.
    fn show(
        &mut self,
        index: &Index,
        chunk: Chunk,
        before: [bool; 3],
        after: [bool; 3],
        bytes: u64,
    ) -> bool {
        let mut all_fit = true;
        for ((tier, was), is) in TIERS.into_iter().zip(before).zip(after) {
            if was == is {
                continue;
            }
            let Some(id) = self.holder(index, tier, chunk) else {
                all_fit = false;
                continue;
            };
            if !is {
                index.remove(id, chunk.name);
            } else if index.insert(id, chunk.name) {
                if bytes > 0 {
                    index.set_chunk_bytes(id, bytes);
                }
            } else {
                all_fit = false;
            }
        }
        all_fit
    }

    fn holder(&mut self, index: &Index, tier: CacheTier, chunk: Chunk) -> Option<HolderId> {
        let Chunk { kind, stride, .. } = chunk;
        let known =
            self.holders.iter().find(|known| (known.0, known.1, known.2) == (tier, kind, stride));
        if let Some((_, _, _, id)) = known {
            return Some(*id);
        }
        if self.holders.len() >= HOLDERS_MAX {
            return None;
        }
        let FamilyName { owner, model, text } = self.name.clone();
        let id = index.open(Holder { owner, tier, model, family: text, kind, stride })?;
        self.holders.push((tier, kind, stride, id));
        Some(id)
    }
}

/// Ways in which ranks share blocks, and what stands before their numbers; neighbours in the first come one after the
/// other: tensor, context and pipeline parallelism.
const WAYS: [&str; 3] = ["tp", "cp", "pp"];
/// What stands behind ranks if each has something of its own that says nothing of the others, like its layers.
const OWN: &str = "_own";
const OWN_DIGITS: usize = 16;

/// The key without what differs between ranks, and which part that rank stores: `tp1of4_pp0of2` is part 1 of 8. A key
/// without ranks is of the only part.
pub(super) fn without_ranks(compat_key: &str) -> (String, Shard) {
    let (mut text, mut rest) = (String::new(), compat_key);
    let mut parts = [Shard::WHOLE; WAYS.len()];
    let mut is_behind_rank = false;
    while let Some(first) = rest.chars().next() {
        let mut ways = WAYS.iter().zip(&mut parts);
        let found = ways.find_map(|(way, part)| Some((way, part, rank(rest, way)?)));
        let len = if let Some((way, part, (found, len))) = found {
            *part = found;
            text.push_str(&format!("{way}*of{}", found.count));
            is_behind_rank = true;
            len
        } else if let Some(len) = own(rest).filter(|_| is_behind_rank) {
            text.push_str(OWN);
            text.push('*');
            len
        } else {
            text.push(first);
            is_behind_rank = false;
            first.len_utf8()
        };
        rest = rest.get(len..).unwrap_or_default();
    }
    let all = parts.iter().try_fold(Shard::WHOLE, |all, part| {
        let count = all.count.checked_mul(part.count)?;
        Some(Shard { index: part.index * all.count + all.index, count })
    });
    // More parts than can be counted are more than a chunk may have.
    (text, all.unwrap_or(Shard { index: 0, count: u32::MAX }))
}

/// Length of what is only this rank's, at the beginning of `text`.
fn own(text: &str) -> Option<usize> {
    let digits = text.strip_prefix(OWN)?;
    let len = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    (len == OWN_DIGITS).then_some(OWN.len() + len)
}

/// Reads `<word><index>of<count>` at the beginning of `text`; with its length.
fn rank(text: &str, word: &str) -> Option<(Shard, usize)> {
    let (index, rest) = number(text.strip_prefix(word)?)?;
    let (count, rest) = number(rest.strip_prefix("of")?)?;
    (index < count).then(|| (Shard { index, count }, text.len() - rest.len()))
}

fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_told_from_the_rest_of_a_key() {
        let of = |key| {
            let (text, shard) = without_ranks(key);
            (text, shard.index, shard.count)
        };
        assert_eq!(of("m_tp1of4_pp1of2_x"), ("m_tp*of4_pp*of2_x".to_owned(), 5, 8));
        assert_eq!(of("tp0of1_pp0of1"), ("tp*of1_pp*of1".to_owned(), 0, 1));
        assert_eq!(of("vllm-1-0123abcd"), ("vllm-1-0123abcd".to_owned(), 0, 1));
        assert_eq!(of("http4of2"), ("http4of2".to_owned(), 0, 1));
        assert_eq!(of(""), (String::new(), 0, 1));
        assert_eq!(of("é_tp1of2"), ("é_tp*of2".to_owned(), 1, 2));
        assert_eq!(of("tp1of2_pp2of4_cp1of2"), ("tp*of2_pp*of4_cp*of2".to_owned(), 11, 16));
        assert_eq!(of("tp1of70000_pp0of70000").2, u32::MAX);
    }

    #[test]
    fn what_only_one_rank_has_is_left_out_behind_ranks_alone() {
        let of = |key| without_ranks(key).0;
        assert_eq!(of("v-tp0of1_pp1of2_own0123456789abcdef"), "v-tp*of1_pp*of2_own*");
        assert_eq!(of("v-tp0of1_pp1of2_own0123456789abcdef-x"), "v-tp*of1_pp*of2_own*-x");
        for other in ["v_own0123456789abcdef", "v_own0123456789abcde", "_own"] {
            assert_eq!(of(other), other);
        }
        let short = "v-tp0of2_own0123456789abcde";
        assert_eq!(of(short), short.replace("tp0", "tp*"));
        assert_eq!(of("tp0of2_x_own0123456789abcdef"), "tp*of2_x_own0123456789abcdef");
    }
}
