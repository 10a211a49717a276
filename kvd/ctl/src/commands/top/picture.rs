//! What there is to show: the daemon's state in a few lines, and a row per session.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use serde::Deserialize;

use super::columns;
use crate::admin::Admin;
use crate::devices::Device;
use crate::text;

/// Asks the daemon again and again, and remembers what rates are made of.
#[derive(Debug)]
pub(crate) struct Observer {
    admin: Admin,
    earlier: Option<Earlier>,
}

#[derive(Debug)]
struct Earlier {
    at: Instant,
    gets: u64,
    hits: u64,
    requests: BTreeMap<u64, u64>,
    devices: Vec<Device>,
}

#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) summary: Vec<String>,
    /// Those at a cap first, then by bytes held.
    pub(crate) sessions: Vec<Shown>,
}

#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) cells: [String; 11],
    pub(crate) is_at_cap: bool,
}

pub(crate) const HEAD: [&str; 11] = [
    "CLIENT", "AT CAP", "SESSION", "PID", "UID", "REQ/S", "LEASES", "TICKETS", "HELD", "REFUSED",
    "AGE",
];
/// The first column of numbers.
pub(crate) const NUMBERS_FROM: usize = 2;

#[derive(Debug, Deserialize)]
struct Top {
    sessions: Vec<Session>,
}

#[derive(Debug, Deserialize)]
struct Session {
    id: u64,
    client_id: Option<String>,
    pid: Option<i32>,
    uid: Option<u32>,
    age_seconds: Option<u64>,
    requests: Option<u64>,
    leases: u64,
    hand_outs: u64,
    tickets: u64,
    in_flight_bytes: u64,
    refused_total: u64,
    closed: bool,
    at_cap: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Stats {
    server_id: String,
    uptime_seconds: u64,
    degraded: Vec<String>,
    totals: Totals,
    tiers: BTreeMap<String, TierFigures>,
    memory: Memory,
    held: Held,
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Debug, Deserialize)]
struct Totals {
    gets: u64,
    hits: u64,
    evictions: u64,
}

#[derive(Debug, Deserialize)]
struct TierFigures {
    entries: u64,
    payload_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Memory {
    arena_bytes: u64,
    free_bytes: u64,
    page_kind: String,
}

#[derive(Debug, Deserialize)]
struct Held {
    promised_bytes: u64,
    quarantined_bytes: u64,
}

impl Picture {
    /// The columns that fit on `width` characters, and how wide each wants to be.
    pub(crate) fn columns(&self, width: usize) -> Vec<(usize, usize)> {
        let widths: [usize; HEAD.len()] = std::array::from_fn(|column| {
            let cells = self.sessions.iter().map(|row| row.cells[column].chars().count());
            cells.chain([HEAD[column].len()]).max().unwrap_or(0)
        });
        columns::fitting(widths, width).into_iter().map(|column| (column, widths[column])).collect()
    }
}

impl Observer {
    pub(crate) fn new(admin: Admin) -> Self {
        Self { admin, earlier: None }
    }

