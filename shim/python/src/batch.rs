//! `load` and `save`: whole batches between the arena and an engine's own memory, in one go without the interpreter's lock.
//!
//! A batch is done in groups, so that it holds only so many leases or tickets at a time, whatever its length.

use std::time::{Duration, Instant};

use kvd_client::{
    Client, ClientError, Commit, Foreign, ForeignMut, Lineage, MissReason, Namespace, Retention,
    View,
};

use crate::answers::{Miss, Refusal};

/// Blocks of one group: half of the tickets that the daemon's default lets a session hold is twice as many.
const GROUP_ITEMS: usize = 1024;
/// Bytes of one group, so that a large save does not need room for all of it at once before the first block is stored.
const GROUP_BYTES: usize = 256 << 20;

/// Each item's outcome, and what was in the way if anything was.
pub(crate) struct Outcome<T> {
    pub(crate) items: Vec<Option<T>>,
    pub(crate) trouble: Option<ClientError>,
}

/// Fetches each block, copies it to its targets in order, and returns its lease.
pub(crate) fn load(
    client: &Client,
    namespace: Namespace<'_>,
    keys: &[&[u8]],
    targets: &[Vec<ForeignMut<'_>>],
    deadline: Duration,
) -> Outcome<Miss> {
    let begun = Instant::now();
    let mut outcome = Outcome { items: Vec::with_capacity(keys.len()), trouble: None };
    for (keys, targets) in keys.chunks(GROUP_ITEMS).zip(targets.chunks(GROUP_ITEMS)) {
        let left = deadline.saturating_sub(begun.elapsed());
        let answer = client.fetch(namespace, keys, false, left);
        outcome.items.extend(
            answer.items.into_iter().zip(targets).map(|(item, target)| scatter(item, target)),
        );
        outcome.trouble = outcome.trouble.or(answer.trouble);
    }
    outcome
}

fn scatter(item: Result<View, MissReason>, targets: &[ForeignMut<'_>]) -> Option<Miss> {
    let view = match item {
        Ok(view) => view,
        Err(reason) => return Some(reason.into()),
    };
    if targets.iter().map(ForeignMut::len).sum::<usize>() != view.len() {
        return Some(Miss { reason: "size_mismatch".into() });
    }
    let mut at = 0;
    for target in targets {
        view.copy_part_to(at, target);
        at += target.len();
    }
    None
}

/// What all blocks of a save have in common.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) namespace: Namespace<'a>,
    pub(crate) retention: Retention,
    pub(crate) ttl: Option<Duration>,
    /// How long room may be waited for, over all groups.
    pub(crate) deadline: Duration,
}

/// A block to be saved.
pub(crate) struct Item<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) pieces: Vec<Foreign<'a>>,
    pub(crate) lineage: Option<&'a Lineage>,
}

impl Item<'_> {
    fn len_bytes(&self) -> usize {
        self.pieces.iter().map(Foreign::len).sum()
    }
}

/// Reserves room for each block, gathers its pieces there, and commits it.
pub(crate) fn save(client: &Client, terms: Terms<'_>, items: &[Item<'_>]) -> Outcome<Refusal> {
    let begun = Instant::now();
    let mut outcome = Outcome { items: Vec::with_capacity(items.len()), trouble: None };
    while outcome.items.len() < items.len() {
        let rest = &items[outcome.items.len()..];
        let group = &rest[..group_of(rest)];
        let left = terms.deadline.saturating_sub(begun.elapsed());
        match save_group(client, Terms { deadline: left, ..terms }, group) {
            Ok(refusals) => outcome.items.extend(refusals),
            Err(error) => {
                // What is wrong with the connection is so for the other groups too.
                outcome.items.resize(items.len(), Some(Refusal::from(&error)));
                outcome.trouble = Some(error);
            }
        }
    }
    outcome
}

/// How many of the items make one group; at least one.
fn group_of(items: &[Item<'_>]) -> usize {
    let mut bytes = 0_usize;
    let fits = |item: &&Item<'_>| {
        bytes = bytes.saturating_add(item.len_bytes());
        bytes <= GROUP_BYTES
    };
    items.iter().take(GROUP_ITEMS).take_while(fits).count().max(1)
}

fn save_group(
    client: &Client,
    terms: Terms<'_>,
    group: &[Item<'_>],
) -> Result<Vec<Option<Refusal>>, ClientError> {
    let lens: Vec<u64> = group.iter().map(|item| item.len_bytes() as u64).collect();
    let granted = client.reserve(&lens, terms.retention, terms.deadline)?;
    let mut refusals = vec![None; group.len()];
    let mut commits = Vec::with_capacity(group.len());
    let mut committed = Vec::with_capacity(group.len());
    for (index, (item, granted)) in group.iter().zip(granted).enumerate() {
        match granted {
            Ok(ticket) => {
                let mut at = 0;
                for piece in &item.pieces {
                    ticket.write_foreign(at, *piece)?;
                    at += piece.len();
                }
                let Item { key, lineage, .. } = *item;
                commits.push(Commit { ticket, key, len_bytes: lens[index], lineage });
                committed.push(index);
            }
            Err(refusal) => refusals[index] = Some(refusal.into()),
        }
    }
    let outcomes = client.commit(terms.namespace, commits, terms.retention, terms.ttl)?;
    for (index, outcome) in committed.into_iter().zip(outcomes) {
        refusals[index] = outcome.err().map(Refusal::from);
    }
    Ok(refusals)
}
