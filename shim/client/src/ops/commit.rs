//! `commit`: what was written becomes blocks.

use std::cell::Cell;
use std::time::Duration;

use kvd_proto::block_key::Namespace;
use kvd_proto::lineage::{LINEAGE_BYTES_MAX, Lineage};
use kvd_proto::pack::Array;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_proto::v2::{self, Reply};

use super::{check, check_count, check_names, fitting};
use crate::client::Client;
use crate::error::{Breach, ClientError};
use crate::line::Repeat;
use crate::live::Outgoing;
use crate::ticket::Ticket;

/// A filled ticket and what it is to be.
#[derive(Debug)]
pub struct Commit<'a> {
    /// The room that was filled.
    pub ticket: Ticket,
    /// The key under which it is stored.
    pub key: &'a [u8],
    /// How many bytes were written, from the beginning of the room.
    pub len_bytes: u64,
    /// Which engine blocks the bytes cover, for whoever routes requests by it.
    pub lineage: Option<&'a Lineage>,
}

/// What a commit costs in a frame beside its key and its lineage: three numbers, two lengths.
const ITEM_BYTES: usize = 32;

impl Commit<'_> {
    /// The block's checksum as the wire has it: 0 is none.
    fn checksum(&self) -> u64 {
        self.ticket.checksum(self.len_bytes, self.key).unwrap_or(0)
    }
}

/// What all blocks of one call have in common.
#[derive(Clone, Copy)]
struct Terms<'a> {
    namespace: Namespace<'a>,
    retention: Retention,
    ttl_ms: Option<u64>,
}

impl Client {
    /// Stores filled tickets under their keys. A `ttl` is rounded up to whole milliseconds.
    ///
    /// The tickets are spent whatever happens: those that the daemon refuses, and those that could
    /// not be sent, are given back.
    ///
    /// # Errors
    /// [`ClientError::StaleEpoch`] or [`ClientError::StaleSession`] if any ticket is of an earlier
    /// connection: its room is gone. After [`ClientError::Deadline`] and
    /// [`ClientError::Disconnected`] the blocks may or may not be stored.
    pub fn commit(
        &self,
        namespace: Namespace<'_>,
        mut commits: Vec<Commit<'_>>,
        retention: Retention,
        ttl: Option<Duration>,
    ) -> Result<Vec<Result<(), Refusal>>, ClientError> {
        let deadline = self.core.deadline();
        check_names(namespace, commits.iter().map(|commit| commit.key))?;
        let lineages = encoded(&commits)?;
        let checksums: Vec<u64> = commits.iter().map(Commit::checksum).collect();
        let terms = Terms { namespace, retention, ttl_ms: ttl.map(whole_ms) };
        let mut outcomes: Vec<Result<(), Refusal>> = Vec::with_capacity(commits.len());
        while outcomes.len() < commits.len() {
            let done = outcomes.len();
            let rest = &mut commits[done..];
            let lineages = lineages.get(done..).unwrap_or_default();
            let checksums = &checksums[done..];
            let asked = Cell::new(0);
            self.core.exchange(
                deadline,
                Repeat::Never,
                |outgoing| {
                    asked.set(terms.write(rest, lineages, checksums, outgoing)?);
                    Ok(())
                },
                |incoming| {
                    let Reply::Committed(committed) = incoming.reply else {
                        return Err(Breach::WrongKind.into());
                    };
                    check_count(asked.get(), committed.len())?;
                    outcomes.extend(committed.rows());
                    Ok(())
                },
            )?;
            for (commit, outcome) in commits[done..].iter_mut().zip(&outcomes[done..]) {
                // The daemon may keep the room of a refused commit, for another try. There is none.
                commit.ticket.set_held(outcome.is_err());
            }
        }
        Ok(outcomes)
    }
}

impl Terms<'_> {
    /// Writes as many commits as one frame takes, and says how many. From then on their tickets are
    /// the daemon's business.
    fn write(
        self,
        commits: &mut [Commit<'_>],
        lineages: &[Option<Vec<u8>>],
        checksums: &[u64],
        outgoing: Outgoing<'_>,
    ) -> Result<usize, ClientError> {
        let Outgoing { id, attachment, scratch, frame } = outgoing;
        for commit in commits.iter() {
            commit.ticket.attachment().check_current(attachment)?;
        }
        let sizes = commits.iter().enumerate().map(|(index, commit)| {
            let lineage = lineages.get(index).and_then(Option::as_ref).map_or(0, Vec::len);
            commit.key.len() + lineage + ITEM_BYTES
        });
        let count = fitting(&attachment.limits, sizes);
        scratch.keys.clear();
        scratch.lens.clear();
        scratch.tickets.clear();
        scratch.checksums.clear();
        for commit in &mut commits[..count] {
            scratch.keys.push(commit.key).map_err(Breach::from)?;
            scratch.lens.push(commit.len_bytes);
            scratch.tickets.push(commit.ticket.id().0);
            commit.ticket.set_held(false);
        }
        let sends_checksums = attachment.abilities.checksums;
        if sends_checksums {
            scratch.checksums.extend(checksums[..count].iter().copied());
        }
        let lineages: Vec<_> = lineages.iter().take(count).map(Option::as_deref).collect();
        let message = v2::commit::Commit {
            id,
            epoch: attachment.epoch,
            namespace: self.namespace,
            retention: self.retention,
            ttl_ms: self.ttl_ms,
            tickets: scratch.tickets.as_column(),
            keys: scratch.keys.as_column(),
            lens: scratch.lens.as_column(),
            checksums: sends_checksums.then(|| scratch.checksums.as_column()),
            lineages: (!lineages.is_empty()).then_some(Array::Slice(&lineages)),
        };
        message.encode(frame);
        Ok(count)
    }
}

/// The lineages in their wire form; none at all if no commit has one.
fn encoded(commits: &[Commit<'_>]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
    if commits.iter().all(|commit| commit.lineage.is_none()) {
        return Ok(Vec::new());
    }
    let encode = |lineage: &Lineage| {
        let bytes = lineage.encode();
        check("a lineage, in bytes", bytes.len(), LINEAGE_BYTES_MAX)?;
        Ok(bytes)
    };
    commits.iter().map(|commit| commit.lineage.map(encode).transpose()).collect()
}

/// Zero would mean no time to live at all.
fn whole_ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}