    /// Asks, and compares with the last time.
    pub(crate) fn look(&mut self) -> Result<Picture> {
        let stats: Stats = self.admin.get("/v1/stats", &[])?;
        let top: Top = self.admin.get("/v1/top", &[])?;
        let now = Instant::now();
        let picture = Picture {
            summary: summary(&stats, self.earlier.as_ref(), now),
            sessions: sessions(&top.sessions, self.earlier.as_ref(), now),
        };
        let requests = top.sessions.iter();
        self.earlier = Some(Earlier {
            at: now,
            gets: stats.totals.gets,
            hits: stats.totals.hits,
            requests: requests
                .filter_map(|session| Some((session.id, session.requests?)))
                .collect(),
            devices: stats.devices,
        });
        Ok(picture)
    }
}

fn summary(stats: &Stats, earlier: Option<&Earlier>, now: Instant) -> Vec<String> {
    let Stats { totals, memory, held, .. } = stats;
    let mut lines = vec![format!(
        "{}, up {}, arena {} of {} pages, {} free",
        stats.server_id,
        text::seconds(stats.uptime_seconds),
        text::bytes(memory.arena_bytes),
        memory.page_kind,
        text::bytes(memory.free_bytes),
    )];
    for (tier, figures) in &stats.tiers {
        let (entries, payload) = (text::count(figures.entries), text::bytes(figures.payload_bytes));
        lines.push(format!("{tier}: {entries} blocks, {payload}"));
    }
    lines.extend(stats.devices.iter().map(|device| {
        let before = earlier.and_then(|earlier| {
            let passed = now.saturating_duration_since(earlier.at);
            Some((device.among(&earlier.devices)?, passed))
        });
        device.line(before)
    }));
    let (gets, hits) = match earlier {
        None => (totals.gets, totals.hits),
        Some(earlier) => (
            totals.gets - earlier.gets.min(totals.gets),
            totals.hits - earlier.hits.min(totals.hits),
        ),
    };
    let since = if earlier.is_some() { "now" } else { "since start" };
    let rate =
        (100 * hits).checked_div(gets).map_or_else(|| "no gets".into(), |rate| format!("{rate} %"));
    let per_second = earlier.map_or_else(String::new, |earlier| {
        format!(", {} keys/s", text::count(per_second(gets, earlier.at, now)))
    });
    lines.push(format!(
        "hits {since}: {rate}{per_second}; evictions {}; promised {}; quarantined {}",
        text::count(totals.evictions),
        text::bytes(held.promised_bytes),
        text::bytes(held.quarantined_bytes),
    ));
    lines.extend(stats.degraded.iter().map(|note| format!("degraded: {note}")));
    lines
}

fn sessions(found: &[Session], earlier: Option<&Earlier>, now: Instant) -> Vec<Shown> {
    let mut found: Vec<&Session> = found.iter().collect();
    found.sort_by_key(|session| (session.at_cap.is_empty(), Reverse(session.in_flight_bytes)));
    found.into_iter().map(|session| session.shown(earlier, now)).collect()
}

impl Session {
    fn shown(&self, earlier: Option<&Earlier>, now: Instant) -> Shown {
        let rate = earlier.and_then(|earlier| {
            let new = self.requests?.checked_sub(*earlier.requests.get(&self.id)?)?;
            Some(text::count(per_second(new, earlier.at, now)))
        });
        let mut client = self.client_id.clone().unwrap_or_default();
        if self.closed {
            client += " (quarantined)";
        }
        let cells = [
            client,
            self.at_cap.join(", "),
            self.id.to_string(),
            self.pid.map_or_else(String::new, |pid| pid.to_string()),
            self.uid.map_or_else(String::new, |uid| uid.to_string()),
            rate.unwrap_or_default(),
            text::count(self.leases + self.hand_outs),
            text::count(self.tickets),
            text::bytes(self.in_flight_bytes),
            text::count(self.refused_total),
            self.age_seconds.map_or_else(String::new, text::seconds),
        ];
        Shown { cells, is_at_cap: !self.at_cap.is_empty() }
    }
}

fn per_second(count: u64, from: Instant, to: Instant) -> u64 {
    let elapsed_ms = to.saturating_duration_since(from).as_millis().max(1);
    u64::try_from(u128::from(count) * 1_000 / elapsed_ms).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn session(id: u64, in_flight_bytes: u64, at_cap: &[&str]) -> Session {
        Session {
            id,
            client_id: Some(format!("engine-{id}")),
            pid: Some(7),
            uid: None,
            age_seconds: Some(61),
            requests: Some(300),
            leases: 2,
            hand_outs: 1,
            tickets: 0,
            in_flight_bytes,
            refused_total: 4,
            closed: id == 3,
            at_cap: at_cap.iter().map(|&cap| cap.to_owned()).collect(),
        }
    }

    #[test]
    fn hogs_come_first_and_rates_are_differences() {
        let found = [session(1, 10, &[]), session(2, 5, &["leases"]), session(3, 20, &[])];
        let at = Instant::now();
        let requests = BTreeMap::from([(2, 100)]);
        let earlier = Earlier { at, gets: 0, hits: 0, requests, devices: Vec::new() };
        let shown = sessions(&found, Some(&earlier), at + Duration::from_secs(2));
        let order: Vec<&str> = shown.iter().map(|row| row.cells[2].as_str()).collect();
        assert_eq!(order, ["2", "3", "1"]);
        assert!(shown[0].is_at_cap && !shown[1].is_at_cap);
        assert_eq!(
            shown[0].cells.each_ref().map(String::as_str),
            ["engine-2", "leases", "2", "7", "", "100", "3", "0", "5 B", "4", "1m01s"]
        );
        assert_eq!(shown[1].cells[0], "engine-3 (quarantined)");
        assert_eq!(shown[1].cells[5], "", "no rate without an earlier figure");
    }
}
