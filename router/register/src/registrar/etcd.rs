//! Talking to etcd: each question has a deadline.

use std::fmt;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error, GetOptions, PutOptions};
use serde_json::Value;
use tokio::time::timeout;

/// Every question is answered within this time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// A connection that is dead without a word is noticed by these.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Records of daemons that are looked through.
const RECORDS_MAX: i64 = 4_096;
/// Their size in all.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Why a connection is given up.
#[derive(Debug)]
pub(crate) struct Lost(String);

impl From<&str> for Lost {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

impl From<Error> for Lost {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Where etcd is: `http://HOST:PORT`.
#[derive(Clone, Debug)]
pub(crate) struct Etcd {
    pub(crate) endpoint: String,
}

impl Etcd {
    pub(super) async fn connect(&self) -> Result<Connected, Lost> {
        let options = ConnectOptions::new()
            .with_connect_timeout(ANSWER_PATIENCE)
            .with_tcp_keepalive(KEEPALIVE)
            .with_keep_alive(KEEPALIVE, KEEPALIVE)
            .with_keep_alive_while_idle(true)
            // A member that is cut off from the others would let us believe that our lease lives.
            .with_require_leader(true);
        let client = in_time(Client::connect([&self.endpoint], Some(options))).await?;
        Ok(Connected { client })
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Lost> {
    match timeout(ANSWER_PATIENCE, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_elapsed) => Err(Lost(format!("no answer within {ANSWER_PATIENCE:?}"))),
    }
}

/// A connection.
pub(super) struct Connected {
    client: Client,
}

impl Connected {
    /// A new lease.
    pub(super) async fn grant(&self, life: Duration) -> Result<i64, Lost> {
        let life = i64::try_from(life.as_secs()).unwrap_or(i64::MAX);
        Ok(in_time(self.client.lease_client().grant(life, None)).await?.id())
    }

    /// Prolongs a lease; whether it still lived.
    pub(super) async fn renew(&self, lease: i64) -> Result<bool, Lost> {
        match timeout(ANSWER_PATIENCE, self.client.lease_client().keep_alive(lease)).await {
            Ok(Ok(_renewed)) => Ok(true),
            // The one answer that this error stands for: it is not there.
            Ok(Err(Error::LeaseKeepAliveError(_))) => Ok(false),
            Ok(Err(error)) => Err(error.into()),
            Err(_elapsed) => Err(Lost(format!("no answer within {ANSWER_PATIENCE:?}"))),
        }
    }

    /// Ends a lease, and the keys with it. One that is not there any more is fine.
    pub(super) async fn revoke(&self, lease: i64) -> Result<(), Lost> {
        match in_time(self.client.lease_client().revoke(lease)).await {
            Ok(_revoked) => Ok(()),
            Err(reason) if reason.0.contains("lease not found") => Ok(()),
            Err(reason) => Err(reason),
        }
    }

    pub(super) async fn put(&self, key: &str, value: &Value, lease: i64) -> Result<(), Lost> {
        let options = PutOptions::new().with_lease(lease);
        in_time(self.client.kv_client().put(key, value.to_string(), Some(options))).await?;
        Ok(())
    }

    /// The lease of a key, 0 for none; nothing if the key is not there.
    pub(super) async fn lease_of(&self, key: &str) -> Result<Option<i64>, Lost> {
        let options = GetOptions::new().with_keys_only();
        let answer = in_time(self.client.kv_client().get(key, Some(options))).await?;
        Ok(answer.kvs().first().map(etcd_client::KeyValue::lease))
    }

    /// The values below a prefix.
    pub(super) async fn values(&self, prefix: &str) -> Result<Vec<Vec<u8>>, Lost> {
        let options = GetOptions::new().with_prefix().with_limit(RECORDS_MAX);
        let mut keys = self.client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut answer = in_time(keys.get(prefix, Some(options))).await?;
        Ok(answer.take_kvs().into_iter().map(|pair| pair.value().to_vec()).collect())
    }
}
