//! A store out of what another one's ledger says, which it goes on writing in place.
//!
//! Rows, rights, sessions and namespaces keep their numbers, so nothing has to be written again but
//! what does not come back: that is struck out. A kill at any moment of it leaves a ledger that says
//! the same or less.

use std::collections::BTreeSet;

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::SessionId;
use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;

use super::header::Mark;
use super::place::{Hold, Plan};
use super::read::{Found, FoundRow, LedgerImage};
use super::record::NO_TAIL;
use super::report::{Adopted, AdoptedSession, LedgerFault};
use super::slots::{RightSlot, SessionSlot};
use super::tails::Tails;
use super::{Holder, Ledger, Name, slot_mut};
use crate::config::StoreConfig;
use crate::disk::{Copied, Marks};
use crate::effects::{Effects, HeaderWrite};
use crate::index::Index;
use crate::input::Peer;
use crate::namespaces::NamespaceId;
use crate::rights::{Kind, Right};
use crate::rows::{Extra, Place, Row, RowId};
use crate::slab::NOWHERE;
use crate::space::{ExtentId, State, Used};
use crate::store::Store;
use crate::tablespace::EntryId;
use crate::time::Timestamp;

impl Store {
    /// Takes over what a daemon that is gone, or stands still for good, has left in an arena, as far as
    /// its ledger proves it intact. The layout of the ledger is the one that it was made with, whatever
    /// `config` says; it is written on in place: execute `effects`, the ledger's writes and then the
    /// headers, before anything else. A successor that is killed on the way can be succeeded likewise.
    ///
    /// Sessions in `connected` stay open, and their rights keep their names; all others are closed now.
    /// `image` does not change meanwhile.
    ///
    /// # Errors
    /// [`LedgerFault`]: nothing was done, and the arena must not be used.
    pub fn adopt<I: LedgerImage + ?Sized>(
        mut config: StoreConfig,
        image: &I,
        connected: &BTreeSet<SessionId>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(Self, Adopted), LedgerFault> {
        let found = Found::read(image)?;
        if found.header.arena_bytes != config.arena_bytes {
            let (found, expected) = (found.header.arena_bytes, config.arena_bytes);
            return Err(LedgerFault::OtherArena { found, expected });
        }
        let plan = Plan::of(&found, &config, now)?;
        check_holders(&found)?;
        config.ledger = Some(found.header.layout);
        effects.clear();
        let mut store = Self::new(config);
        let adopted = store.take_over(found, &plan, connected, now, effects);
        Ok((store, adopted))
    }

    fn take_over(
        &mut self,
        mut found: Found,
        plan: &Plan,
        connected: &BTreeSet<SessionId>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Adopted {
        self.ledger.resume(&found, plan);
        let version = found.mark(Mark::Version);
        self.version = u32::try_from(version).unwrap_or(0);
        for (slot, session) in &found.sessions {
            self.sessions.open_at(*slot, session.id, session.peer, session.process);
        }
        let extents = self.lay_out(&found, plan);
        self.take_over_rights(&found, plan, &extents, now);
        let mut adopted = Adopted {
            rights: found.rights.len() as u64,
            dropped: plan.dropped,
            ready_bytes: self.space.end(),
            next_session: found.mark(Mark::NextSession),
            ..Adopted::default()
        };
        let next_session = &mut adopted.next_session;
        for (_, session) in &found.sessions {
            *next_session = (*next_session).max(session.id.0 + 1);
        }
        self.take_over_reads(&found, plan, &extents, next_session);
        let sessions = core::mem::take(&mut found.sessions);
        adopted.dropped.conflicting += self.take_over_rows(found, plan, &extents.rows);
        self.close_all_but(connected, now);
        self.tell_adopted(&sessions, &mut adopted, effects);
        adopted
    }

    /// Makes the arena's line of extents.
    fn lay_out(&mut self, found: &Found, plan: &Plan) -> Extents {
        let mut extents = Extents {
            rows: vec![ExtentId::NONE; found.rows.len()],
            holds: Vec::with_capacity(plan.holds.len()),
        };
        let mut order = plan.rows.clone();
        order.sort_unstable_by_key(|&index| found.rows[index].range);
        let mut rows = order.into_iter().peekable();
        let mut holds = plan.holds.iter().peekable();
        loop {
            let row = rows.peek().map(|&index| (found.rows[index].range, index));
            let hold = holds.peek().copied();
            let row = row.filter(|&(range, _)| hold.is_none_or(|hold| range <= hold.range));
            let id = match (row, hold) {
                (None, None) => break,
                (Some((_, index)), _) => {
                    rows.next();
                    let id = self.space.append_used(used_by(&found.rows[index]));
                    extents.rows[index] = id;
                    id
                }
                (None, Some(hold)) => self.space.append_used(used_by_hold(hold)),
            };
            // A row that is held, or a hold alone.
            if row.is_none_or(|(range, _)| hold.is_some_and(|hold| hold.range == range)) {
                holds.next();
                extents.holds.push(id);
            }
        }
        let ready = (found.mark(Mark::Ready).saturating_mul(64)).min(self.config.arena_bytes);
        self.space.grow_to(ready.max(self.space.end()));
        self.arena_grows = self.space.end() < self.config.arena_bytes;
        extents
    }

    fn take_over_rights(&mut self, found: &Found, plan: &Plan, extents: &Extents, now: Timestamp) {
        for (index, right) in &found.rights {
            let extent = extents.of(plan, right.range.start);
            let &RightSlot { kind, session, asked_bytes, owes_reserve, uses, .. } = right;
            let until = Timestamp(0);
            let right = Right { kind, session, extent, asked_bytes, owes_reserve, until };
            self.grant_again(*index, uses, right);
            if kind == Kind::Lingering {
                self.rights.linger(*index, now.after(self.config.view_grace_ms));
            }
        }
        self.rights.resume(&found.uses);
    }

    /// What the kernel was reading into the arena is nobody's until that is certainly over: a session
    /// without a process has it.
    fn take_over_reads(
        &mut self,
        found: &Found,
        plan: &Plan,
        extents: &Extents,
        next_session: &mut u64,
    ) {
        let tickets = found.rights.iter().filter(|(_, right)| right.kind == Kind::Ticket);
        let ticketed: BTreeSet<u64> = tickets.map(|(_, right)| right.range.start).collect();
        let mut kernel = None;
        for &(slot, range) in &found.reads {
            // The predecessor was killed after the first of these two.
            if ticketed.contains(&range.start) {
                self.ledger.read_over(slot);
                continue;
            }
            let session = *kernel.get_or_insert_with(|| {
                let id = SessionId(*next_session);
                *next_session += 1;
                self.open_for(Holder::Kernel, id, Peer::Watched, None)
            });
            let fits = self.ledger.takes_right(self.rights.next_index(), session);
            self.grant(Right {
                kind: Kind::Ticket,
                session,
                extent: extents.of(plan, range.start),
                asked_bytes: 0,
                owes_reserve: false,
                until: Timestamp(0),
            });
            if fits {
                self.ledger.read_over(slot);
            }
        }
    }

    /// Rows that were dropped because they have the same name.
    fn take_over_rows(&mut self, found: Found, plan: &Plan, extents: &[ExtentId]) -> u64 {
        let mut stays = vec![false; found.rows.len()];
        for &index in &plan.rows {
            stays[index] = true;
            let row = &found.rows[index];
            self.evict.insert(RowId(row.slot), row.fields.class);
        }
        let mut rows_in = BTreeSet::new();
        let kept = found.rows.iter().zip(&stays).filter(|&(_, &stays)| stays);
        rows_in.extend(kept.map(|(row, _)| row.fields.namespace));
        for namespace in found.namespaces.iter().filter(|at| rows_in.contains(&at.slot)) {
            let name = Namespace { model: &namespace.model, compat_key: &namespace.compat_key };
            self.namespaces.insert_at(NamespaceId(namespace.slot), name);
        }
        self.index = Index::with_room_for(plan.rows.len());
        let kept = found.rows.into_iter().zip(extents).zip(stays).filter(|&(_, stays)| stays);
        let mut hashes = Vec::with_capacity(plan.rows.len());
        for ((row, &extent), _) in kept {
            let id = RowId(row.slot);
            self.take_over_row(row, extent);
            hashes.push((self.row_hash(&self.rows[id]), id));
        }
        let twins = self.enter_all(hashes);
        self.disk.adopted_end = if self.disk.exists() { self.rows.end() } else { 0 };
        for &twin in &twins {
            self.remove_row(twin, MissReason::Corrupt);
        }
        twins.len() as u64
    }

    /// Enters rows into the index; those that have a name in common with another one.
    fn enter_all(&mut self, mut hashes: Vec<(u64, RowId)>) -> BTreeSet<RowId> {
        // One part of the index after the other: all at once, each look would miss every cache.
        hashes.sort_unstable_by_key(|&(hash, _)| Index::<RowId>::shard_of(hash));
        let mut twins = BTreeSet::new();
        for (hash, id) in hashes {
            let row = &self.rows[id];
            if let Some(other) = self.find(row.namespace, hash, row.key.as_bytes()) {
                twins.extend([other, id]);
            }
            self.enter(id, hash);
        }
        twins
    }

    fn take_over_row(&mut self, row: FoundRow, extent: ExtentId) {
        let FoundRow { slot, fields, key, lineage, .. } = row;
        let goes_below = self.disk.exists() && fields.class >= Retention::Short;
        let mut marks =
            Marks::new(if goes_below { Copied::Dirty { failures: 0 } } else { Copied::Never });
        marks.set_may_have_older(self.disk.exists());
        let room = self.config.lineage_bytes_max - self.lineage_bytes;
        let lineage = lineage.filter(|bytes| bytes.len() as u64 <= room);
        let is_asked_for = self.config.keep_checksums || goes_below;
        let expires_at = self.config.disk.monotonic(fields.expires_at);
        let row = Row {
            key,
            expires_at,
            promised_until: Timestamp(0),
            extra: Extra::new(lineage.as_deref(), fields.checksum.filter(|_| is_asked_for)),
            namespace: NamespaceId(fields.namespace),
            place: Place::Host(extent),
            len_bytes: fields.len_bytes,
            kin_previous: RowId::NONE,
            kin_next: RowId::NONE,
            hand_out: NOWHERE,
            class: fields.class,
            parked: false,
            device: 0,
            marks,
            entry: EntryId::NONE,
        };
        let id = RowId(slot);
        self.rows.insert_at(id, row);
        self.namespaces.add_row_to(NamespaceId(fields.namespace));
        if expires_at != Timestamp::NEVER {
            self.expiries.insert((expires_at, id));
        }
        self.host_bytes += u64::from(fields.len_bytes);
        self.lineage_bytes += self.rows[id].lineage_bytes();
        self.count_evictable(extent);
        if goes_below {
            self.disk.dirty.add(&self.rows[id]);
            if fields.class == Retention::Long {
                self.disk.dirty.push(id);
            }
        }
    }

    fn close_all_but(&mut self, connected: &BTreeSet<SessionId>, now: Timestamp) {
        let all = self.sessions.iter().map(|(_, session)| session.id);
        let lost: Vec<SessionId> = all.filter(|id| !connected.contains(id)).collect();
        for id in lost {
            self.close(id, now);
        }
        // Nobody watches them yet.
        self.sessions.forgotten.clear();
    }

    fn tell_adopted(
        &mut self,
        before: &[(u32, SessionSlot)],
        adopted: &mut Adopted,
        effects: &mut Effects,
    ) {
        adopted.rows = self.rows.len().into();
        adopted.bytes = self.host_bytes;
        for (slot, session) in self.sessions.iter() {
            let known =
                before.iter().find(|(other, known)| (*other, known.id) == (slot, session.id));
            adopted.sessions.push(AdoptedSession {
                session: session.id,
                process: known.and_then(|(_, known)| known.process),
                peer: session.peer,
                holder: known.map_or(Holder::Kernel, |(_, known)| known.holder),
                open: !session.closed,
                held_bytes: session.in_flight_bytes,
            });
        }
        // The predecessor may have been killed between a row and its header.
        effects.headers.extend(self.rows.iter().map(|(_, row)| HeaderWrite {
            payload_offset: self.space.payload_offset(row.host_extent()),
            version: self.space[row.host_extent()].version(),
            len_bytes: row.len_bytes,
        }));
        core::mem::swap(&mut effects.ledger, &mut self.ledger.writes);
        // Whoever follows events begins with a look at everything.
        self.tiers.clear();
    }
}

/// The extents that were laid out.
#[derive(Debug)]
struct Extents {
    /// For each row that was found; none for those that do not stay.
    rows: Vec<ExtentId>,
    /// For each hold of the plan.
    holds: Vec<ExtentId>,
}

impl Extents {
    /// The extent that somebody holds.
    fn of(&self, plan: &Plan, start: u64) -> ExtentId {
        let at = plan.holds.partition_point(|hold| hold.range.start < start);
        self.holds[at]
    }
}

fn used_by(row: &FoundRow) -> Used<RowId> {
    Used {
        start: row.range.start,
        bytes: row.range.bytes,
        state: State::Stored,
        owner: RowId(row.slot),
        class: row.fields.class,
        version: row.fields.version,
        large: row.fields.large,
    }
}

fn used_by_hold(hold: &Hold) -> Used<RowId> {
    Used {
        start: hold.range.start,
        bytes: hold.range.bytes,
        state: if hold.written { State::Ticketed } else { State::Orphaned },
        owner: RowId::NONE,
        class: Retention::None,
        version: hold.version,
        large: hold.large,
    }
}

impl Ledger {
    /// Goes on where the predecessor stopped, and strikes out what does not come back.
    fn resume(&mut self, found: &Found, plan: &Plan) {
        for (end, mark) in self.ends.iter_mut().zip(found.marks) {
            *end = u32::try_from(mark).unwrap_or(0);
        }
        let mut used = vec![false; found.tails.len()];
        let mut use_chain = |first: u32| {
            let mut tail = first;
            while tail != NO_TAIL {
                used[tail as usize] = true;
                tail = found.tails[tail as usize];
            }
        };
        let mut rows_in = BTreeSet::new();
        for row in plan.rows.iter().map(|&index| &found.rows[index]) {
            self.clock = self.clock.max(row.recency);
            rows_in.insert(row.fields.namespace);
            if row.first_tail != NO_TAIL {
                use_chain(row.first_tail);
                *slot_mut(&mut self.row_tails, row.slot, NO_TAIL) = row.first_tail;
            }
        }
        for namespace in &found.namespaces {
            use_chain(namespace.first_tail);
            let (tie, first_tail) = (namespace.tie, namespace.first_tail);
            *slot_mut(&mut self.names, namespace.slot, None) = Some(Name { tie, first_tail });
        }
        self.tails = Tails::of(found.tails.clone(), self.layout.tails, |tail| used[tail as usize]);
        self.reads_end = self.ends[Mark::Reads as usize];
        let taken: BTreeSet<u32> = found.reads.iter().map(|&(slot, _)| slot).collect();
        self.vacant_reads = (0..self.reads_end).rev().filter(|at| !taken.contains(at)).collect();
        for &slot in &plan.struck {
            self.row_over(slot);
        }
        for namespace in found.namespaces.iter().filter(|at| !rows_in.contains(&at.slot)) {
            self.namespace_over(namespace.slot);
        }
    }
}

/// Rights without a session, and two sessions with one id: then nothing is certain.
fn check_holders(found: &Found) -> Result<(), LedgerFault> {
    let slots: BTreeSet<u32> = found.sessions.iter().map(|&(slot, _)| slot).collect();
    let ids: BTreeSet<SessionId> = found.sessions.iter().map(|(_, session)| session.id).collect();
    if let Some(&(slot, _)) = found.sessions.first()
        && ids.len() < slots.len()
    {
        return Err(LedgerFault::Rights { what: "session", slot });
    }
    let lost = found.rights.iter().find(|(_, right)| !slots.contains(&right.session));
    lost.map_or(Ok(()), |&(slot, _)| Err(LedgerFault::Rights { what: "right", slot }))
}
