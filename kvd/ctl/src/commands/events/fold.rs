//! What somebody knows who hears events.

use std::collections::BTreeMap;

use kvd_proto::events::{CacheTier, Digest, Event, Namespace, Scope, Tally};

use crate::key::to_hex;

/// Differences that are named.
const NAMED_MAX: usize = 20;

/// Tier, model, compatibility key, key.
type Name = (CacheTier, String, String, Vec<u8>);

/// Everything that was told to be held, up to a message.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// The last message in it.
    pub(super) seq: u64,
    rows: BTreeMap<Name, (u64, Tally)>,
    sums: BTreeMap<(CacheTier, String, String), Tally>,
}

fn name(tier: CacheTier, namespace: &Namespace<'_>, key: &[u8]) -> Name {
    let model = namespace.model.unwrap_or_default().to_owned();
    (tier, model, namespace.compat_key.unwrap_or_default().to_owned(), key.to_vec())
}

impl Fold {
    pub(super) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    pub(super) fn apply(&mut self, event: &Event<'_>) {
        match event {
            Event::Stored(stored) => {
                if let (Some(tier), Some(chunk)) = (stored.place.cache_tier(), stored.chunk) {
                    let name = name(tier, &stored.namespace, chunk.key);
                    self.take_out(&name);
                    let hashes = stored.block_hashes.iter().map(|hash| hash.bits());
                    let tally = Tally::of_row(hashes, chunk.key);
                    let (tier, model, compat_key, _) = name.clone();
                    self.sums.entry((tier, model, compat_key)).or_default().add(tally);
                    self.rows.insert(name, (chunk.bytes, tally));
                }
            }
            Event::Removed(removed) => {
                if let (Some(tier), Some(chunk)) = (removed.place.cache_tier(), removed.chunk) {
                    self.take_out(&name(tier, &removed.namespace, chunk.key));
                }
            }
            Event::Cleared(cleared) => {
                let names: Vec<Name> = self.rows.keys().cloned().collect();
                for name in names {
                    let is_meant = match cleared.scope {
                        Scope::All => true,
                        Scope::Model => cleared.namespace.model == Some(&*name.1),
                        Scope::Tier => cleared.tier == Some(name.0),
                    };
                    if is_meant {
                        self.take_out(&name);
                    }
                }
            }
            Event::Stats(_) | Event::Digest(_) => {}
        }
    }

    fn take_out(&mut self, name: &Name) {
        if let Some((_, tally)) = self.rows.remove(name) {
            let (tier, model, compat_key, _) = name;
            let sum = self.sums.entry((*tier, model.clone(), compat_key.clone())).or_default();
            sum.take_out(tally);
        }
    }

    /// Whether the daemon's sum is that of what was told.
    pub(super) fn agrees(&self, digest: &Digest<'_>) -> bool {
        let Some(tier) = digest.tier else { return false };
        let (tier, model, compat_key, _) = name(tier, &digest.namespace, &[]);
        self.sums.get(&(tier, model, compat_key)).copied().unwrap_or_default() == digest.tally
    }

    /// What is told and not held, or the other way round, or something else.
    pub(super) fn differences(&self, held: &Self) -> Vec<String> {
        let words = |what: &str, (tier, model, compat_key, key): &Name| {
            format!("{what}: {} {model:?} {compat_key:?} {}", tier.as_str(), to_hex(key))
        };
        let told = self.rows.iter().filter_map(|(name, row)| match held.rows.get(name) {
            None => Some(words("told, but not held", name)),
            Some(other) if other != row => Some(words("told as something else", name)),
            Some(_) => None,
        });
        let untold = held.rows.keys().filter(|name| !self.rows.contains_key(*name));
        told.chain(untold.map(|name| words("held, but not told", name))).take(NAMED_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use kvd_proto::events::{Cleared, Owner, Row};

    use super::*;

    fn stored(fold: &mut Fold, key: &[u8]) {
        let row = Row::new(key, None);
        let stored = row.stored(1, CacheTier::L3, Owner::default(), Namespace::default());
        fold.apply(&Event::Stored(stored));
    }

    #[test]
    fn what_differs_is_named() {
        let (mut told, mut held) = (Fold::default(), Fold::default());
        stored(&mut told, b"a");
        stored(&mut told, b"b");
        stored(&mut held, b"b");
        stored(&mut held, b"c");
        let differences = told.differences(&held);
        assert_eq!(differences.len(), 2, "{differences:?}");
        assert!(differences[0].starts_with("told, but not held") && differences[0].ends_with("61"));
        assert!(differences[1].starts_with("held, but not told") && differences[1].ends_with("63"));
    }

    #[test]
    fn sums_follow_the_rows() {
        let mut fold = Fold::default();
        let digest = |tally| Digest { tier: Some(CacheTier::L3), tally, ..Digest::default() };
        stored(&mut fold, b"a");
        stored(&mut fold, b"a");
        assert!(fold.agrees(&digest(Row::new(b"a", None).tally())));
        assert!(!fold.agrees(&digest(Tally::default())));
        let (scope, tier) = (Scope::Tier, Some(CacheTier::L3));
        fold.apply(&Event::Cleared(Cleared { scope, tier, ..Cleared::default() }));
        assert!(fold.agrees(&digest(Tally::default())));
    }
}
