//! What must be true, kept in lists and maps without any cleverness.

use std::collections::{BTreeMap, BTreeSet};

use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;

pub(crate) const ARENA: u64 = 1 << 20;
pub(crate) const BUDGET: u64 = 700_000;
pub(crate) const WINDOW_MS: u64 = 1_000;
pub(crate) const GRACE_MS: u64 = 100;
pub(crate) const LEASES_MAX: u32 = 6;
pub(crate) const TICKETS_MAX: u32 = 4;
pub(crate) const IN_FLIGHT_MAX: u64 = 600_000;
pub(crate) const QUARANTINE_MAX: u64 = 300_000;

pub(crate) type Name = (usize, Vec<u8>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) len: u64,
    pub(crate) class: Retention,
    pub(crate) expires_at: Option<u64>,
    pub(crate) promised_until: Option<u64>,
    pub(crate) range: Range,
    pub(crate) version: u32,
}

/// Bytes of the arena: where the payload begins, and the extent around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) payload: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Range {
    pub(crate) fn new(payload: u64, asked: u64, kept: u64) -> Self {
        let (header, unit) = geometry(asked);
        Self { payload, start: payload - header, end: payload + kept.next_multiple_of(unit) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.end - self.start
    }

    fn meets(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Header and unit of a payload, as the layout promises.
pub(crate) fn geometry(len: u64) -> (u64, u64) {
    if len >= 65_536 { (4_096, 4_096) } else { (64, 64) }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Ticket,
    DaemonTicket,
    Lease,
    DaemonLease,
    HandOut,
    Lingering { until: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Right {
    pub(crate) kind: Kind,
    pub(crate) session: u64,
    pub(crate) id: u64,
    pub(crate) range: Range,
    pub(crate) asked: u64,
    pub(crate) version: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) unknowable: bool,
    pub(crate) closed: bool,
    pub(crate) gone: bool,
    /// Whose it is, if that is known.
    pub(crate) process: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) sets: u64,
    pub(crate) evictions: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) now: u64,
    pub(crate) ready: u64,
    pub(crate) rows: BTreeMap<Name, Row>,
    pub(crate) gone: BTreeMap<Name, MissReason>,
    pub(crate) rights: Vec<Right>,
    pub(crate) sessions: BTreeMap<u64, Session>,
    pub(crate) versions: BTreeSet<u32>,
    pub(crate) counts: Counts,
}

impl Oracle {
    /// Whether somebody may touch the bytes of this right now.
    pub(crate) fn is_live(&self, right: &Right) -> bool {
        !matches!(right.kind, Kind::Lingering { until } if until <= self.now)
    }

    pub(crate) fn is_expired(&self, row: &Row) -> bool {
        row.expires_at.is_some_and(|at| at <= self.now)
    }

    pub(crate) fn is_promised(&self, row: &Row) -> bool {
        row.promised_until.is_some_and(|until| until > self.now)
    }

    pub(crate) fn is_pinned(&self, row: &Row) -> bool {
        self.rights.iter().any(|right| right.range == row.range && self.is_live(right))
    }

    pub(crate) fn is_evictable(&self, row: &Row) -> bool {
        !self.is_pinned(row) && !self.is_promised(row)
    }

    /// Nobody else may own a byte of `range`.
    pub(crate) fn assert_unused(&self, range: &Range) {
        assert!(range.end <= self.ready, "{range:?} is not touched yet");
        for (name, row) in &self.rows {
            assert!(!row.range.meets(range), "{range:?} belongs to {name:?}");
        }
        for right in self.rights.iter().filter(|right| self.is_live(right)) {
            assert!(!right.range.meets(range), "{range:?} is held: {right:?}");
        }
    }

    /// Whether `len` bytes fit into a run without obstacles; `is_obstacle` says which rows are.
    pub(crate) fn fits(&self, len: u64, is_obstacle: impl Fn(&Row) -> bool) -> bool {
        let mut blocked: Vec<(u64, u64)> =
            self.rows.values().filter(|row| is_obstacle(row)).map(of_row).collect();
        let rights = self.rights.iter().filter(|right| {
            let is_row = self.rows.values().any(|row| row.range == right.range);
            !is_row && self.is_live(right)
        });
        blocked.extend(rights.map(|right| (right.range.start, right.range.end)));
        blocked.sort_unstable();
        blocked.push((self.ready, self.ready));
        let (header, unit) = geometry(len);
        let need = header + len.next_multiple_of(unit);
        let mut at = 0_u64;
        for (start, end) in blocked {
            if at.next_multiple_of(unit) + need <= start {
                return true;
            }
            at = at.max(end);
        }
        false
    }

    pub(crate) fn host_bytes(&self) -> u64 {
        self.rows.values().map(|row| row.len).sum()
    }

    /// Why a key is missed now.
    pub(crate) fn reason(&self, name: &Name) -> MissReason {
        let elsewhere = || self.rows.keys().any(|(other, key)| *other != name.0 && *key == name.1);
        match self.gone.get(name) {
            Some(reason) => *reason,
            None if elsewhere() => MissReason::OtherNamespace,
            None => MissReason::NeverStored,
        }
    }

    pub(crate) fn expire(&mut self, name: &Name) {
        self.rows.remove(name);
        self.gone.insert(name.clone(), MissReason::Expired);
    }

    pub(crate) fn end_rights(&mut self, session: u64, ends: impl Fn(Kind) -> bool) {
        self.rights.retain(|right| right.session != session || !ends(right.kind));
    }

    /// Whether one process has both.
    pub(crate) fn is_same_process(&self, one: u64, other: u64) -> bool {
        let process = |id| self.sessions.get(&id).and_then(|session| session.process);
        process(one).is_some() && process(one) == process(other)
    }

    pub(crate) fn linger_hand_outs(&mut self, session: u64) {
        let until = self.now + GRACE_MS;
        for right in &mut self.rights {
            if right.session == session && right.kind == Kind::HandOut {
                right.kind = Kind::Lingering { until };
            }
        }
    }
}

fn of_row(row: &Row) -> (u64, u64) {
    (row.range.start, row.range.end)
}
