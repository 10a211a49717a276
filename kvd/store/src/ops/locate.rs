//! Locate: say what is loadable, and keep it so for a while.

use kvd_proto::ids::SessionId;
use kvd_proto::miss::MissReason;
use kvd_proto::tier::Tier;

use crate::effects::{Effects, Located};
use crate::ops::Lookup;
use crate::rows::RowId;
use crate::store::Store;
use crate::time::Timestamp;

/// Most rows of one family that a promise extends to.
const FAMILY_MAX: u32 = 4096;
/// What the keys of a family have in common; see [`crate::Input::Locate`].
const FAMILY_KEY_BYTES: usize = 7;

impl Store {
    /// See [`crate::Input::Locate`].
    pub(crate) fn locate(
        &mut self,
        session: SessionId,
        lookup: Lookup<'_>,
        family: bool,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        self.sessions.open_index(session);
        let named = self.named(lookup.namespace);
        let mut lookups = core::mem::take(&mut self.scratch.lookups);
        self.look_up(named, lookup.keys, &mut lookups);
        self.foresee_extents(&lookups);
        let mut at = lookups.iter();
        // Keys of one chunk that follow each other share their family, which one visit promises.
        let mut visited: &[u8] = &[];
        lookup.keys.each(|key| {
            let Some(&(hash, row)) = at.next() else {
                return false;
            };
            // Loads that began for the keys before may have evicted the row.
            let located = if row == RowId::NONE || self.rows.get(row).is_none() {
                self.locate_below(lookup.namespace, key, family, now, &mut effects.unloaded_bytes)
                    .unwrap_or_else(|| Located::Miss(self.explain(named, hash, key)))
            } else {
                let kin = &key[..key.len().min(FAMILY_KEY_BYTES)];
                let present = self.locate_row(row, family && kin != visited, now);
                if matches!(present, Located::Present { .. }) {
                    visited = kin;
                    if family {
                        self.promise_kin_below(lookup.namespace, key, now);
                    }
                }
                present
            };
            effects.located.push(located);
            !(lookup.prefix && matches!(located, Located::Miss(_)))
        });
        self.scratch.lookups = lookups;
        self.sweep_promises();
    }

    fn locate_row(&mut self, id: RowId, family: bool, now: Timestamp) -> Located {
        let row = &self.rows[id];
        if row.is_expired(now) {
            return Located::Miss(MissReason::Expired);
        }
        // A window of nothing promises nothing.
        if self.config.promise_window_ms > 0 {
            let family = family && row.kin_next != RowId::NONE;
            let added = self.fold_kin(id, family, 0, |store, kin, sum| {
                let extent = &store.space[store.rows[kin].host_extent()];
                let is_new = !extent.promised() && !store.rows[kin].is_expired(now);
                sum + if is_new { extent.bytes() } else { 0 }
            });
            if self.promises.bytes + added > self.config.promised_bytes_max() {
                self.totals.promises_refused_total += 1;
                return Located::Miss(MissReason::Shed);
            }
            self.fold_kin(id, family, (), |store, kin, ()| store.promise(kin, now));
        }
        let row = &self.rows[id];
        Located::Present {
            tier: Tier::Host,
            len_bytes: row.len_bytes,
            load_us: 0,
            retention: row.class,
        }
    }

    /// Visits a row and, if asked for, the others of its family.
    fn fold_kin<T>(
        &mut self,
        id: RowId,
        family: bool,
        start: T,
        mut visit: impl FnMut(&mut Self, RowId, T) -> T,
    ) -> T {
        let mut result = visit(self, id, start);
        if !family {
            return result;
        }
        let mut kin = self.rows[id].kin_next;
        for _ in 1..FAMILY_MAX {
            if kin == id {
                break;
            }
            result = visit(self, kin, result);
            kin = self.rows[kin].kin_next;
        }
        result
    }

    /// Makes or renews a promise. It is kept for an eighth longer than the window, so that one that is
    /// asked for again and again is renewed now and then only, and yet a whole window is left.
    pub(crate) fn promise(&mut self, id: RowId, now: Timestamp) {
        if self.rows[id].marks.hinted() {
            self.unhint(id);
        }
        let window = self.config.promise_window_ms;
        let row = &self.rows[id];
        let extent = row.host_extent();
        let promised = self.space[extent].promised();
        if row.is_expired(now) || (promised && row.promised_until >= now.after(window)) {
            return;
        }
        if !promised {
            self.uncount_evictable(extent);
            self.space.set_promised(extent, true);
            self.promises.rows += 1;
            self.promises.bytes += self.space[extent].bytes();
            self.totals.promises_total += 1;
        }
        let until = now.after(window + window / 8);
        self.rows[id].promised_until = until;
        self.promises.push(until, id);
    }

    fn sweep_promises(&mut self) {
        if !self.promises.needs_sweep() {
            return;
        }
        let (rows, space) = (&self.rows, &self.space);
        self.promises.sweep(|until, id| {
            rows.get(id).is_some_and(|row| {
                row.promised_until == until && space[row.host_extent()].promised()
            })
        });
    }
}
