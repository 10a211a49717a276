//! Looking in without a trace: what the operator's tools show.

use kvd_proto::ids::SessionId;
use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;

use crate::input::Peer;
use crate::time::Timestamp;

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
}

/// Why a key is found or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is stored.
    Present(RowInfo),
    /// It is not.
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
