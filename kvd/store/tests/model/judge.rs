//! Verdicts: is this answer one that the rules allow, given all that happened before?

use std::collections::BTreeSet;

use kvd_proto::ids::TicketId;
use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::{Found, Held, Hold, Located, Outcome, RowCursor, Timestamp, Why};

use crate::oracle::{
    ARENA, BUDGET, IN_FLIGHT_MAX, Kind, LEASES_MAX, Name, QUARANTINE_MAX, Range, Right, Row,
    TICKETS_MAX, WINDOW_MS, geometry,
};
use crate::run::{NAMESPACES, Run, Sabotage, key};
use crate::step::Commit;

impl Run {
    pub(crate) fn judge_fetch(&mut self, session: u64, names: &[Name], prefix: bool, hold: Hold) {
        let all = self.effects.found.clone();
        let mut at = 0;
        for name in names {
            let found = all[at];
            at += 1;
            self.oracle.counts.gets += 1;
            if self.oracle.rows.get(name).is_some_and(|row| self.oracle.is_expired(row)) {
                self.oracle.expire(name);
            }
            match found {
                Found::Hit(hit) => {
                    self.oracle.counts.hits += 1;
                    let row = self.oracle.rows.get(name).unwrap_or_else(|| {
                        panic!("{name:?} is hit but was never stored, or is gone")
                    });
                    let expected = (row.range.payload, row.len, row.version, row.class);
                    let found =
                        (hit.payload_offset, hit.len_bytes.into(), hit.version, hit.retention);
                    assert_eq!(found, expected);
                    let range = row.range;
                    self.add_hold(session, hold, hit.held, range);
                }
                Found::Loading => panic!("there is no device"),
                Found::Miss(reason) => {
                    self.oracle.counts.misses += 1;
                    self.judge_miss(session, name, reason, hold);
                    if prefix {
                        break;
                    }
                }
            }
        }
        assert_eq!(at, all.len());
    }

    fn add_hold(&mut self, session: u64, hold: Hold, held: Held, range: Range) {
        let leases = self.count(session, |kind| kind == Kind::Lease);
        let (kind, id) = match (hold, held) {
            (Hold::Lease, Held::Lease(lease)) => {
                assert!(leases < LEASES_MAX, "a lease above the cap");
                (Kind::Lease, lease.0)
            }
            (Hold::Inline, Held::Lease(lease)) => (Kind::DaemonLease, lease.0),
            (Hold::HandOut, Held::Lease(lease)) => {
                assert!(self.may_be_capped(session, range), "inline without need");
                (Kind::DaemonLease, lease.0)
            }
            (Hold::HandOut, Held::HandOut) => (Kind::HandOut, 0),
            (Hold::Lease | Hold::Inline, Held::HandOut) => panic!("a hand-out nobody asked for"),
        };
        self.oracle.rights.push(Right { kind, session, id, range, asked: 0, version: 0 });
    }

    fn count(&self, session: u64, wanted: impl Fn(Kind) -> bool) -> u32 {
        let of_session = self.oracle.rights.iter().filter(|right| right.session == session);
        of_session.map(|right| u32::from(wanted(right.kind))).sum()
    }

    /// Whether the caps could forbid one more, counting every hand-out as often as it happened.
    fn may_be_capped(&self, session: u64, range: Range) -> bool {
        let is_lease = |kind| matches!(kind, Kind::Lease | Kind::HandOut | Kind::Lingering { .. });
        let counts = |kind| is_lease(kind) || kind == Kind::Ticket;
        let rights = self.oracle.rights.iter();
        let own = rights.filter(|right| right.session == session && counts(right.kind));
        let bytes: u64 = own.map(|right| right.range.bytes()).sum();
        self.count(session, is_lease) >= LEASES_MAX
            || bytes + range.bytes() > IN_FLIGHT_MAX
            || self.may_fill_quarantine(session, range.bytes())
    }

    fn may_fill_quarantine(&self, session: u64, bytes: u64) -> bool {
        let unknowable = |id| self.oracle.sessions[&id].unknowable;
        let held: u64 = self
            .oracle
            .rights
            .iter()
            .filter(|right| matches!(right.kind, Kind::Lease | Kind::Ticket))
            .filter(|right| unknowable(right.session))
            .map(|right| right.range.bytes())
            .sum();
        unknowable(session) && held + bytes > QUARANTINE_MAX
    }

    fn judge_miss(&self, session: u64, name: &Name, reason: MissReason, hold: Hold) {
        if let Some(row) = self.oracle.rows.get(name) {
            assert_eq!(reason, MissReason::Shed, "{name:?} is stored");
            assert!(hold == Hold::Lease && self.may_be_capped(session, row.range));
            return;
        }
        let expected = self.oracle.reason(name);
        if self.sabotage == Sabotage::WrongReason && expected == MissReason::Expired {
            assert_eq!(reason, MissReason::Cleared);
        }
        assert_eq!(reason, expected, "{name:?}");
    }

