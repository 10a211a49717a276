//! Talking to etcd: each question has a deadline, and what goes wrong says whether one can go on later.

use std::fmt;

use etcd_client::{
    Error, EventType, GetOptions, GetResponse, WatchOptions, WatchResponse, WatchStream,
};
use kvd_etcd::{Connection, Etcd, MESSAGE_BYTES_MAX, in_time};

use super::mirror::{Change, Event, Listing, Row};

/// Why a connection is given up.
#[derive(Debug)]
pub(super) enum Lost {
    /// The next one goes on.
    Later(kvd_etcd::Lost),
    /// The next one begins anew.
    Anew(&'static str),
}

impl fmt::Display for Lost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later(reason) => reason.fmt(out),
            Self::Anew(reason) => out.write_str(reason),
        }
    }
}

impl From<kvd_etcd::Lost> for Lost {
    fn from(reason: kvd_etcd::Lost) -> Self {
        Self::Later(reason)
    }
}

fn later(reason: impl Into<String>) -> Lost {
    Lost::Later(kvd_etcd::Lost::because(reason))
}

/// Where etcd is, and the keys in it.
#[derive(Debug)]
pub(super) struct Source {
    etcd: Etcd,
    prefix: String,
}

impl Source {
    pub(super) fn new(etcd: Etcd, prefix: String) -> Self {
        Self { etcd, prefix }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) async fn connect(&self) -> Result<Connected, Lost> {
        let connection = self.etcd.connect().await?;
        Ok(Connected { connection, prefix: self.prefix.clone() })
    }
}

/// A connection.
pub(super) struct Connected {
    connection: Connection,
    prefix: String,
}

impl Connected {
    async fn get(&self, options: GetOptions) -> Result<(GetResponse, u64, i64), Lost> {
        let answer = self.get_unless_compacted(options).await?;
        let answer = answer.ok_or_else(|| later("the present is compacted"))?;
        let Some(header) = answer.header() else {
            return Err(later("an answer without a header"));
        };
        let (cluster, revision) = (header.cluster_id(), header.revision());
        Ok((answer, cluster, revision))
    }

    /// Nothing if it is about a revision that is compacted.
    async fn get_unless_compacted(&self, options: GetOptions) -> Result<Option<GetResponse>, Lost> {
        let mut keys =
            self.connection.client().kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
        let asking = async {
            match keys.get(self.prefix.as_bytes(), Some(options.with_prefix())).await {
                Err(Error::GRpcStatus(status)) if status.message().contains("compacted") => {
                    Ok(None)
                }
                answer => answer.map(Some),
            }
        };
        Ok(in_time(asking).await?)
    }

    /// Which etcd this is, and its revision.
    pub(super) async fn place(&self) -> Result<(u64, i64), Lost> {
        let (_, cluster, revision) = self.get(GetOptions::new().with_count_only()).await?;
        Ok((cluster, revision))
    }

    /// All keys and values.
    pub(super) async fn list(&self) -> Result<Listing, Lost> {
        let (answer, cluster, revision) = self.get(GetOptions::new()).await?;
        Ok(Listing { cluster, revision, rows: rows(answer) })
    }

    /// All keys and values as they were at `revision`; nothing if that is compacted.
    pub(super) async fn list_then(&self, revision: i64) -> Result<Option<Vec<Row>>, Lost> {
        let answer = self.get_unless_compacted(GetOptions::new().with_revision(revision)).await?;
        Ok(answer.map(rows))
    }

    /// All keys, with the revisions of their last changes.
    pub(super) async fn keys(&self) -> Result<Vec<(Vec<u8>, i64)>, Lost> {
        let (answer, _, _) = self.get(GetOptions::new().with_keys_only()).await?;
        Ok(answer.kvs().iter().map(|pair| (pair.key().to_vec(), pair.mod_revision())).collect())
    }

    /// Follows changes from `revision` on.
    pub(super) async fn watch(&self, revision: i64) -> Result<Watching, Lost> {
        let options =
            WatchOptions::new().with_prefix().with_start_revision(revision).with_progress_notify();
        let mut watches =
            self.connection.client().watch_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
        let stream = in_time(watches.watch(self.prefix.as_bytes(), Some(options))).await?;
        Ok(Watching { stream })
    }
}

/// A stream of changes.
pub(super) struct Watching {
    stream: WatchStream,
}

impl Watching {
    /// The next change. Waits for as long as there is none.
    pub(super) async fn next(&mut self) -> Result<Change, Lost> {
        let Some(answer) = self.stream.message().await.map_err(kvd_etcd::Lost::from)? else {
            return Err(later("the watch ended"));
        };
        if answer.compact_revision() > 0 {
            return Err(Lost::Anew("what comes next is compacted already"));
        }
        if answer.canceled() {
            let reason = answer.cancel_reason();
            return Err(later(format!("the watch was cancelled: {reason}")));
        }
        Ok(change(&answer))
    }
}

fn rows(mut answer: GetResponse) -> Vec<Row> {
    let rows = answer.take_kvs().into_iter().map(|pair| Row {
        key: pair.key().to_vec(),
        mod_revision: pair.mod_revision(),
        value: pair.value().to_vec(),
    });
    rows.collect()
}

fn change(answer: &WatchResponse) -> Change {
    let event = |event: &etcd_client::Event| {
        let pair = event.kv()?;
        let value = match event.event_type() {
            EventType::Put => Some(pair.value().to_vec()),
            EventType::Delete => None,
        };
        Some(Event { key: pair.key().to_vec(), mod_revision: pair.mod_revision(), value })
    };
    let events: Vec<Event> = answer.events().iter().filter_map(event).collect();
    // What was made a moment ago has not told yet what changed since `start_revision`.
    let progress = if answer.created() || !events.is_empty() { None } else { answer.header() };
    Change { events, progress: progress.map(etcd_client::ResponseHeader::revision) }
}
