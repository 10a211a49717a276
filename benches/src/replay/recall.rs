//! After a restart: every block of the trace is asked for once, and what comes back is checked byte for byte.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use comfy_table::{Table, presets};
use indicatif::{HumanBytes, HumanCount};
use kvd_client::{Client, Options};

use super::engine::{BLOCK_BYTES, NAMESPACE, PATIENCE, key_of};
use super::trace;
use crate::content::Content;
use crate::figures::Figures;
use crate::{in_place, patience};

/// Blocks that are asked for at once.
const BATCH: usize = 64;
/// Between two looks at a daemon that reads its directory.
const PAUSE: Duration = Duration::from_millis(5);

/// What came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recall {
    /// Different blocks of the trace.
    pub asked: u64,
    /// Blocks that the daemon found on disk when it started.
    pub entries: u64,
    /// Blocks that came back.
    pub found: u64,
    /// Bytes that were read from disk for them.
    pub read_bytes: u64,
    /// Blocks with a wrong byte, or of another length.
    pub wrong: u64,
    /// From the beginning of the first question to the end of the last check.
    pub took: Duration,
}

impl Recall {
    /// Whether something came back from disk, and all of it right.
    #[must_use]
    pub const fn is_right(&self) -> bool {
        self.wrong == 0 && self.found > 0 && self.read_bytes > 0
    }
}

/// Asks the daemon, once it has read its directory, for every block of the trace.
///
/// # Errors
/// If the trace cannot be read, or the daemon does not answer.
pub fn run(socket: &Path, trace: &Path) -> anyhow::Result<Recall> {
    let ids: BTreeSet<u64> =
        trace::load(trace)?.into_iter().flat_map(|request| request.hash_ids).collect();
    let mut options = Options::new(socket, "recall");
    options.deadline = PATIENCE;
    let client = Client::new(options);
    let before = wait_for_disk(&client)?;
    let mut recall = Recall {
        asked: ids.len() as u64,
        entries: before.get("disk_entries"),
        ..Recall::default()
    };
    let begun = Instant::now();
    let keys: Vec<[u8; 16]> = ids.into_iter().map(key_of).collect();
    for keys in keys.chunks(BATCH) {
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 16]>::as_slice).collect();
        let answer = client.fetch(NAMESPACE, &keys, false, PATIENCE);
        if let Some(trouble) = answer.trouble {
            bail!("asking for blocks after a restart: {trouble}");
        }
        for (key, view) in keys.iter().zip(&answer.items) {
            let Ok(view) = view else { continue };
            let difference = in_place::first_difference(view, Content::of(key));
            recall.found += 1;
            recall.wrong += u64::from(difference.is_some() || view.len() != BLOCK_BYTES);
        }
    }
    recall.took = begun.elapsed();
    let after = Figures::read(&client)?;
    recall.read_bytes = after.get("disk_load_bytes_total") - before.get("disk_load_bytes_total");
    Ok(recall)
}

fn wait_for_disk(client: &Client) -> anyhow::Result<Figures> {
    let begun = Instant::now();
    loop {
        let figures = Figures::read(client);
        if let Ok(figures) = &figures
            && figures.is_disk_back()
        {
            return Ok(figures.clone());
        }
        if begun.elapsed() > PATIENCE {
            let figures = figures.context("waiting for the disk tier")?;
            bail!("after {PATIENCE:?} the disk tier is not back: {figures:?}");
        }
        patience::pause(PAUSE);
    }
}

/// The table at the end.
impl fmt::Display for Recall {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64();
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        let count = |count: u64| HumanCount(count).to_string();
        table.add_row(["blocks found on disk at the start", &count(self.entries)]);
        let asked = HumanCount(self.asked);
        table.add_row(["blocks that came back", &format!("{} of {asked}", count(self.found))]);
        let read = HumanBytes(self.read_bytes);
        table.add_row(["read from disk", &format!("{read} in {seconds:.1} s, checks included")]);
        table.add_row(["wrong blocks", &count(self.wrong)]);
        write!(out, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_back_or_a_wrong_block_is_not_right() {
        let right = Recall { found: 2, read_bytes: 1, ..Recall::default() };
        assert!(right.is_right());
        assert!(!Recall { wrong: 1, ..right }.is_right());
        assert!(!Recall { found: 0, ..right }.is_right());
        assert!(!Recall { read_bytes: 0, ..right }.is_right(), "memory alone shows nothing");
    }
}