    pub(crate) fn judge_locate(&mut self, names: &[Name], prefix: bool, family: bool) {
        let all = self.effects.located.clone();
        let mut at = 0;
        for name in names {
            let located = all[at];
            at += 1;
            let row = self.oracle.rows.get(name).cloned();
            match (located, row) {
                (Located::Present { len_bytes, retention, .. }, Some(row)) => {
                    assert!(!self.oracle.is_expired(&row));
                    assert_eq!((u64::from(len_bytes), retention), (row.len, row.class));
                    self.promise(name, family);
                }
                (Located::Miss(reason), Some(row)) if self.oracle.is_expired(&row) => {
                    assert_eq!(reason, MissReason::Expired);
                }
                (Located::Miss(reason), Some(_)) => {
                    assert_eq!(reason, MissReason::Shed);
                    let bytes = self.promised_bytes() + self.family_bytes(name, family);
                    assert!(bytes > ARENA / 4, "{name:?} could be promised");
                }
                (Located::Miss(reason), None) => assert_eq!(reason, self.oracle.reason(name)),
                (Located::Present { .. }, None) => panic!("{name:?} is not there"),
            }
            if prefix && matches!(located, Located::Miss(_)) {
                break;
            }
        }
        assert_eq!(at, all.len());
    }

    fn kin(&self, name: &Name, family: bool) -> Vec<Name> {
        self.names_where(|_, _| true)
            .into_iter()
            .filter(|other| {
                let kin = family
                    && name.1.len() == 8
                    && other.1.len() == 8
                    && name.1[..7] == other.1[..7]
                    && NAMESPACES[name.0].model == NAMESPACES[other.0].model;
                other == name || kin
            })
            .collect()
    }

    fn family_bytes(&self, name: &Name, family: bool) -> u64 {
        let rows = self.kin(name, family).into_iter().map(|kin| self.oracle.rows[&kin].clone());
        rows.map(|row| row.range.bytes()).sum()
    }

    /// Promises that were not seen to end count, too.
    fn promised_bytes(&self) -> u64 {
        let rows = self.oracle.rows.values().filter(|row| row.promised_until.is_some());
        rows.map(|row| row.range.bytes()).sum()
    }

    fn promise(&mut self, name: &Name, family: bool) {
        let now = self.oracle.now;
        let mut adds = false;
        for kin in self.kin(name, family) {
            let row = &self.oracle.rows[&kin];
            let is_fresh = row.promised_until.is_some_and(|until| until >= now + WINDOW_MS);
            if self.oracle.is_expired(row) || is_fresh {
                continue;
            }
            adds |= !self.oracle.is_promised(row);
            if let Some(row) = self.oracle.rows.get_mut(&kin) {
                row.promised_until = Some(now + WINDOW_MS + WINDOW_MS / 8);
            }
        }
        let rows = self.oracle.rows.values();
        let active = rows.filter(|row| self.oracle.is_promised(row));
        let bytes: u64 = active.map(|row| row.range.bytes()).sum();
        assert!(!adds || bytes <= ARENA / 4, "{bytes} bytes are promised");
    }

    pub(crate) fn judge_reserve(
        &mut self,
        session: u64,
        len: u64,
        class: Option<Retention>,
        daemon: bool,
    ) -> Option<TicketId> {
        let Outcome::Reserved(reserved) = self.effects.outcome else {
            panic!("{:?}", self.effects.outcome);
        };
        let (header, unit) = geometry(len);
        let bytes = header + len.next_multiple_of(unit);
        let tickets = self.count(session, |kind| kind == Kind::Ticket);
        let range = Range { payload: header, start: 0, end: bytes };
        let fitted = self.oracle.fits(len, |_| true);
        match reserved {
            Ok(granted) => {
                assert!(daemon || tickets < TICKETS_MAX);
                self.judge_vanished(class, !fitted);
                let range = Range::new(granted.payload_offset, len, len);
                assert_eq!(granted.payload_offset % unit, 0);
                assert!(granted.capacity_bytes >= len);
                let capacity_end = granted.payload_offset + granted.capacity_bytes;
                assert_eq!(capacity_end, range.end);
                self.oracle.assert_unused(&range);
                let version = granted.version;
                assert!(version > 0 && version.is_multiple_of(2));
                assert!(self.oracle.versions.insert(version), "a version comes again");
                self.judge_header(granted.payload_offset, version - 1, 0);
                let kind = if daemon { Kind::DaemonTicket } else { Kind::Ticket };
                let id = granted.ticket.0;
                self.oracle.rights.push(Right { kind, session, id, range, asked: len, version });
                return Some(granted.ticket);
            }
            Err(Refusal::SessionLimit) => {
                assert!(!daemon);
                assert!(tickets >= TICKETS_MAX || self.may_be_capped(session, range));
            }
            Err(Refusal::QuarantineFull) => {
                assert!(!daemon && self.may_fill_quarantine(session, bytes));
            }
            Err(refusal @ (Refusal::ArenaFull | Refusal::HigherPriority)) => {
                self.judge_vanished(None, false);
                self.judge_full(len, class, refusal);
            }
            Err(other) => panic!("{other}"),
        }
        assert!(self.effects.headers.is_empty());
        None
    }

