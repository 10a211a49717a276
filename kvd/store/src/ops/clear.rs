//! Clear: what devices hold goes first, so that nothing comes back from there; then the rows, a
//! slice at a time.

use kvd_proto::miss::MissReason;

use crate::effects::{Effects, Outcome};
use crate::input::{ClearCursor, ClearScope, ClearStage};
use crate::namespaces::NamespaceId;
use crate::rows::RowId;
use crate::store::Store;

/// Places in the table of rows that one slice looks at.
const VISITS: u32 = 2048;
/// Rows that one slice removes: that is the dearer part.
const REMOVALS: u64 = 128;

impl Store {
    /// See [`crate::Input::Clear`].
    pub(crate) fn clear(
        &mut self,
        scope: ClearScope<'_>,
        cursor: ClearCursor,
        effects: &mut Effects,
    ) {
        let below = match cursor.0 {
            ClearStage::Begin => self.begin_clear_below(scope),
            ClearStage::Below(at) => self.clear_slice_below(scope, at),
            ClearStage::Rows(start) => {
                self.clear_and_wait(scope, start, effects);
                return;
            }
        };
        match below {
            Some(at) => {
                let next = Some(ClearCursor(ClearStage::Below(at)));
                effects.outcome = Outcome::Cleared { rows: 0, next };
            }
            None => self.clear_and_wait(scope, 0, effects),
        }
    }

    fn clear_and_wait(&mut self, scope: ClearScope<'_>, start: u32, effects: &mut Effects) {
        let (rows, at) = self.clear_rows(scope, start);
        if at.is_none() {
            effects.wait = self.wait_for_clear();
        }
        let next = at.map(|at| ClearCursor(ClearStage::Rows(at)));
        effects.outcome = Outcome::Cleared { rows, next };
    }

    fn clear_rows(&mut self, scope: ClearScope<'_>, start: u32) -> (u64, Option<u32>) {
        let end = start.saturating_add(VISITS).min(self.rows.end());
        let (mut at, mut rows) = (start, 0);
        // Neighbours mostly share their namespace.
        let mut latest: Option<(NamespaceId, bool)> = None;
        while at < end && rows < REMOVALS {
            let id = RowId(at);
            at += 1;
            let Some(namespace) = self.rows.get(id).map(|row| row.namespace) else {
                continue;
            };
            let matches = match latest {
                Some((known, matches)) if known == namespace => matches,
                Some(_) | None => {
                    let entry = self.namespaces.at(namespace);
                    scope.covers(&entry.model, &entry.compat_key)
                }
            };
            latest = Some((namespace, matches));
            if matches {
                self.totals.cleared_total += 1;
                self.remove_row(id, MissReason::Cleared);
                rows += 1;
                // The namespace's number may go to another with its last row.
                latest = None;
            }
        }
        let is_over = at >= self.rows.end() || self.is_empty(scope);
        (rows, (!is_over).then_some(at))
    }

    /// Whether there is nothing (more) to clear, as far as that is known at once.
    fn is_empty(&self, scope: ClearScope<'_>) -> bool {
        match scope {
            ClearScope::Everything => self.rows.len() == 0,
            ClearScope::Namespace(namespace) => self.named(namespace).id.is_none(),
            ClearScope::Model(_) => false,
        }
    }
}
