//! What a worker says of itself in etcd, as JSON.
//!
//! Workers of many releases write it. Fields that are not known are kept and shown, never used; a field that is there
//! and of another kind spoils the record.

use kvd_proto::events::Registration;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Folder of the records.
pub const PREFIX: &str = "/infera/workers/";

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// `host:port`.
    pub worker_id: String,
    /// `http://host:port`.
    pub url: String,
    /// What a request's `model` must be equal to.
    #[serde(default, deserialize_with = "or_default")]
    pub model_name: String,
    /// The engine.
    #[serde(default, deserialize_with = "or_default")]
    pub engine: Engine,
    /// Whether it takes requests.
    #[serde(default, deserialize_with = "or_default")]
    pub status: Status,
    /// Its part of a request.
    #[serde(default, deserialize_with = "or_default")]
    pub disagg_mode: DisaggMode,
    /// How prefill and decode find each other.
    #[serde(default)]
    pub disagg_meta: Option<DisaggMeta>,
    /// Where rank 0 publishes events, `tcp://host:port`; rank r at the port + r.
    #[serde(default)]
    pub kv_events_endpoint: Option<String>,
    /// Tokens in a block; absent until the first event that tells.
    #[serde(default)]
    pub kv_block_size: Option<u32>,
    /// The one rank of this worker.
    #[serde(default)]
    pub dp_rank: Option<u32>,
    /// Number of ranks.
    #[serde(default)]
    pub dp_size: Option<u32>,
    /// How requests reach it.
    #[serde(default, deserialize_with = "or_default")]
    pub request_transport: RequestTransport,
    /// What it says of its cache.
    #[serde(default)]
    pub kv: Option<WorkerCache>,
    /// The daemon of its host.
    #[serde(default)]
    pub kvd: Option<Registration>,
    /// Everything else, to be shown.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// An engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// SGLang, also what no word means.
    #[default]
    #[serde(alias = "")]
    Sglang,
    /// vLLM.
    Vllm,
    /// ATOM.
    Atom,
}

/// Whether a worker takes requests. Only active ones do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It does.
    #[default]
    Active,
    /// It finishes those that it has.
    Draining,
    /// It is gone.
    Dead,
}

/// A worker's part of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DisaggMode {
    /// All of it.
    #[default]
    Mixed,
    /// The prompt.
    Prefill,
    /// The answer.
    Decode,
}

/// How requests reach a worker. Those that are reached by messages serve HTTP too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestTransport {
    /// HTTP.
    #[default]
    Http,
    /// NATS.
    Nats,
}

/// How prefill and decode find each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DisaggMeta {
    /// Name of the protocol.
    pub protocol: String,
    /// What the protocol needs.
    #[serde(default)]
    pub params: Value,
}

/// What a worker says of its cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerCache {
    /// Tokens in a block of the engine.
    pub engine_block_size: Option<u32>,
    /// Tokens in a block of its events.
    pub index_block_size: Option<u32>,
    /// Name or folder of its tokenizer.
    pub tokenizer: Option<String>,
    /// First 16 hex digits of its tokenizer's digest.
    pub tokenizer_digest: Option<String>,
    /// Tokens of [`CANARY`].
    pub tokenizer_canary: Option<Vec<u32>>,
    /// Whether it publishes events.
    pub supports_events: Option<bool>,
    /// Release of the events.
    pub event_version: Option<u32>,
    /// Where they are published.
    pub events_endpoint: Option<String>,
    /// Where a snapshot is to be had.
    pub snapshot_endpoint: Option<String>,
    /// Tiers that the events speak of.
    pub tiers: Vec<String>,
}

/// What every tokenizer has to cut the same way, without special tokens, before a worker gets credit for its cache.
pub const CANARY: &str = "Hello, world!\n你好，世界！<|im_start|>system\n<|endoftext|><|im_end|>🦄";