    /// Whether it is true that nothing could be done.
    fn judge_full(&self, len: u64, class: Option<Retention>, refusal: Refusal) {
        let oracle = &self.oracle;
        let possible = oracle.fits(len, |row| {
            class.is_none_or(|class| row.class > class) || !oracle.is_evictable(row)
        });
        assert!(!possible, "{len} bytes could be had for {class:?}");
        let higher = class.is_some_and(|class| {
            oracle.rows.values().any(|row| row.class > class && oracle.is_evictable(row))
        });
        let expected = if higher { Refusal::HigherPriority } else { Refusal::ArenaFull };
        assert_eq!(refusal, expected);
    }

    fn judge_header(&self, payload_offset: u64, version: u32, len: u64) {
        let [header] = self.effects.headers[..] else {
            panic!("{:?}", self.effects.headers);
        };
        assert_eq!((header.payload_offset, header.version), (payload_offset, version));
        assert_eq!(u64::from(header.len_bytes), len);
    }

    /// Rows that the last input removed by itself: expired, or evicted by right.
    fn judge_vanished(&mut self, class: Option<Retention>, may_evict: bool) -> Vec<Row> {
        let listed = self.listed();
        let vanished: Vec<Name> =
            self.oracle.rows.keys().filter(|name| !listed.contains(*name)).cloned().collect();
        let mut evicted = Vec::new();
        for name in vanished {
            let row = self.oracle.rows[&name].clone();
            if self.oracle.is_expired(&row) && self.reason_given(&name) == MissReason::Expired {
                self.oracle.expire(&name);
                continue;
            }
            assert!(may_evict && class.is_some_and(|class| row.class <= class), "{name:?} went");
            assert!(self.oracle.is_evictable(&row), "{name:?} was pinned or promised");
            self.oracle.counts.evictions += 1;
            self.oracle.rows.remove(&name);
            self.oracle.gone.insert(name, MissReason::Evicted(row.class));
            evicted.push(row);
        }
        evicted
    }

    fn reason_given(&self, name: &Name) -> MissReason {
        let now = Timestamp(self.oracle.now);
        match self.store.why(NAMESPACES[name.0], &name.1, now) {
            Why::Missing { reason, .. } => reason,
            Why::Present(row) => panic!("{row:?} is listed as missing"),
        }
    }

    fn listed(&self) -> BTreeSet<Name> {
        let (mut cursor, mut names) = (RowCursor::default(), BTreeSet::new());
        loop {
            let (rows, next) = self.store.rows(cursor, 7);
            for row in rows {
                let namespace = NAMESPACES
                    .iter()
                    .position(|all| all.model == row.model && all.compat_key == row.compat_key);
                let Some(namespace) = namespace else {
                    panic!("{row:?} is in a namespace of its own");
                };
                assert!(names.insert((namespace, row.key)), "listed twice");
            }
            match next {
                Some(next) => cursor = next,
                None => return names,
            }
        }
    }

    /// The ticket's place among the rights, or why it is none.
    pub(crate) fn ticket(&self, session: u64, ticket: TicketId) -> Result<usize, Refusal> {
        let is_ticket = |kind| matches!(kind, Kind::Ticket | Kind::DaemonTicket);
        let mut rights = self.oracle.rights.iter();
        let found = rights.position(|right| right.id == ticket.0 && is_ticket(right.kind));
        let at = found.ok_or(Refusal::UnknownTicket)?;
        if self.oracle.rights[at].session == session { Ok(at) } else { Err(Refusal::WrongOwner) }
    }

