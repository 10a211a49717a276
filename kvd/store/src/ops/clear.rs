//! Clear: rows go on request, a slice at a time.

use kvd_proto::miss::MissReason;

use crate::effects::Outcome;
use crate::input::{ClearCursor, ClearScope};
use crate::namespaces::NamespaceId;
use crate::rows::RowId;
use crate::store::Store;

/// Places in the table of rows that one slice looks at.
const VISITS: u32 = 2048;
/// Rows that one slice removes: that is the dearer part.
const REMOVALS: u64 = 128;

impl Store {
    /// See [`crate::Input::Clear`].
    pub(crate) fn clear(&mut self, scope: ClearScope<'_>, cursor: ClearCursor) -> Outcome {
        let ClearCursor(start) = cursor;
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
                Some(_) | None => self.is_in_scope(namespace, scope),
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
        Outcome::Cleared { rows, next: (!is_over).then_some(ClearCursor(at)) }
    }

    fn is_in_scope(&self, id: NamespaceId, scope: ClearScope<'_>) -> bool {
        let entry = self.namespaces.at(id);
        match scope {
            ClearScope::Everything => true,
            ClearScope::Model(model) => *entry.model == *model,
            ClearScope::Namespace(namespace) => {
                *entry.model == *namespace.model && *entry.compat_key == *namespace.compat_key
            }
        }
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
