//! `GET /v1/top`: every session, what it holds, and which of its caps it has reached.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use kvd_store::{Peer, SessionInfo};
use serde::Serialize;

use super::answer::{Refused, Shared, with};
use crate::config::Limits;
use crate::daemon::Daemon;
use crate::registry::Facts;

/// The answer: the caps of every session, and the sessions in the order of their ids.
#[derive(Debug, Serialize)]
pub(super) struct Top {
    caps: Caps,
    sessions: Vec<Session>,
}

/// What one session may hold.
#[derive(Debug, Serialize)]
struct Caps {
    leases_max: u32,
    tickets_max: u32,
    in_flight_bytes_max: u64,
}

/// One session. What only a connected one has is null for one that has closed.
#[derive(Debug, Default, Serialize)]
struct Session {
    id: u64,
    client_id: Option<String>,
    /// Null also when the process is in a foreign PID namespace.
    pid: Option<i32>,
    uid: Option<u32>,
    protocol: Option<u8>,
    /// It was given the arena.
    arena: Option<bool>,
    age_seconds: Option<u64>,
    requests: Option<u64>,
    leases: u32,
    hand_outs: u32,
    tickets: u32,
    in_flight_bytes: u64,
    refused_total: u64,
    /// The end of its process is observed; otherwise its bytes wait for an operator.
    process_watched: bool,
    /// The socket is closed; what it holds is quarantined until its process is gone.
    closed: bool,
    /// Names of the caps that it has reached.
    at_cap: Vec<&'static str>,
}

/// Answers with all sessions.
pub(super) async fn answer(State(daemon): State<Shared>) -> Result<Json<Top>, Refused> {
    with(daemon, top).await.map(Json)
}

fn top(daemon: &Daemon) -> Top {
    let limits = &daemon.settings.limits;
    let mut sessions: BTreeMap<u64, Session> = BTreeMap::new();
    for info in daemon.brain.inspect(|store, _now| store.sessions()) {
        let session = sessions.entry(info.session.0).or_default();
        session.holds(info, limits);
    }
    for facts in daemon.registry.facts() {
        sessions.entry(facts.id.0).or_default().is_connected(&facts);
    }
    let sessions = sessions.into_iter().map(|(id, session)| Session { id, ..session }).collect();
    let caps = Caps {
        leases_max: limits.leases_max,
        tickets_max: limits.tickets_max,
        in_flight_bytes_max: limits.in_flight_bytes_max,
    };
    Top { caps, sessions }
}

impl Session {
    fn holds(&mut self, info: SessionInfo, limits: &Limits) {
        self.leases = info.leases;
        self.hand_outs = info.hand_outs;
        self.tickets = info.tickets;
        self.in_flight_bytes = info.in_flight_bytes;
        self.refused_total = info.refused_total;
        self.process_watched = info.peer == Peer::Watched;
        self.closed = info.closed;
        let reached = [
            ("leases", info.leases.saturating_add(info.hand_outs) >= limits.leases_max),
            ("tickets", info.tickets >= limits.tickets_max),
            ("in_flight_bytes", info.in_flight_bytes >= limits.in_flight_bytes_max),
        ];
        self.at_cap = reached.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect();
    }

    fn is_connected(&mut self, facts: &Arc<Facts>) {
        self.client_id = facts.client_id.get().cloned();
        self.pid = facts.credentials.pid;
        self.uid = Some(facts.credentials.uid);
        self.protocol = Some(facts.protocol.load(Ordering::Relaxed));
        self.arena = Some(facts.has_arena.load(Ordering::Relaxed));
        self.age_seconds = Some(facts.since.elapsed().as_secs());
        self.requests = Some(facts.requests.load(Ordering::Relaxed));
    }
}