    pub(crate) fn judge_commit(
        &mut self,
        session: u64,
        ticket: TicketId,
        name: &Name,
        commit: &Commit,
    ) {
        let Outcome::Committed(committed) = self.effects.outcome else {
            panic!("{:?}", self.effects.outcome);
        };
        let at = match self.ticket(session, ticket) {
            Ok(at) if commit.len <= self.oracle.rights[at].asked => at,
            Ok(_) => return assert_eq!(committed, Err(Refusal::OversizeCommit)),
            Err(refusal) => return assert_eq!(committed, Err(refusal)),
        };
        let right = self.oracle.rights.remove(at);
        if self.oracle.rows.get(name).is_some_and(|row| self.oracle.is_expired(row)) {
            self.oracle.expire(name);
        }
        let class = Retention::ALL[commit.class];
        let refusal = self.commit_refusal(name, commit, class);
        assert_eq!(committed.err(), refusal);
        if commit.set || refusal.is_none() {
            self.oracle.counts.sets += 1;
        }
        if refusal.is_some() || commit.ttl_ms == Some(0) {
            assert!(self.effects.headers.is_empty());
            self.judge_vanished(None, false);
            return;
        }
        let old = self.oracle.rows.remove(name);
        let before = self.oracle.host_bytes();
        let evicted = self.judge_vanished(Some(class), before + commit.len > BUDGET);
        let bytes: u64 = evicted.iter().map(|row| row.len).sum();
        // The last to go made the difference; which one that was is not known.
        let most = evicted.iter().map(|row| row.len).max().unwrap_or(0);
        let excess = (before + commit.len).saturating_sub(BUDGET);
        assert!(evicted.is_empty() || bytes - most < excess, "more was evicted than needed");
        self.judge_header(right.range.payload, right.version, commit.len);
        let mut kept_class = class;
        if self.sabotage == Sabotage::LostClass && class == Retention::Long {
            kept_class = Retention::Short;
        }
        let row = Row {
            len: commit.len,
            class: kept_class,
            expires_at: commit.ttl_ms.map(|ttl_ms| self.oracle.now + ttl_ms),
            promised_until: old.and_then(|old| old.promised_until),
            range: Range::new(right.range.payload, right.asked, commit.len),
            version: right.version,
        };
        self.oracle.rows.insert(name.clone(), row);
        self.oracle.gone.remove(name);
    }

    fn commit_refusal(&self, name: &Name, commit: &Commit, class: Retention) -> Option<Refusal> {
        let oracle = &self.oracle;
        let old = oracle.rows.get(name);
        if commit.ttl_ms == Some(0) {
            return None;
        }
        if commit.set && old.is_some_and(|old| old.class > class) {
            return Some(Refusal::Downgrade);
        }
        if commit.len > BUDGET {
            return Some(Refusal::ValueLargerThanStore);
        }
        let others = || oracle.rows.iter().filter(|(other, _)| *other != name);
        let fresh = || others().map(|(_, row)| row).filter(|row| !oracle.is_expired(row));
        let fixed: u64 = fresh()
            .filter(|row| row.class > class || !oracle.is_evictable(row))
            .map(|row| row.len)
            .sum();
        if fixed + commit.len <= BUDGET {
            return None;
        }
        let old_is_higher = old.is_some_and(|old| old.class > class && oracle.is_evictable(old));
        let higher = fresh().any(|row| row.class > class && oracle.is_evictable(row));
        Some(if higher || old_is_higher { Refusal::HigherPriority } else { Refusal::ArenaFull })
    }

    /// Everything that can be compared without a trace.
    pub(crate) fn compare_all(&mut self) {
        let stats = self.store.stats();
        let oracle = &self.oracle;
        assert_eq!(stats.entries, oracle.rows.len() as u64);
        assert_eq!(stats.host_bytes, oracle.host_bytes());
        let totals = stats.totals;
        let counts = crate::oracle::Counts {
            gets: totals.gets_total,
            hits: totals.hits_total,
            misses: totals.misses_total,
            sets: totals.sets_total,
            evictions: totals.evictions_total,
        };
        assert_eq!(counts, oracle.counts);
        let by_reason = totals.misses_by_reason_total.iter().sum::<u64>();
        assert_eq!(by_reason, oracle.counts.misses);
        assert_eq!(self.listed(), oracle.rows.keys().cloned().collect());
        for namespace in 0..NAMESPACES.len() {
            for index in 0..12 {
                self.compare_one(&(namespace, key(index)));
            }
        }
    }

    fn compare_one(&self, name: &Name) {
        let now = Timestamp(self.oracle.now);
        let why = self.store.why(NAMESPACES[name.0], &name.1, now);
        match (self.oracle.rows.get(name), why) {
            (Some(row), Why::Present(info)) => {
                assert!(!self.oracle.is_expired(row));
                assert_eq!(info.payload_offset, row.range.payload);
                assert_eq!((u64::from(info.len_bytes), info.retention), (row.len, row.class));
                assert_eq!(info.expires_at, row.expires_at.map(Timestamp));
            }
            (Some(row), Why::Missing { reason, .. }) => {
                assert!(self.oracle.is_expired(row));
                assert_eq!(reason, MissReason::Expired);
            }
            (None, Why::Missing { reason, elsewhere }) => {
                assert_eq!(reason, self.oracle.reason(name));
                assert_eq!(elsewhere.is_some(), reason == MissReason::OtherNamespace);
            }
            (None, Why::Present(info)) => panic!("{info:?} is not there"),
        }
    }
}
