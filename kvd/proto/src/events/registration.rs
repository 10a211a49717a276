//! The daemon's record in etcd, as JSON: where its events are, and what a router must know to count with its tiers.

use serde::{Deserialize, Serialize};

/// Folder of the records.
pub const PREFIX: &str = "/infera/kvd/";

/// The release of the events that is spoken here.
pub const EVENT_VERSION: u32 = 1;

/// What a daemon registers under [`PREFIX`] and its host's id.
///
/// Fields that are not known are ignored, fields that are missing are empty: a daemon of another release is of use
/// for what can be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Registration {
    /// Id of the host.
    pub host_id: String,
    /// Life of the daemon.
    pub epoch: u64,
    /// Addresses and names of the host, to find the workers on it.
    pub addrs: Vec<String>,
    /// Name of the node, where there is one.
    pub node_name: Option<String>,
    /// Where events are published, `tcp://host:port`.
    pub events_endpoint: Option<String>,
    /// Where events are replayed.
    pub replay_endpoint: Option<String>,
    /// Where a snapshot is to be had.
    pub snapshot_url: Option<String>,
    /// Public key of the sockets, Z85, if they are protected by CURVE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve_server_key: Option<String>,
    /// Where hints to prefetch go.
    pub prefetch_url: Option<String>,
    /// Release of the events.
    pub event_version: u32,
    /// Namespaces that the daemon serves.
    pub compat_keys: Vec<String>,
    /// Pools that it can read.
    pub pools: Vec<String>,
    /// When engines load from it.
    pub load_policy: LoadPolicy,
    /// Whether a load moves through its tiers at once rather than one after the other.
    pub pipelined: bool,
    /// Whether engines compute while they load.
    pub load_overlap: bool,
    /// Tokens in one chunk, if it is always the same.
    pub chunk_tokens: Option<u32>,
    /// Bytes of one token, over all ranks.
    pub bytes_per_token: Option<u64>,
    /// The tiers.
    pub tiers: Vec<TierRecord>,
}

/// When engines load what the daemon holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadPolicy {
    /// As much as is cheaper to load than to compute.
    CostGated,
    /// Always, all of it. Also what an unknown word means.
    #[default]
    #[serde(other)]
    Always,
}

/// One tier of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierRecord {
    /// `l2`, `l3`, `l4`.
    pub tier: String,
    /// Its medium in events.
    pub medium: String,
    /// Its locality in events.
    pub locality: String,
    /// Capacity.
    pub bytes: u64,
    /// Bytes in use.
    pub used: u64,
    /// Measured reading, in bytes per second.
    pub read_bw: Option<f64>,
    /// Measured latency of a read, in microseconds.
    pub read_lat_us: Option<f64>,
    /// Bytes of reads that wait.
    pub queue_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_another_release_is_read_as_far_as_it_goes() {
        let record: Registration = serde_json::from_str(
            r#"{"host_id": "h1", "epoch": 18446744073709551615, "load_policy": "whenever", "more": [1],
                "tiers": [{"tier": "l2", "read_bw": null, "colour": "red"}]}"#,
        )
        .unwrap();
        assert_eq!((record.host_id.as_str(), record.epoch), ("h1", u64::MAX));
        assert_eq!(record.load_policy, LoadPolicy::Always);
        assert_eq!(record.tiers[0].tier, "l2");
        let again = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Registration>(&again).unwrap(), record);
        let gated: LoadPolicy = serde_json::from_str(r#""cost_gated""#).unwrap();
        assert_eq!(gated, LoadPolicy::CostGated);
    }
}
