//! Commit: a written extent becomes a row, or the new place of one.

use kvd_proto::block_key::{KEY_BYTES_MAX, Namespace};
use kvd_proto::lineage::LINEAGE_BYTES_MAX;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;

use crate::disk::{Copied, Marks};
use crate::effects::{Effects, HeaderWrite, Outcome};
use crate::input::{Commit, CommitRules};
use crate::lookup::Named;
use crate::rights::Right;
use crate::room::Amount;
use crate::rows::{Extra, Key, Place, Row, RowId};
use crate::slab::NOWHERE;
use crate::space::{ExtentId, State};
use crate::store::Store;
use crate::tablespace::EntryId;
use crate::time::Timestamp;

/// A commit whose ticket is consumed and whose length is known to be good.
struct Accepted<'a> {
    commit: &'a Commit<'a>,
    right: Right,
    len_bytes: u32,
    named: Named,
    hash: u64,
    /// The row that is replaced.
    old: Option<RowId>,
}

impl Store {
    /// See [`crate::Input::Commit`].
    pub(crate) fn commit(&mut self, commit: &Commit<'_>, now: Timestamp, effects: &mut Effects) {
        let committed = self.use_ticket(commit, now, effects);
        effects.outcome = Outcome::Committed(self.counted(committed));
    }

    /// See [`crate::Input::CheckSet`].
    pub(crate) fn check_set(
        &self,
        namespace: Namespace<'_>,
        key: &[u8],
        len_bytes: u64,
        retention: Retention,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if key.len() > KEY_BYTES_MAX || !namespace.is_within_limits() {
            return Err(Refusal::BadKey);
        }
        let named = self.named(namespace);
        let old = named.id.and_then(|id| self.find(id, self.hash(named.hash, key), key));
        let old = old.map(|old| &self.rows[old]).filter(|old| !old.is_expired(now));
        let stored_class = match old {
            Some(old) => Some(old.class),
            None => self.class_below(namespace, key, now),
        };
        if stored_class.is_some_and(|class| class > retention) {
            return Err(Refusal::Downgrade);
        }
        if len_bytes > self.config.budget_bytes {
            return Err(Refusal::ValueLargerThanStore);
        }
        Ok(())
    }

    fn use_ticket(
        &mut self,
        commit: &Commit<'_>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let ticket = self.ticket(commit.session, commit.ticket)?;
        let asked_bytes = self.rights.at(ticket).asked_bytes;
        let len_bytes = u32::try_from(commit.len_bytes)
            .ok()
            .filter(|&len_bytes| len_bytes <= asked_bytes)
            .ok_or(Refusal::OversizeCommit)?;
        if commit.key.len() > KEY_BYTES_MAX || !commit.namespace.is_within_limits() {
            return Err(Refusal::BadKey);
        }
        if let Some(lineage) = commit.lineage {
            assert!(lineage.len() <= LINEAGE_BYTES_MAX, "checked when it was decoded");
        }
        let right = self.withdraw(ticket);
        let named = self.named(commit.namespace);
        let hash = self.hash(named.hash, commit.key);
        let old = named.id.and_then(|id| self.find(id, hash, commit.key));
        let accepted = Accepted { commit, right, len_bytes, named, hash, old };
        let stored = self.store(&accepted, now, effects);
        if commit.rules == CommitRules::Set || stored.is_ok() {
            self.totals.sets_total += 1;
        }
        if !matches!(stored, Ok(true)) {
            self.space.let_go(right.extent);
        }
        stored.map(|_is_stored| ())
    }

