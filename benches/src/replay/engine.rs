//! One engine: a process with a client of its own that takes requests from its standard input, one number a line, and
//! answers each with an [`Outcome`] on its standard output.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kvd_client::{
    Answer, Client, ClientError, Commit, Namespace, Options, Retention, Ticket, View,
};

use super::outcome::Outcome;
use super::trace::{Request, TOKENS_PER_BLOCK};
use crate::content::Content;
use crate::in_place;

/// Bytes of one block's value: 512 tokens of a small model.
pub const BLOCK_BYTES: usize = 256 << 10;

/// The namespace of all blocks.
pub const NAMESPACE: Namespace<'static> = Namespace { model: "replay", compat_key: "conversation" };

/// No call may take longer, however busy the machine is.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// How an engine reads the blocks that it fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Reading {
    /// Where they lie in the arena.
    InPlace,
    /// Through a copy, as an engine without access to host memory does.
    Copied,
}

impl Reading {
    /// How engine number `index` reads: they alternate, so that a replay with two engines shows both ways.
    #[must_use]
    pub const fn of(index: usize) -> Self {
        if index.is_multiple_of(2) { Self::InPlace } else { Self::Copied }
    }
}

/// An engine and its buffers.
#[derive(Debug)]
pub struct Engine {
    client: Client,
    reading: Reading,
    block: Vec<u8>,
}

impl Engine {
    /// An engine that will connect to the daemon at `socket`.
    #[must_use]
    pub fn new(socket: PathBuf, index: usize) -> Self {
        let mut options = Options::new(socket, format!("replay-engine-{index}"));
        options.deadline = PATIENCE;
        Self {
            client: Client::new(options),
            reading: Reading::of(index),
            block: vec![0; BLOCK_BYTES],
        }
    }

    /// Answers requests until the input ends.
    ///
    /// # Errors
    /// If the pipes break or ask for a request that the trace does not have.
    pub fn serve(
        mut self,
        requests: &[Request],
        input: impl BufRead,
        mut output: impl Write,
    ) -> anyhow::Result<()> {
        for line in input.lines() {
            let index: usize = line?.parse().context("a request's number")?;
            let request = requests.get(index).context("a request beyond the end of the trace")?;
            let outcome = self.answer(request);
            serde_json::to_writer(&mut output, &outcome)?;
            output.write_all(b"\n")?;
            output.flush()?;
        }
        Ok(())
    }

    /// Does with one prompt what a connector does.
    fn answer(&mut self, request: &Request) -> Outcome {
        let mut outcome = Outcome {
            blocks: request.hash_ids.len() as u64,
            tokens: request.input_length,
            ..Outcome::default()
        };
        if let Err(error) = self.run(request, &mut outcome) {
            outcome.trouble = Some(format!("{error:#}"));
        }
        outcome
    }

