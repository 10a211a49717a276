//! Feeds steps to store and oracle and lets the judge compare.

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::{LeaseId, SessionId, TicketId};
use kvd_proto::retention::Retention;
use kvd_store::{
    ClearCursor, ClearScope, CommitRules, Effects, Hold, Ids, Input, Keys, Outcome, Peer,
    ProcessName, SessionLimits, Store, StoreConfig, Timestamp, Writer,
};

use crate::fold::Fold;
use crate::oracle::{
    ARENA, BUDGET, GRACE_MS, IN_FLIGHT_MAX, Kind, LEASES_MAX, Name, Oracle, QUARANTINE_MAX,
    Session, TICKETS_MAX, WINDOW_MS,
};
use crate::step::{Commit, Step};

/// What a broken twin of the oracle gets wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sabotage {
    None,
    ForgottenLease,
    ForeignProcess,
    LostClass,
    WrongReason,
}

pub(crate) struct Run {
    pub(crate) store: Store,
    pub(crate) oracle: Oracle,
    pub(crate) effects: Effects,
    pub(crate) trace: Vec<String>,
    pub(crate) sabotage: Sabotage,
    /// What somebody knows who hears of changes.
    fold: Fold,
    next_session: u64,
}

pub(crate) const NAMESPACES: [Namespace<'static>; 4] = [
    Namespace { model: "m", compat_key: "0" },
    Namespace { model: "m", compat_key: "1" },
    Namespace { model: "m1", compat_key: "" },
    Namespace { model: "", compat_key: "m" },
];

/// Families of three among keys of 8 bytes; short and long keys besides.
pub(crate) fn key(index: usize) -> Vec<u8> {
    match index {
        0..6 => format!("family{}{}", index / 3, index % 3).into_bytes(),
        6..10 => format!("k{index}").into_bytes(),
        _ => index.to_string().repeat(100).into_bytes(),
    }
}

impl Run {
    pub(crate) fn new(sabotage: Sabotage) -> Self {
        let mut config = StoreConfig::new(ARENA, BUDGET);
        config.promise_window_ms = WINDOW_MS;
        config.view_grace_ms = GRACE_MS;
        config.quarantine_bytes_max = QUARANTINE_MAX;
        config.evidence_slots = 1 << 12;
        config.events = true;
        config.session_limits = SessionLimits {
            leases_max: LEASES_MAX,
            tickets_max: TICKETS_MAX,
            in_flight_bytes_max: IN_FLIGHT_MAX,
        };
        let mut run = Self {
            store: Store::new(config),
            oracle: Oracle::default(),
            effects: Effects::default(),
            trace: Vec::new(),
            sabotage,
            fold: Fold::default(),
            next_session: 1,
        };
        run.step(&Step::Ready);
        run.step(&Step::Open { unknowable: false });
        run
    }