    /// Whether the bytes are kept; the extent is the caller's to give back otherwise.
    fn store(
        &mut self,
        accepted: &Accepted<'_>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<bool, Refusal> {
        let Accepted { commit, len_bytes, old, .. } = *accepted;
        let old = self.without_expired(old, now);
        if commit.ttl_ms == Some(0) {
            return Ok(false);
        }
        let keeps_class = commit.rules == CommitRules::Set;
        let stored_class = match old {
            Some(old) => Some(self.rows[old].class),
            None => self.class_below(commit.namespace, commit.key, now),
        };
        if keeps_class && stored_class.is_some_and(|class| class > commit.retention) {
            return Err(Refusal::Downgrade);
        }
        if u64::from(len_bytes) > self.config.budget_bytes {
            return Err(Refusal::ValueLargerThanStore);
        }
        let is_new_namespace =
            old.is_none() && self.namespaces.find(commit.namespace, accepted.named.hash).is_none();
        if is_new_namespace && self.namespaces.is_full() {
            return Err(Refusal::Shed);
        }
        self.settle_some(now);
        let mut missing = self.check_room(accepted, old);
        if missing.is_err() {
            self.settle_all(now);
            // Settling may have removed a row whose time is over, but not `old`.
            missing = self.check_room(accepted, old);
        }
        let missing = missing?;
        let extent = accepted.right.extent;
        self.space.trim(extent, self.kept_bytes(accepted));
        let before = self.replace_below(old, commit, len_bytes, now);
        let id = match old {
            Some(old) => {
                self.replace_row(old, extent, accepted, now);
                old
            }
            None => self.insert_row(extent, accepted, now),
        };
        effects.wait = self.stored_below(id, accepted.hash, before, old.is_none());
        self.pay_room(id, accepted, missing);
        let payload_offset = self.space.payload_offset(extent);
        let version = self.space[extent].version();
        effects.headers.push(HeaderWrite { payload_offset, version, len_bytes });
        Ok(true)
    }

    /// An expired row is no row: it neither forbids a lower class nor is it replaced.
    fn without_expired(&mut self, old: Option<RowId>, now: Timestamp) -> Option<RowId> {
        let old = old?;
        if self.rows[old].is_expired(now) {
            self.expire(old);
            return None;
        }
        Some(old)
    }

    /// What must be evicted for the budget, and for the reserve if the ticket drew on it.
    fn check_room(&self, accepted: &Accepted<'_>, old: Option<RowId>) -> Result<Amount, Refusal> {
        let class = accepted.commit.retention;
        let range = &self.space[accepted.right.extent];
        let kept = self.kept_bytes(accepted);
        let mut available = self.evictable.up_to(class);
        let mut host_bytes = self.host_bytes + self.disk.loads.payload_bytes;
        let mut free = self.space.bytes_in(State::Free) + range.bytes() - kept;
        if let Some(old) = old {
            let row = &self.rows[old];
            let old_range = &self.space[row.host_extent()];
            host_bytes -= u64::from(row.len_bytes);
            free += if old_range.pins() == 0 { old_range.bytes() } else { 0 };
            if old_range.is_evictable() && row.class <= class {
                available.space -= old_range.bytes();
                available.payload -= u64::from(row.len_bytes);
                available.rows -= 1;
            }
        }
        let over_budget = host_bytes + u64::from(accepted.len_bytes);
        let missing = Amount {
            payload: over_budget.saturating_sub(self.config.budget_bytes),
            rows: (u64::from(self.rows.len())
                + self.disk.loads.len() as u64
                + u64::from(old.is_none()))
            .saturating_sub(self.config.rows_max.into()),
            space: if accepted.right.owes_reserve {
                self.reserve_bytes().saturating_sub(free).min(kept)
            } else {
                0
            },
        };
        if available.covers(missing) { Ok(missing) } else { Err(self.refusal_for(class)) }
    }

    /// Evicts what `check_room` found missing, but never the new row.
    fn pay_room(&mut self, id: RowId, accepted: &Accepted<'_>, mut missing: Amount) {
        if missing.is_nothing() {
            return;
        }
        let (extent, class) = (accepted.right.extent, accepted.commit.retention);
        self.pin(extent);
        if missing.space > 0 {
            // One hole of this size rather than crumbs: the next value is likely as large.
            let need = self.space.layout().footprint(accepted.len_bytes.into());
            missing = missing.less(self.make_hole(need, class));
        }
        self.evict_coldest(class, missing);
        self.unpin(extent);
        self.touch(id);
    }