    fn run(&mut self, request: &Request, outcome: &mut Outcome) -> anyhow::Result<()> {
        let keys: Vec<[u8; 16]> = request.hash_ids.iter().map(|id| key_of(*id)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 16]>::as_slice).collect();
        // A scheduler plans on this answer: what it reports present must be there a moment later.
        let promised = present(&self.client.locate(NAMESPACE, &keys, true))?;
        let begun = Instant::now();
        let fetched = self.client.fetch(NAMESPACE, &keys, true, PATIENCE);
        outcome.fetch_us = micros(begun.elapsed());
        let hits = present(&fetched)?;
        outcome.hits = hits as u64;
        outcome.hit_tokens = request.tokens_of(hits);
        outcome.broken_promises = promised.saturating_sub(hits) as u64;
        for (key, view) in keys.iter().zip(fetched.items.iter().flatten()) {
            self.check(key, view, outcome);
        }
        // The leases go back here, as after a load into the accelerator.
        drop(fetched);
        for class in [Retention::Long, Retention::Short, Retention::Ephemeral] {
            let missing =
                (hits..keys.len()).filter(|position| class_of(request, *position) == class);
            let missing: Vec<&[u8]> = missing.map(|position| keys[position]).collect();
            if !missing.is_empty() {
                self.store(&missing, class, outcome)?;
            }
        }
        Ok(())
    }

    /// Compares a block with what its key says, byte for byte.
    fn check(&mut self, key: &[u8], view: &View, outcome: &mut Outcome) {
        let content = Content::of(key);
        let difference = match self.reading {
            Reading::InPlace => {
                outcome.in_place_bytes += view.len() as u64;
                in_place::first_difference(view, content)
            }
            Reading::Copied => {
                outcome.copied_bytes += view.len() as u64;
                self.block.resize(view.len(), 0);
                view.copy_to(&mut self.block);
                content.first_difference(&self.block)
            }
        };
        if view.len() != BLOCK_BYTES {
            outcome.wrong.push(format!("block {} has {} bytes", hex(key), view.len()));
        } else if let Some(at) = difference {
            outcome.wrong.push(format!("block {} is wrong at byte {at}", hex(key)));
        }
    }

    /// Reserves room, fills it and commits it.
    fn store(
        &mut self,
        keys: &[&[u8]],
        class: Retention,
        outcome: &mut Outcome,
    ) -> Result<(), ClientError> {
        let lens = vec![BLOCK_BYTES as u64; keys.len()];
        let granted = self.client.reserve(&lens, class, PATIENCE)?;
        let mut commits = Vec::with_capacity(keys.len());
        for (key, room) in keys.iter().zip(granted) {
            match room {
                Ok(ticket) => {
                    self.write(key, &ticket)?;
                    commits.push(Commit {
                        ticket,
                        key,
                        len_bytes: BLOCK_BYTES as u64,
                        lineage: None,
                    });
                }
                Err(refusal) => decline(outcome, refusal.as_str()),
            }
        }
        if commits.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        let outcomes = self.client.commit(NAMESPACE, commits, class, None)?;
        outcome.commits_us.push(micros(begun.elapsed()));
        for committed in outcomes {
            match committed {
                Ok(()) => {
                    outcome.stored += 1;
                    outcome.stored_bytes += BLOCK_BYTES as u64;
                }
                Err(refusal) => decline(outcome, refusal.as_str()),
            }
        }
        Ok(())
    }

    fn write(&mut self, key: &[u8], ticket: &Ticket) -> Result<(), ClientError> {
        self.block.resize(BLOCK_BYTES, 0);
        Content::of(key).fill(&mut self.block);
        ticket.write(0, &self.block)
    }
}

/// How long a block deserves to be kept. Every prompt begins with the same block; the last one is seldom full, so no
/// other prompt goes on behind it.
fn class_of(request: &Request, position: usize) -> Retention {
    let is_full = (position as u64 + 1) * TOKENS_PER_BLOCK <= request.input_length;
    match position {
        0 => Retention::Long,
        _ if is_full => Retention::Short,
        _ => Retention::Ephemeral,
    }
}

/// How many blocks a look-up for a prefix found.
fn present<T>(answer: &Answer<T>) -> anyhow::Result<usize> {
    if let Some(trouble) = &answer.trouble {
        anyhow::bail!("{trouble}");
    }
    Ok(answer.items.iter().take_while(|item| item.is_ok()).count())
}

fn decline(outcome: &mut Outcome, reason: &str) {
    *outcome.declined.entry(reason.to_owned()).or_default() += 1;
}

/// The key of a block: as opaque as the digests that engines use.
pub(super) fn key_of(hash_id: u64) -> [u8; 16] {
    let mut key = [0; 16];
    Content::of(&hash_id.to_le_bytes()).fill(&mut key);
    key
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_block_is_kept_longest_and_an_unfinished_one_shortest() {
        let request = Request { input_length: 1300, hash_ids: vec![0, 1, 2] };
        let classes = [0, 1, 2].map(|position| class_of(&request, position));
        assert_eq!(classes, [Retention::Long, Retention::Short, Retention::Ephemeral]);
        let full = Request { input_length: 1536, ..request };
        assert_eq!(class_of(&full, 2), Retention::Short);
    }

    #[test]
    fn keys_differ() {
        let mut keys: Vec<_> = (0..1000).map(key_of).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 1000);
    }
}