impl WorkerRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// It is no JSON object, a required field is missing, or a field is of another kind.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// The ranks that are targets of their own; nothing for a worker that is one target.
    #[must_use]
    pub fn ranks(&self) -> Option<core::ops::Range<u32>> {
        match (self.dp_size, self.dp_rank) {
            (Some(size), None) if size > 1 => Some(0..size),
            _ => None,
        }
    }

    /// Where events are published, whichever field says so.
    #[must_use]
    pub fn events_endpoint(&self) -> Option<&str> {
        let of_cache = || self.kv.as_ref()?.events_endpoint.as_deref();
        self.kv_events_endpoint.as_deref().or_else(of_cache)
    }

    /// Tokens in a block of its events, whichever field says so. 0 and less than nothing are not said.
    #[must_use]
    pub fn block_size(&self) -> Option<u32> {
        let of_cache = || self.kv.as_ref()?.index_block_size;
        self.kv_block_size.or_else(of_cache).filter(|size| *size > 0)
    }

    /// Whether `other` is the same life of the same worker: what the index and the account of its load know holds for
    /// both. The status may differ.
    #[must_use]
    pub fn is_same_life(&self, other: &Self) -> bool {
        let Self { worker_id, url, model_name, engine, .. } = self;
        (worker_id, url, model_name, engine)
            == (&other.worker_id, &other.url, &other.model_name, &other.engine)
            && (self.events_endpoint(), self.block_size(), self.dp_rank, self.dp_size)
                == (other.events_endpoint(), other.block_size(), other.dp_rank, other.dp_size)
    }
}

/// Null is as good as absent.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_record_has_defaults() {
        let record = WorkerRecord::parse(br#"{"worker_id": "h:1", "url": "http://h:1"}"#).unwrap();
        assert_eq!(record.engine, Engine::Sglang);
        assert_eq!(record.status, Status::Active);
        assert_eq!(record.disagg_mode, DisaggMode::Mixed);
        assert_eq!(record.request_transport, RequestTransport::Http);
        assert_eq!((record.block_size(), record.ranks()), (None, None));
    }

    #[test]
    fn what_is_not_known_is_kept_and_null_is_absent() {
        let record = WorkerRecord::parse(
            br#"{"worker_id": "h:1", "url": "http://h:1", "engine": "", "status": null, "zone": {"a": 1},
                 "dp_size": 4, "kv": {"index_block_size": 16, "events_endpoint": "tcp://h:2", "x": 1},
                 "kvd": {"host_id": "h"}, "disagg_meta": null, "kv_block_size": null}"#,
        )
        .unwrap();
        assert_eq!(record.unknown.keys().collect::<Vec<_>>(), ["zone"]);
        assert_eq!(record.events_endpoint(), Some("tcp://h:2"));
        assert_eq!((record.block_size(), record.ranks()), (Some(16), Some(0..4)));
        let again = serde_json::to_vec(&record).unwrap();
        assert_eq!(WorkerRecord::parse(&again).unwrap(), record);
    }

    #[test]
    fn a_record_that_cannot_be_used_is_refused() {
        for bad in [
            &br#"{"url": "http://h:1"}"#[..],
            br#"{"worker_id": "h:1"}"#,
            br#"{"worker_id": "h:1", "url": "u", "kv_block_size": "16"}"#,
            br#"{"worker_id": "h:1", "url": "u", "engine": "other"}"#,
            br#"[]"#,
            br#"{"worker_id": "h:1", "#,
        ] {
            assert!(WorkerRecord::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn another_port_or_block_size_is_another_life_and_another_status_is_not() {
        let record = |more: &str| {
            let json = format!(r#"{{"worker_id": "h:1", "url": "http://h:1"{more}}}"#);
            WorkerRecord::parse(json.as_bytes()).unwrap()
        };
        let plain = record("");
        assert!(plain.is_same_life(&record(r#", "status": "draining", "zone": 1"#)));
        assert!(!plain.is_same_life(&record(r#", "kv_events_endpoint": "tcp://h:3""#)));
        assert!(!plain.is_same_life(&record(r#", "kv_block_size": 16"#)));
        assert!(!plain.is_same_life(&record(r#", "dp_size": 2"#)));
    }
}