    /// Length of the extent once it is cut to the bytes really written.
    fn kept_bytes(&self, accepted: &Accepted<'_>) -> u64 {
        let need = self.space.layout().footprint(accepted.right.asked_bytes.into());
        self.space.layout().bytes_for(accepted.len_bytes.into(), need.large)
    }

    fn insert_row(&mut self, extent: ExtentId, accepted: &Accepted<'_>, now: Timestamp) -> RowId {
        let Commit { namespace, key, retention, .. } = *accepted.commit;
        let row = Row {
            key: Key::new(key),
            expires_at: Timestamp::NEVER,
            promised_until: Timestamp(0),
            extra: None,
            namespace: self.namespaces.add_row(namespace, accepted.named.hash),
            place: Place::Host(extent),
            len_bytes: accepted.len_bytes,
            kin_previous: RowId::NONE,
            kin_next: RowId::NONE,
            hand_out: NOWHERE,
            class: retention,
            parked: false,
            device: 0,
            marks: Marks::new(Copied::Never),
            entry: EntryId::NONE,
        };
        let id = self.rows.insert(row);
        self.enter(id, accepted.hash);
        self.evict.insert(id, retention);
        self.settle_row(id, extent, accepted, now);
        id
    }

    /// The row moves to its new extent. A promise for the key goes with it, even if the new value
    /// is larger and promises exceed their bound then: none is made or renewed until they do not.
    fn replace_row(
        &mut self,
        id: RowId,
        extent: ExtentId,
        accepted: &Accepted<'_>,
        now: Timestamp,
    ) {
        let class = accepted.commit.retention;
        let promised = self.space[self.rows[id].host_extent()].promised();
        self.let_extent_go(id);
        let row = &mut self.rows[id];
        self.host_bytes -= u64::from(row.len_bytes);
        self.lineage_bytes -= row.lineage_bytes();
        if row.expires_at != Timestamp::NEVER {
            self.expiries.remove(&(row.expires_at, id));
        }
        let (before, was_parked) = (row.class, core::mem::take(&mut row.parked));
        row.place = Place::Host(extent);
        row.len_bytes = accepted.len_bytes;
        row.hand_out = NOWHERE;
        row.class = class;
        if !was_parked {
            self.evict.remove(id, before);
        }
        self.evict.insert(id, class);
        self.settle_row(id, extent, accepted, now);
        if promised {
            self.uncount_evictable(extent);
            self.space.set_promised(extent, true);
            self.promises.rows += 1;
            self.promises.bytes += self.space[extent].bytes();
        }
    }

    /// What new and replaced rows have in common.
    fn settle_row(&mut self, id: RowId, extent: ExtentId, accepted: &Accepted<'_>, now: Timestamp) {
        let Commit { retention, ttl_ms, lineage, checksum, .. } = *accepted.commit;
        // Routing gets worse without a lineage; memory without a bound would be worse.
        let room = self.config.lineage_bytes_max - self.lineage_bytes;
        let kept = lineage.filter(|bytes| bytes.len() as u64 <= room);
        self.totals.lineages_dropped_total += u64::from(kept.is_none() && lineage.is_some());
        let is_asked_for =
            self.config.keep_checksums || (self.disk.exists() && retention >= Retention::Short);
        self.discount_row(id);
        self.rows[id].extra = Extra::new(kept, checksum.filter(|_| is_asked_for));
        self.count_row(id);
        let row = &mut self.rows[id];
        row.expires_at = ttl_ms.map_or(Timestamp::NEVER, |ttl_ms| now.after(ttl_ms));
        if row.expires_at != Timestamp::NEVER {
            self.expiries.insert((row.expires_at, id));
        }
        self.host_bytes += u64::from(row.len_bytes);
        self.lineage_bytes += row.lineage_bytes();
        self.space.store(extent, id, retention);
        self.count_evictable(extent);
        self.record_row(id, checksum);
        self.tell_stored(id);
    }
}
