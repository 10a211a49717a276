//! Talking to etcd: each question has a deadline, and what goes wrong says whether one can go on later.

use std::fmt;
use std::time::Duration;

use etcd_client::{
    Client, ConnectOptions, EventType, GetOptions, GetResponse, WatchOptions, WatchResponse,
    WatchStream,
};
use tokio::time::timeout;

use super::mirror::{Change, Event, Listing, Row};

/// Every question is answered within this time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// A connection that is dead without a word is noticed by these.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Largest answer: some ten thousand workers.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Why a connection is given up.
#[derive(Debug)]
pub(super) enum Lost {
    /// The next one goes on.
    Later(String),
    /// The next one begins anew.
    Anew(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later(reason) | Self::Anew(reason) => out.write_str(reason),
        }
    }
}

impl From<etcd_client::Error> for Lost {
    fn from(error: etcd_client::Error) -> Self {
        Self::Later(error.to_string())
    }
}

/// Where etcd is, and the keys in it.
#[derive(Debug)]
pub(super) struct Source {
    endpoint: String,
    prefix: String,
}

impl Source {
    pub(super) fn new(endpoint: String, prefix: String) -> Self {
        Self { endpoint, prefix }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) async fn connect(&self) -> Result<Connected, Lost> {
        let options = ConnectOptions::new()
            .with_connect_timeout(ANSWER_PATIENCE)
            .with_tcp_keepalive(KEEPALIVE)
            .with_keep_alive(KEEPALIVE, KEEPALIVE)
            .with_keep_alive_while_idle(true)
            // A member that is cut off from the others would be silent, not wrong, for ever.
            .with_require_leader(true);
        let client = in_time(Client::connect([&self.endpoint], Some(options))).await?;
        Ok(Connected { client, prefix: self.prefix.clone() })
    }
}

async fn in_time<T>(
    answer: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, Lost> {
    match timeout(ANSWER_PATIENCE, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_elapsed) => Err(Lost::Later(format!("no answer within {ANSWER_PATIENCE:?}"))),
    }
}

/// A connection.
pub(super) struct Connected {
    client: Client,
    prefix: String,
}

impl Connected {
    async fn get(&self, options: GetOptions) -> Result<(GetResponse, u64, i64), Lost> {
        let mut keys = self.client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
        let answer = in_time(keys.get(self.prefix.as_bytes(), Some(options.with_prefix()))).await?;
        let Some(header) = answer.header() else {
            return Err(Lost::Later("an answer without a header".to_owned()));
        };
        let (cluster, revision) = (header.cluster_id(), header.revision());
        Ok((answer, cluster, revision))
    }

    /// Which etcd this is, and its revision.
    pub(super) async fn place(&self) -> Result<(u64, i64), Lost> {
        let (_, cluster, revision) = self.get(GetOptions::new().with_count_only()).await?;
        Ok((cluster, revision))
    }

    /// All keys and values.
    pub(super) async fn list(&self) -> Result<Listing, Lost> {
        let (mut answer, cluster, revision) = self.get(GetOptions::new()).await?;
        let rows = answer.take_kvs().into_iter().map(|pair| Row {
            key: pair.key().to_vec(),
            mod_revision: pair.mod_revision(),
            value: pair.value().to_vec(),
        });
        Ok(Listing { cluster, revision, rows: rows.collect() })
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
        let mut watches = self.client.watch_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
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
        let Some(answer) = self.stream.message().await? else {
            return Err(Lost::Later("the watch ended".to_owned()));
        };
        if answer.compact_revision() > 0 {
            return Err(Lost::Anew("what comes next is compacted already".to_owned()));
        }
        if answer.canceled() {
            let reason = answer.cancel_reason();
            return Err(Lost::Later(format!("the watch was cancelled: {reason}")));
        }
        Ok(change(&answer))
    }
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
