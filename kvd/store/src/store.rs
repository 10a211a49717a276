//! The store itself: one value, one way in.

use kvd_proto::block_key::Namespace;

use crate::config::StoreConfig;
use crate::effects::Effects;
use crate::input::Input;
use crate::inspect::{RowCursor, RowInfo, SessionInfo, Why};
use crate::stats::Stats;
use crate::time::Timestamp;

/// All decisions about blocks in the arena. Not thread-safe by itself: it lives behind one lock.
#[derive(Debug)]
pub struct Store {
    config: StoreConfig,
}

impl Store {
    /// An empty store. No byte of the arena is usable before [`Input::ArenaReady`].
    #[must_use]
    pub fn new(config: StoreConfig) -> Self {
        Self { config }
    }

    /// Takes one step. Empties `effects` first and fills it with the answer.
    ///
    /// # Panics
    /// If an input breaks a rule that its documentation states.
    pub fn apply(&mut self, input: Input<'_>, now: Timestamp, effects: &mut Effects) {
        effects.clear();
        let _unused = (input, now, self.config.arena_bytes);
    }

    /// All counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Why `key` would be found or missed now.
    #[must_use]
    pub fn why(&self, namespace: Namespace<'_>, key: &[u8], now: Timestamp) -> Why {
        let _unused = (namespace, key, now);
        Why::Missing {
            reason: kvd_proto::miss::MissReason::NeverStored,
            elsewhere: None,
        }
    }

    /// At most `limit` rows in storage order from `cursor` on, and where to go on. Rows that come
    /// and go between two calls may or may not be seen.
    #[must_use]
    pub fn rows(&self, cursor: RowCursor, limit: usize) -> (Vec<RowInfo>, Option<RowCursor>) {
        let _unused = (cursor, limit);
        (Vec::new(), None)
    }

    /// All sessions, in the order of their ids.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        Vec::new()
    }

    /// Checks the whole state against itself; costs time in proportion to the number of rows.
    ///
    /// # Panics
    /// If any invariant is broken.
    pub fn assert_consistent(&self) {}
}
