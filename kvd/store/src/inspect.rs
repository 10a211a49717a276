//! Looking in without a trace: what the operator's tools show.

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::SessionId;
use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;

use crate::disk::DeviceId;
use crate::input::Peer;
use crate::rows::RowId;
use crate::sessions::Session;
use crate::space::State;
use crate::stats::{SpaceStats, Stats};
use crate::store::Store;
use crate::time::Timestamp;

/// Places in the table of rows that one page of a listing looks at.
const ROW_VISITS: u32 = 4096;

/// Where a listing of rows goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCursor(pub u32);

/// Everything worth knowing about one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowInfo {
    /// Model part of its namespace.
    pub model: String,
    /// Compatibility key of its namespace.
    pub compat_key: String,
    /// Its key.
    pub key: Vec<u8>,
    /// Payload length.
    pub len_bytes: u32,
    /// Its class.
    pub retention: Retention,
    /// When its time to live ends.
    pub expires_at: Option<Timestamp>,
    /// When the latest promise for it ends.
    pub promised_until: Option<Timestamp>,
    /// Leases and hand-outs on its extent.
    pub pins: u32,
    /// Arena offset of its payload.
    pub payload_offset: u64,
    /// Bytes of its encoded lineage.
    pub lineage_bytes: u64,
    /// The device that holds a copy.
    pub device: Option<DeviceId>,
}

/// Why a key is found or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is in the arena.
    Present(RowInfo),
    /// It is not; what a device holds is asked by [`Store::entry`].
    Missing {
        /// The best explanation that the bounded evidence gives.
        reason: MissReason,
        /// For [`MissReason::OtherNamespace`]: model and compatibility key of a namespace that
        /// does hold the key.
        elsewhere: Option<(String, String)>,
    },
}

/// What one session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The session.
    pub session: SessionId,
    /// Whether the end of its process can be observed.
    pub peer: Peer,
    /// Its socket is closed; what it holds is quarantined.
    pub closed: bool,
    /// Leases, those of the daemon's own transfers included.
    pub leases: u32,
    /// Hand-outs, those in their grace time included.
    pub hand_outs: u32,
    /// Tickets.
    pub tickets: u32,
    /// Bytes of extents pinned by all of these.
    pub in_flight_bytes: u64,
    /// Fetches and reserves that its caps refused.
    pub refused_total: u64,
}

impl Store {
    /// All counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            totals: self.totals,
            entries: self.rows.len().into(),
            host_bytes: self.host_bytes,
            lineage_bytes: self.lineage_bytes,
            namespaces: self.namespaces.len().into(),
            sessions: self.sessions.len().into(),
            leases: self.holdings.leases,
            tickets: self.holdings.tickets,
            hand_outs: self.holdings.hand_outs,
            leased_bytes: self.holdings.leased_bytes,
            quarantined_bytes: self.holdings.quarantined_bytes,
            quarantined_rights: self.holdings.quarantined_rights,
            promised_bytes: self.promises.bytes,
            promised_rows: self.promises.rows,
            space: SpaceStats {
                arena_bytes: self.config.arena_bytes,
                ready_bytes: self.space.end(),
                free_bytes: self.space.bytes_in(State::Free),
                ticketed_bytes: self.space.bytes_in(State::Ticketed),
                stored_bytes: self.space.bytes_in(State::Stored),
                orphaned_bytes: self.space.bytes_in(State::Orphaned),
                payload_bytes: self.host_bytes,
                reserve_bytes: self.reserve_bytes(),
                holes: self.space.holes(),
                largest_hole_bytes: self.space.largest_hole_bytes(),
            },
            disk: self.disk_stats(),
        }
    }

    /// Why `key` would be found or missed now.
    #[must_use]
    pub fn why(&self, namespace: Namespace<'_>, key: &[u8], now: Timestamp) -> Why {
        let named = self.named(namespace);
        let hash = self.hash(named.hash, key);
        match named.id.and_then(|id| self.find(id, hash, key)) {
            Some(id) if self.rows[id].is_expired(now) => {
                Why::Missing { reason: MissReason::Expired, elsewhere: None }
            }
            Some(id) => Why::Present(self.row_info(id)),
            None => {
                let reason = self.explain(named, hash, key);
                let other = match reason {
                    MissReason::OtherNamespace => self.elsewhere(named, key),
                    MissReason::NeverStored
                    | MissReason::Evicted(_)
                    | MissReason::Expired
                    | MissReason::Cleared
                    | MissReason::Corrupt
                    | MissReason::Deadline
                    | MissReason::Shed => None,
                };
                let elsewhere = other.map(|id| {
                    let entry = self.namespaces.at(id);
                    (entry.model.to_string(), entry.compat_key.to_string())
                });
                Why::Missing { reason, elsewhere }
            }
        }
    }

    /// At most `limit` rows in storage order from `cursor` on, and where to go on. Rows that come
    /// and go between two calls may or may not be seen. Looks at some thousand places at most, so
    /// that a call stays short: fewer rows than `limit` do not mean the end.
    #[must_use]
    pub fn rows(&self, cursor: RowCursor, limit: usize) -> (Vec<RowInfo>, Option<RowCursor>) {
        let end = cursor.0.saturating_add(ROW_VISITS).min(self.rows.end());
        let mut found = Vec::new();
        let mut at = cursor.0;
        while at < end && found.len() < limit {
            found.extend(self.rows.get(RowId(at)).map(|_| self.row_info(RowId(at))));
            at += 1;
        }
        (found, (at < self.rows.end()).then_some(RowCursor(at)))
    }

    /// All sessions, in the order of their ids.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let info = |(_, session): (u32, &Session)| SessionInfo {
            session: session.id,
            peer: session.peer,
            closed: session.closed,
            leases: session.leases,
            hand_outs: session.hand_outs,
            tickets: session.tickets,
            in_flight_bytes: session.in_flight_bytes,
            refused_total: session.refused_total,
        };
        self.sessions.iter().map(info).collect()
    }

    fn row_info(&self, id: RowId) -> RowInfo {
        let row = &self.rows[id];
        let entry = self.namespaces.at(row.namespace);
        let extent = &self.space[row.host_extent()];
        RowInfo {
            model: entry.model.to_string(),
            compat_key: entry.compat_key.to_string(),
            key: row.key.as_bytes().to_vec(),
            len_bytes: row.len_bytes,
            retention: row.class,
            expires_at: (row.expires_at != Timestamp::NEVER).then_some(row.expires_at),
            promised_until: extent.promised().then_some(row.promised_until),
            pins: extent.pins(),
            payload_offset: self.space.payload_offset(row.host_extent()),
            lineage_bytes: row.lineage_bytes(),
            device: self.device_of(id),
        }
    }
}
