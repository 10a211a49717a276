//! The daemon's own figures: counters and gauges by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kvd_client::{Client, Options};

/// How long a daemon may take until it answers and its arena is ready.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks at it.
const PAUSE: Duration = Duration::from_millis(20);

/// Figures by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures(BTreeMap<String, u64>);

impl Figures {
    /// Reads them.
    ///
    /// # Errors
    /// If there is no daemon or no answer.
    pub fn read(client: &Client) -> anyhow::Result<Self> {
        Ok(Self(client.stats().context("asking for the daemon's figures")?.into_iter().collect()))
    }

    /// One of them; 0 if the daemon does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Size of the arena.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        self.get("arena_bytes")
    }

    /// How much of the arena has been touched.
    #[must_use]
    pub fn ready_bytes(&self) -> u64 {
        self.get("arena_ready_bytes")
    }

    /// Whether there is a disk tier, and every directory of it has been read and is of use.
    #[must_use]
    pub fn is_disk_back(&self) -> bool {
        let configured = self.get("disk_devices");
        configured > 0 && self.get("disk_devices_ready") == configured
    }

    /// How far the counters have come since `before`, those whose name starts and ends so, without either. Those that
    /// have not moved are left out.
    #[must_use]
    pub fn since(&self, before: &Self, starts: &str, ends: &str) -> Vec<(String, u64)> {
        let inner = |name: &str| Some(name.strip_prefix(starts)?.strip_suffix(ends)?.to_owned());
        let moved = |(name, now): (&String, &u64)| {
            let by = now.saturating_sub(before.get(name));
            Some((inner(name)?, by)).filter(|_| by > 0)
        };
        self.0.iter().filter_map(moved).collect()
    }
}

/// Waits until the daemon answers and every page of its arena is there, so that a run measures the
/// cache and not the first touch of memory. `look` is shown the figures so far, none before the
/// first answer, and says whether to go on.
///
/// # Errors
/// If that takes too long, or `look` says no.
pub fn wait_until_ready(
    socket: &Path,
    mut look: impl FnMut(Option<&Figures>) -> bool,
) -> anyhow::Result<Figures> {
    let client = Client::new(Options::new(socket, "figures"));
    let begun = Instant::now();
    loop {
        let figures = Figures::read(&client);
        if !look(figures.as_ref().ok()) {
            bail!("given up waiting for the daemon");
        }
        match figures {
            Ok(figures) if figures.ready_bytes() >= figures.arena_bytes() => return Ok(figures),
            Ok(figures) if begun.elapsed() > PATIENCE => {
                let (ready, all) = (figures.ready_bytes(), figures.arena_bytes());
                bail!("after {PATIENCE:?}, {ready} of {all} bytes of the arena are ready");
            }
            Err(error) if begun.elapsed() > PATIENCE => return Err(error),
            Ok(_) | Err(_) => {}
        }
        #[expect(clippy::disallowed_methods, reason = "no message says that an arena is ready")]
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_as_differences() {
        let figures = |pairs: &[(&str, u64)]| {
            Figures(pairs.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect())
        };
        let before = figures(&[("misses_expired_total", 5), ("misses_shed_total", 1)]);
        let after = figures(&[
            ("misses_expired_total", 7),
            ("misses_shed_total", 1),
            ("misses_total", 9),
            ("x", 3),
        ]);
        assert_eq!(after.since(&before, "misses_", "_total"), [("expired".to_owned(), 2)]);
    }
}
