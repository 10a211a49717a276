//! The targets of a question, resolved to holders. Made anew when targets or the roster change, and asked many times.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvd_proto::events::CacheTier;

use super::name::Kind;
use super::roster::{Holder, HolderId, Owner, Roster};

/// Pages of holders that one pass over a prompt looks at.
pub(super) const PASS_PAGES: usize = 8;

/// One bit per holder of a pass.
pub(super) type Row = [u64; PASS_PAGES];

/// What a target is, in the words of the roster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetSpec {
    /// The worker.
    pub worker: Arc<str>,
    /// Its rank, 0 for a worker that is one target.
    pub rank: u32,
    /// The model that it serves, as requests name it.
    pub model: Arc<str>,
    /// What the engine has loaded, if that is known: its id or its folder. Daemons know models by that.
    pub model_root: Option<Arc<str>>,
    /// The host that it is on, if that is known.
    pub host: Option<Arc<str>>,
    /// The pools that the host can read.
    pub pools: Vec<Arc<str>>,
}

/// Holders of one kind that are looked up together.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) kind: Kind,
    pub(super) stride: u32,
    /// The pages, ascending; at most [`PASS_PAGES`].
    pub(super) pages: Vec<u16>,
    /// The holders that matter.
    pub(super) mask: Row,
    /// By position in a row, as far as it matters: what belongs to the holder.
    pub(super) members: Vec<Option<Member>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) id: HolderId,
    /// The target, of a device; the number among the lower holders otherwise.
    pub(super) number: usize,
}

/// A holder in a lower tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lower {
    pub(super) id: HolderId,
    pub(super) tier: CacheTier,
    pub(super) stride: u32,
}

/// Targets, resolved.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// Of the roster that it was made of.
    pub generation: u64,
    pub(super) devices: Vec<Pass>,
    pub(super) below: Vec<Pass>,
    pub(super) lower: Vec<Lower>,
    /// Numbers among the lower holders, nearest tier first.
    pub(super) sites: Vec<Vec<usize>>,
    /// The site of each target.
    pub(super) site_of: Vec<usize>,
}

impl Fleet {
    /// Resolves `targets`, whose order the answers keep.
    #[must_use]
    pub fn new(roster: &Roster, targets: &[TargetSpec]) -> Self {
        let mut fleet = Self { generation: roster.generation, ..Self::default() };
        let owned = Owned::new(roster);
        let (mut devices, mut below) = (Vec::new(), Vec::new());
        let mut numbers = BTreeMap::new();
        let mut sites = BTreeMap::new();
        for (number, target) in targets.iter().enumerate() {
            let mut site = Vec::new();
            for (id, holder) in owned.by(target) {
                if holder.tier == CacheTier::Device {
                    devices.push((holder, Member { id, number }));
                    continue;
                }
                let number = *numbers.entry(id).or_insert_with(|| {
                    let (tier, stride) = (holder.tier, holder.stride.max(1));
                    fleet.lower.push(Lower { id, tier, stride });
                    below.push((holder, Member { id, number: fleet.lower.len() - 1 }));
                    fleet.lower.len() - 1
                });
                site.push((holder.tier, holder.stride, number));
            }
            site.sort_unstable();
            let next = sites.len();
            fleet.site_of.push(*sites.entry(site).or_insert(next));
        }
        fleet.sites.resize(sites.len(), Vec::new());
        for (site, at) in sites {
            if let Some(place) = fleet.sites.get_mut(at) {
                place.extend(site.into_iter().map(|(_, _, number)| number));
            }
        }
        fleet.below = passes(below);
        fleet.devices = passes(devices);
        fleet
    }

    /// Number of targets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.site_of.len()
    }

    /// Whether there is no target.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.site_of.is_empty()
    }
}