    pub(crate) fn apply(&mut self, input: Input<'_>) {
        self.store.apply(input, Timestamp(self.oracle.now), &mut self.effects);
        self.fold.follow(&self.store, &self.effects.tiers);
        self.trace.push(format!("{:?}", self.effects));
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Ready => {
                self.oracle.ready = (self.oracle.ready + ARENA / 2).min(ARENA);
                self.apply(Input::ArenaReady { bytes: self.oracle.ready });
            }
            Step::Open { unknowable } => self.open(*unknowable),
            Step::Close { .. } | Step::Gone { .. } | Step::ReleaseQuarantine { .. } => {
                self.end_session(step);
            }
            Step::TakeUp { session, right } => self.take_up(*session, *right),
            Step::Renounce { session, earlier } => self.renounce(*session, *earlier),
            Step::NextRequest { session } => {
                let session = self.session(*session);
                self.oracle.linger_hand_outs(session);
                self.apply(Input::NextRequest { session: SessionId(session) });
            }
            Step::Fetch { session, namespace, keys, prefix, hold } => {
                let hold = [Hold::Lease, Hold::HandOut, Hold::Inline][*hold];
                self.fetch(*session, *namespace, keys, *prefix, hold);
            }
            Step::Locate { session, namespace, keys, prefix, family } => {
                self.locate(*session, *namespace, keys, *prefix, *family);
            }
            Step::Release { session, right } => self.release(*session, *right),
            Step::Reserve { session, len, class, daemon } => {
                let session = self.session(*session);
                let class = class.map(|class| Retention::ALL[class]);
                self.reserve(session, *len, class, *daemon);
            }
            Step::Commit(commit) => self.commit_some_ticket(commit),
            Step::Set(commit) => self.set(commit),
            Step::Cancel { session, right, linger } => self.cancel(*session, *right, *linger),
            Step::Clear { scope, namespace } => self.clear(*scope, *namespace),
            Step::Wait { milliseconds, tick } => self.wait(*milliseconds, *tick),
        }
        self.store.assert_consistent();
        self.compare_all();
    }

    /// An open session; opens one if there is none.
    pub(crate) fn session(&mut self, pick: usize) -> u64 {
        let open: Vec<u64> = self.sessions_where(|session| !session.closed);
        if open.is_empty() {
            self.open(false);
            return self.next_session - 1;
        }
        open[pick % open.len()]
    }

    fn sessions_where(&self, wanted: impl Fn(&Session) -> bool) -> Vec<u64> {
        let all = self.oracle.sessions.iter();
        all.filter(|(_, session)| wanted(session)).map(|(id, _)| *id).collect()
    }

    fn open(&mut self, unknowable: bool) {
        let id = self.next_session;
        self.next_session += 1;
        let peer = if unknowable { Peer::Unknowable } else { Peer::Watched };
        // Two processes, and some of which nothing is known.
        let process = u32::try_from(id % 3).ok().filter(|process| *process > 0);
        let session = Session { unknowable, closed: false, gone: false, process };
        self.oracle.sessions.insert(id, session);
        let process = process.map(|pid| ProcessName { pid, started: 5 });
        self.apply(Input::Open { session: SessionId(id), peer, process });
    }

    fn end_session(&mut self, step: &Step) {
        let ids: Vec<u64> = self.oracle.sessions.keys().copied().collect();
        let pick = |at: usize| ids[at % ids.len()];
        let is_own = |kind| matches!(kind, Kind::DaemonTicket | Kind::DaemonLease);
        match *step {
            Step::Close { session } => {
                let id = pick(session);
                let was_gone = self.oracle.sessions[&id].gone;
                self.oracle.end_rights(id, |kind| was_gone || is_own(kind));
                self.oracle.linger_hand_outs(id);
                if let Some(session) = self.oracle.sessions.get_mut(&id) {
                    session.closed = true;
                }
                self.apply(Input::Close { session: SessionId(id) });
            }
            Step::Gone { session } => {
                let id = pick(session);
                let was_closed = self.oracle.sessions[&id].closed;
                self.oracle.end_rights(id, |_| was_closed);
                if let Some(session) = self.oracle.sessions.get_mut(&id) {
                    session.gone = true;
                }
                self.apply(Input::PeerGone { session: SessionId(id) });
            }
            Step::ReleaseQuarantine { session } => {
                let one = session.map(pick);
                let closed = self.sessions_where(|session| session.closed);
                for id in closed.into_iter().filter(|id| one.is_none_or(|one| one == *id)) {
                    self.oracle.end_rights(id, |_| true);
                }
                self.apply(Input::ReleaseQuarantine { session: one.map(SessionId) });
            }
            _ => unreachable!("callers pass the three above"),
        }
    }

    fn fetch(&mut self, pick: usize, namespace: usize, keys: &[usize], prefix: bool, hold: Hold) {
        let session = self.session(pick);
        let names: Vec<Name> = keys.iter().map(|&index| (namespace, key(index))).collect();
        let slices: Vec<&[u8]> = names.iter().map(|(_, key)| key.as_slice()).collect();
        self.apply(Input::Fetch {
            session: SessionId(session),
            namespace: NAMESPACES[namespace],
            keys: Keys::slices(&slices),
            prefix,
            hold,
        });
        self.judge_fetch(session, &names, prefix, hold);
    }

    fn locate(
        &mut self,
        pick: usize,
        namespace: usize,
        keys: &[usize],
        prefix: bool,
        family: bool,
    ) {
        let session = self.session(pick);
        let names: Vec<Name> = keys.iter().map(|&index| (namespace, key(index))).collect();
        let slices: Vec<&[u8]> = names.iter().map(|(_, key)| key.as_slice()).collect();
        self.apply(Input::Locate {
            session: SessionId(session),
            namespace: NAMESPACES[namespace],
            keys: Keys::slices(&slices),
            prefix,
            family,
            unloaded_bytes: 0,
        });
        self.judge_locate(&names, prefix, family);
    }

    /// A right of some kind, or a made-up id.
    fn some_right(&self, pick: usize, wanted: impl Fn(Kind) -> bool) -> u64 {
        let ids: Vec<u64> = self
            .oracle
            .rights
            .iter()
            .filter(|right| wanted(right.kind))
            .map(|right| right.id)
            .collect();
        if ids.is_empty() || pick.is_multiple_of(16) {
            return [0, 1 << 32, 7 << 32 | 3, u64::MAX][pick / 16 % 4];
        }
        ids[pick % ids.len()]
    }

    fn release(&mut self, pick: usize, right: usize) {
        let session = self.session(pick);
        let is_lease = |kind| matches!(kind, Kind::Lease | Kind::DaemonLease);
        let id = self.some_right(right, is_lease);
        let owned = self
            .oracle
            .rights
            .iter()
            .any(|right| right.id == id && right.session == session && is_lease(right.kind));
        // Twice the same: the second time it must be stale.
        let leases = [LeaseId(id), LeaseId(id)];
        self.apply(Input::Release { session: SessionId(session), leases: Ids::Slice(&leases) });
        let released = u32::from(owned);
        let expected = Outcome::Released { released, unknown: 2 - released };
        assert_eq!(self.effects.outcome, expected);
        if owned || self.sabotage == Sabotage::ForgottenLease {
            self.oracle.rights.retain(|right| right.id != id || !is_lease(right.kind));
        }
    }

    fn take_up(&mut self, pick: usize, right: usize) {
        let session = self.session(pick);
        let id =
            self.some_right(right, |kind| !matches!(kind, Kind::HandOut | Kind::Lingering { .. }));
        let foreign = self.sabotage == Sabotage::ForeignProcess;
        let found = self.oracle.rights.iter().position(|right| {
            let is_own = right.session == session;
            let is_own = is_own || foreign || self.oracle.is_same_process(right.session, session);
            right.id == id && is_own && matches!(right.kind, Kind::Ticket | Kind::Lease)
        });
        let rights = [LeaseId(id)];
        self.apply(Input::TakeUp { session: SessionId(session), rights: Ids::Slice(&rights) });
        let taken = u32::from(found.is_some());
        assert_eq!(self.effects.outcome, Outcome::TakenUp { taken, unknown: 1 - taken });
        if let Some(found) = found {
            self.oracle.rights[found].session = session;
        }
    }

    fn renounce(&mut self, pick: usize, earlier: usize) {
        let session = self.session(pick);
        let ids: Vec<u64> = self.oracle.sessions.keys().copied().collect();
        let earlier = ids[earlier % ids.len()];
        let heir = SessionId(session);
        self.apply(Input::Renounce { session: heir, earlier: SessionId(earlier) });
        let Outcome::Renounced(known) = self.effects.outcome else { panic!("no answer") };
        let may = earlier != session && self.oracle.is_same_process(earlier, session);
        let is_closed = self.oracle.sessions[&earlier].closed;
        let mut rights = self.oracle.rights.iter().filter(|right| right.session == earlier);
        // One that holds nothing may be forgotten.
        let must = may && (!is_closed || rights.any(|right| self.oracle.is_live(right)));
        assert!(if known { may } else { !must }, "{earlier} for {session}");
        if may {
            self.oracle.end_rights(earlier, |_| is_closed);
            if let Some(session) = self.oracle.sessions.get_mut(&earlier) {
                session.gone = true;
            }
        }
    }

    pub(crate) fn reserve(
        &mut self,
        session: u64,
        len: u64,
        class: Option<Retention>,
        daemon: bool,
    ) -> Option<TicketId> {
        let writer = if daemon { Writer::Daemon } else { Writer::Client };
        let input = Input::Reserve { session: SessionId(session), len_bytes: len, class, writer };
        self.apply(input);
        self.judge_reserve(session, len, class, daemon)
    }

    fn commit_some_ticket(&mut self, commit: &Commit) {
        let session = self.session(commit.session);
        let is_ticket = |kind| matches!(kind, Kind::Ticket | Kind::DaemonTicket);
        let ticket = TicketId(self.some_right(commit.right, is_ticket));
        self.commit(session, ticket, commit);
    }

    /// Reserve and commit in one go, as the daemon does for an inline SET.
    fn set(&mut self, commit: &Commit) {
        let session = self.session(commit.session);
        let class = Retention::ALL[commit.class];
        let ticket = self.reserve(session, commit.len, None, true);
        let ticket = ticket.or_else(|| self.reserve(session, commit.len, Some(class), true));
        if let Some(ticket) = ticket {
            self.commit(session, ticket, commit);
        }
    }

    fn commit(&mut self, session: u64, ticket: TicketId, commit: &Commit) {
        let name = (commit.namespace, key(commit.key));
        let rules = if commit.set { CommitRules::Set } else { CommitRules::Lease };
        self.apply(Input::Commit(kvd_store::Commit {
            session: SessionId(session),
            ticket,
            namespace: NAMESPACES[commit.namespace],
            key: &name.1,
            len_bytes: commit.len,
            retention: Retention::ALL[commit.class],
            ttl_ms: commit.ttl_ms,
            lineage: commit.lineage.then_some(b"lineage"),
            checksum: None,
            rules,
        }));
        self.judge_commit(session, ticket, &name, commit);
    }

    fn cancel(&mut self, pick: usize, right: usize, linger: bool) {
        let session = self.session(pick);
        let is_ticket = |kind| matches!(kind, Kind::Ticket | Kind::DaemonTicket);
        let ticket = TicketId(self.some_right(right, is_ticket));
        self.apply(Input::Cancel { session: SessionId(session), ticket, linger });
        let expected = self.ticket(session, ticket).map(|at| {
            if linger {
                let until = self.oracle.now + GRACE_MS;
                self.oracle.rights[at].kind = Kind::Lingering { until };
            } else {
                self.oracle.rights.remove(at);
            }
        });
        assert_eq!(self.effects.outcome, Outcome::Cancelled(expected));
    }

    fn clear(&mut self, scope: usize, namespace: usize) {
        let wanted = NAMESPACES[namespace];
        let scope = [
            ClearScope::Everything,
            ClearScope::Model(wanted.model),
            ClearScope::Namespace(wanted),
        ][scope];
        let is_in = |other: usize| match scope {
            ClearScope::Everything => true,
            ClearScope::Model(model) => NAMESPACES[other].model == model,
            ClearScope::Namespace(_) => other == namespace,
        };
        let names: Vec<Name> =
            self.oracle.rows.keys().filter(|name| is_in(name.0)).cloned().collect();
        let (mut cursor, mut cleared) = (ClearCursor::START, 0);
        loop {
            self.apply(Input::Clear { scope, cursor });
            let Outcome::Cleared { rows, next } = self.effects.outcome else {
                panic!("{:?}", self.effects.outcome);
            };
            cleared += rows;
            match next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        assert_eq!(cleared, names.len() as u64);
        for name in names {
            self.oracle.rows.remove(&name);
            self.oracle.gone.insert(name, kvd_proto::miss::MissReason::Cleared);
        }
    }

    fn wait(&mut self, milliseconds: u64, tick: bool) {
        self.oracle.now += milliseconds;
        if !tick {
            return;
        }
        loop {
            self.apply(Input::Tick);
            if self.effects.outcome == (Outcome::Ticked { more: false }) {
                break;
            }
        }
        let now = self.oracle.now;
        let is_over = |kind| matches!(kind, Kind::Lingering { until } if until <= now);
        self.oracle.rights.retain(|right| !is_over(right.kind));
        let expired: Vec<Name> = self.names_where(|oracle, row| oracle.is_expired(row));
        for name in expired {
            self.oracle.expire(&name);
        }
        for row in self.oracle.rows.values_mut() {
            row.promised_until = row.promised_until.filter(|&until| until > now);
        }
    }

    pub(crate) fn names_where(
        &self,
        wanted: impl Fn(&Oracle, &crate::oracle::Row) -> bool,
    ) -> Vec<Name> {
        let rows = self.oracle.rows.iter();
        rows.filter(|(_, row)| wanted(&self.oracle, row)).map(|(name, _)| name.clone()).collect()
    }
}
