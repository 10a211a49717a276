//! `GET /v1/why?key=HEX&model=&compat_key=`: whether a key would be found, and if not, why.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use kvd_proto::block_key::{KEY_BYTES_MAX, Namespace};
use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_store::Why;
use serde::{Deserialize, Serialize};

use super::answer::{Refused, Shared, from_hex, with};
use super::entries::Entry;
use super::ls::Row;

/// The query string.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    key: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    compat_key: String,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Answer {
    Present {
        present: bool,
        /// Its copy in memory.
        row: Option<Box<Row>>,
        /// Its copy on disk.
        entry: Option<Box<Entry>>,
    },
    Missing {
        present: bool,
        /// The stable token of the reason.
        reason: &'static str,
        /// The same for people.
        explanation: &'static str,
        /// A namespace that does hold the key.
        elsewhere: Option<Elsewhere>,
    },
}

/// Where a key is stored instead.
#[derive(Debug, Serialize)]
pub(super) struct Elsewhere {
    model: String,
    compat_key: String,
}

/// Looks the key up without a trace in recency, counters or promises.
pub(super) async fn answer(
    State(daemon): State<Shared>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Answer>, Refused> {
    let Query(asked) = asked?;
    let key = from_hex(&asked.key).filter(|key| key.len() <= KEY_BYTES_MAX).ok_or_else(|| {
        let allowed = format!("pairs of hexadecimal digits, at most {KEY_BYTES_MAX} bytes");
        Refused::bad_request(format!("key: expected {allowed}"))
    })?;
    let found = with(daemon, move |daemon| {
        let namespace = Namespace { model: &asked.model, compat_key: &asked.compat_key };
        let read = daemon.brain.inspect(|store, now| {
            (store.why(namespace, &key, now), store.entry(namespace, &key, now), now)
        });
        (read.0, read.1.map(|entry| Box::new(Entry::new(entry, daemon.brain.wall_ms()))), read.2)
    });
    let answer = match found.await? {
        (Why::Present(row), entry, now) => {
            Answer::Present { present: true, row: Some(Box::new(Row::new(row, now))), entry }
        }
        (_, entry @ Some(_), _) => Answer::Present { present: true, row: None, entry },
        (Why::Missing { reason, elsewhere }, None, _) => Answer::Missing {
            present: false,
            reason: reason.as_str(),
            explanation: explanation(reason),
            elsewhere: elsewhere.map(|(model, compat_key)| Elsewhere { model, compat_key }),
        },
    };
    Ok(Json(answer))
}

const fn explanation(reason: MissReason) -> &'static str {
    match reason {
        MissReason::NeverStored => {
            "not stored, as far as the daemon's bounded memory of the past reaches"
        }
        MissReason::Evicted(Retention::None) => "evicted to make room; it was of class none",
        MissReason::Evicted(Retention::Ephemeral) => {
            "evicted to make room; it was of class ephemeral"
        }
        MissReason::Evicted(Retention::Short) => "evicted to make room; it was of class short",
        MissReason::Evicted(Retention::Long) => "evicted to make room; it was of class long",
        MissReason::Expired => "its time to live ended",
        MissReason::Cleared => "removed by a clear",
        MissReason::OtherNamespace => {
            "stored under another model or compatibility key: compare model name, parallelism and \
             hash seed of the processes that store and fetch"
        }
        MissReason::Corrupt => "its checksum did not match and it was dropped",
        MissReason::Deadline => "the tier that holds it would answer too late",
        MissReason::Shed => "a limit of the session or the daemon was reached",
    }
}
