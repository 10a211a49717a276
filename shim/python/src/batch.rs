//! `load` and `save`: whole batches between the arena and an engine's own memory, in one go without the interpreter's lock.
//!
//! A batch is done in groups, so that it holds only so many leases or tickets at a time, whatever its length.

use std::time::{Duration, Instant};

use kvd_client::{
    Client, ClientError, Commit, Foreign, ForeignMut, Lineage, MissReason, Namespace,
    Refusal as Denied, Retention, Ticket, View,
};

use crate::answers::{Miss, Refusal};

/// Blocks of one group: a quarter of the tickets that a session may hold by default.
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
    let mut outcome = Outcome { items: vec![None; keys.len()], trouble: None };
    let mut open: Vec<usize> = (0..keys.len()).rev().collect();
    while !open.is_empty() {
        let group = next_group(&mut open, |_| 0);
        let asked: Vec<&[u8]> = group.iter().map(|&index| keys[index]).collect();
        let left = deadline.saturating_sub(begun.elapsed());
        let answer = client.fetch(namespace, &asked, false, left);
        let has_hits = answer.items.iter().any(Result::is_ok);
        let mut again = Vec::new();
        for (&index, item) in group.iter().zip(answer.items) {
            match item {
                // Perhaps only because of the leases of this group, which are about to go back.
                Err(MissReason::Shed) if has_hits && answer.trouble.is_none() => again.push(index),
                item => {
                    let item = item.map_err(|reason| Miss::of(reason, answer.trouble.as_ref()));
                    outcome.items[index] = scatter(item, &targets[index]);
                }
            }
        }
        open.extend(again.into_iter().rev());
        outcome.trouble = outcome.trouble.or(answer.trouble);
    }
    outcome
}

/// Takes the next items of a batch; `open` is in reverse order. At least one.
fn next_group(open: &mut Vec<usize>, len_bytes: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut bytes = 0_usize;
    let fits = |index: &&usize| {
        bytes = bytes.saturating_add(len_bytes(**index));
        bytes <= GROUP_BYTES
    };
    let count = open.iter().rev().take(GROUP_ITEMS).take_while(fits).count().max(1);
    let mut group = open.split_off(open.len() - count);
    group.reverse();
    group
}

fn scatter(item: Result<View, Miss>, targets: &[ForeignMut<'_>]) -> Option<Miss> {
    let view = match item {
        Ok(view) => view,
        Err(miss) => return Some(miss),
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
    let mut outcome = Outcome { items: vec![None; items.len()], trouble: None };
    let mut open: Vec<usize> = (0..items.len()).rev().collect();
    while !open.is_empty() {
        let group = next_group(&mut open, |index| items[index].len_bytes());
        let left = terms.deadline.saturating_sub(begun.elapsed());
        match save_group(client, Terms { deadline: left, ..terms }, items, &group) {
            Ok(refusals) => {
                let has_stored = refusals.iter().any(Option::is_none);
                let mut again = Vec::new();
                for (&index, refusal) in group.iter().zip(refusals) {
                    match refusal {
                        // Perhaps only because of the tickets of this group, which are spent by now.
                        Some(Denied::SessionLimit) if has_stored => again.push(index),
                        refusal => outcome.items[index] = refusal.map(Refusal::from),
                    }
                }
                open.extend(again.into_iter().rev());
            }
            Err(error) => {
                // What is wrong with the connection is so for the other groups too.
                for index in group.into_iter().chain(open.drain(..)) {
                    outcome.items[index] = Some(Refusal::from(&error));
                }
                outcome.trouble = Some(error);
            }
        }
    }
    outcome
}

/// Room for what fits now. It is waited for only while there is none at all: the batch's own tickets would be in its way.
fn room(
    client: &Client,
    terms: Terms<'_>,
    lens: &[u64],
) -> Result<Vec<Result<Ticket, Denied>>, ClientError> {
    let begun = Instant::now();
    let granted = client.try_reserve(lens, terms.retention, terms.deadline)?;
    if granted.iter().any(Result::is_ok) {
        return Ok(granted);
    }
    let left = || terms.deadline.saturating_sub(begun.elapsed());
    let Some((first, others)) = lens.split_at_checked(1) else { return Ok(granted) };
    let mut waited = client.reserve(first, terms.retention, left())?;
    if waited.iter().any(Result::is_ok) {
        waited.extend(client.try_reserve(others, terms.retention, left())?);
        return Ok(waited);
    }
    Ok(granted)
}

fn save_group(
    client: &Client,
    terms: Terms<'_>,
    items: &[Item<'_>],
    group: &[usize],
) -> Result<Vec<Option<Denied>>, ClientError> {
    let lens: Vec<u64> = group.iter().map(|&index| items[index].len_bytes() as u64).collect();
    let granted = room(client, terms, &lens)?;
    let mut refusals = vec![None; group.len()];
    let mut commits = Vec::with_capacity(group.len());
    let mut committed = Vec::with_capacity(group.len());
    for (place, granted) in granted.into_iter().enumerate() {
        match granted {
            Ok(ticket) => {
                let Item { key, pieces, lineage } = &items[group[place]];
                let mut at = 0;
                for piece in pieces {
                    ticket.write_foreign(at, *piece)?;
                    at += piece.len();
                }
                commits.push(Commit { ticket, key, len_bytes: lens[place], lineage: *lineage });
                committed.push(place);
            }
            Err(refusal) => refusals[place] = Some(refusal),
        }
    }
    let outcomes = client.commit(terms.namespace, commits, terms.retention, terms.ttl)?;
    for (place, outcome) in committed.into_iter().zip(outcomes) {
        refusals[place] = outcome.err();
    }
    Ok(refusals)
}