/// Splits holders into passes: by kind and stride, and by pages.
fn passes(mut members: Vec<(&Holder, Member)>) -> Vec<Pass> {
    members.sort_by_key(|(holder, member)| (holder.kind, holder.stride, member.id));
    let mut passes: Vec<Pass> = Vec::new();
    for (holder, member) in members {
        let (kind, stride, page) = (holder.kind, holder.stride.max(1), member.id.page());
        let fits = |pass: &&mut Pass| {
            let has_room = pass.pages.len() < PASS_PAGES || pass.pages.last() == Some(&page);
            (pass.kind, pass.stride) == (kind, stride) && has_room
        };
        let pass = match passes.last_mut().filter(fits) {
            Some(pass) => pass,
            None => passes.push_mut(Pass {
                kind,
                stride,
                pages: Vec::new(),
                mask: [0; PASS_PAGES],
                members: vec![None; PASS_PAGES * u64::BITS as usize],
            }),
        };
        if pass.pages.last() != Some(&page) {
            pass.pages.push(page);
        }
        let at = pass.pages.len() - 1;
        let bit = member.id.bit();
        if let Some(word) = pass.mask.get_mut(at) {
            *word |= bit;
        }
        if let Some(slot) = pass.members.get_mut(at * 64 + bit.trailing_zeros() as usize) {
            *slot = Some(member);
        }
    }
    passes
}

/// Holders by whose they are.
#[derive(Default)]
struct Owned<'r> {
    by_rank: BTreeMap<(&'r str, u32), Vec<(HolderId, &'r Holder)>>,
    by_host: BTreeMap<&'r str, Vec<(HolderId, &'r Holder)>>,
    by_pool: BTreeMap<&'r str, Vec<(HolderId, &'r Holder)>>,
}

impl<'r> Owned<'r> {
    fn new(roster: &'r Roster) -> Self {
        let mut owned = Self::default();
        for (id, holder) in &roster.holders {
            let place = match &holder.owner {
                Owner::Rank { worker, rank } => owned.by_rank.entry((worker, *rank)).or_default(),
                Owner::Host { host } => owned.by_host.entry(host).or_default(),
                Owner::Pool { pool, .. } => owned.by_pool.entry(pool).or_default(),
            };
            place.push((*id, holder));
        }
        owned
    }

    /// What `target` can be served from.
    fn by<'o>(
        &'o self,
        target: &'o TargetSpec,
    ) -> impl Iterator<Item = (HolderId, &'r Holder)> + use<'o, 'r> {
        let own = self.by_rank.get(&(&*target.worker, target.rank));
        let of_host = target.host.as_deref().and_then(|host| self.by_host.get(host));
        let of_pools = target.pools.iter().filter_map(|pool| self.by_pool.get(&**pool));
        let all = own.into_iter().chain(of_host).chain(of_pools).flatten().copied();
        all.filter(|(_, holder)| target.is_of_model(&holder.model))
    }
}

impl TargetSpec {
    fn is_of_model(&self, model: &str) -> bool {
        let roots = self.model_root.iter();
        roots.chain([&self.model]).any(|name| is_same_model(model, name))
    }
}

/// Engines name a model by its id, the daemon's clients by the last part of a path. Two full ids have to be equal.
pub(crate) fn is_same_model(left: &str, right: &str) -> bool {
    let is_full = |name: &str| name.contains('/');
    let last_part = |name: &str| name.rsplit('/').next().map(str::to_owned);
    left == right || (is_full(left) != is_full(right) && last_part(left) == last_part(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_the_same_by_id_or_by_the_last_part_of_one() {
        assert!(is_same_model("org/m", "org/m") && is_same_model("org/m", "m"));
        assert!(!is_same_model("org/m", "other/m") && !is_same_model("m", "n"));
        assert!(!is_same_model("", "m") && is_same_model("", ""));
    }

    #[test]
    fn a_model_is_known_by_what_requests_call_it_and_by_what_was_loaded() {
        let target = |root: Option<&str>| TargetSpec {
            model: "assistant".into(),
            model_root: root.map(Into::into),
            ..TargetSpec::default()
        };
        assert!(target(None).is_of_model("assistant") && !target(None).is_of_model("qwen"));
        let loaded = target(Some("/models/qwen"));
        assert!(loaded.is_of_model("assistant") && loaded.is_of_model("qwen"));
        assert!(!loaded.is_of_model("llama") && !loaded.is_of_model(""));
    }
}
