//! Talking to etcd: each question has a deadline, and a connection that fails in any way is given up as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, Error, GetOptions, PutOptions};
use tokio::time::timeout;

use crate::access::{Access, Keys};
use crate::endpoint::Endpoint;
use crate::held::Entry;
use crate::lost::Lost;

/// Every question is answered within this time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// A connection that is dead without a word is noticed by these.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Records below one prefix that are looked through.
const RECORDS_MAX: i64 = 4_096;
/// Largest answer: some ten thousand records.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The way to etcd. Clones share whose turn it is.
#[derive(Debug, Clone)]
pub struct Etcd {
    access: Arc<Access>,
    next: Arc<AtomicUsize>,
}

impl Etcd {
    /// By `access`.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self { access: Arc::new(access), next: Arc::default() }
    }

    /// Connects to the first member that lets us in, beginning behind the one that was connected to last: that one may be cut off
    /// from the others.
    ///
    /// # Errors
    /// None does; what the last one said.
    pub async fn connect(&self) -> Result<Connection, Lost> {
        let keys = self.access.keys()?;
        let members = self.access.endpoints();
        let mut lost = Lost::because("there is no member");
        for _ in members {
            let member = &members[self.next.fetch_add(1, Ordering::Relaxed) % members.len()];
            match Box::pin(to_member(member, &keys)).await {
                Ok(client) => return Ok(Connection { client }),
                Err(why) => lost = why.at(member),
            }
        }
        Err(lost)
    }
}

async fn to_member(member: &Endpoint, keys: &Keys) -> Result<Client, Lost> {
    let connecting = async {
        let invalid = |error| Lost::chain(&error);
        let mut endpoint = tonic::transport::Endpoint::from_shared(member.to_string())
            .map_err(invalid)?
            .connect_timeout(ANSWER_PATIENCE)
            .tcp_keepalive(Some(KEEPALIVE))
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .keep_alive_while_idle(true);
        if member.is_encrypted() {
            endpoint = endpoint.tls_config(keys.tls.clone()).map_err(invalid)?;
        }
        let channel = endpoint.connect().await.map_err(|error| Lost::chain(&error))?;
        let mut options = ConnectOptions::new()
            // A member that is cut off from the others would be silent, not wrong, for ever.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((user, password)) = &keys.user {
            options = options.with_user(user, password);
        }
        Ok(Client::from_channel(Channel::Tonic(channel), Some(options)).await?)
    };
    timeout(ANSWER_PATIENCE, connecting).await.unwrap_or_else(|_elapsed| Err(late()))
}

fn late() -> Lost {
    Lost::because(format!("no answer within {ANSWER_PATIENCE:?}"))
}

/// Waits for an answer, but not for ever.
///
/// # Errors
/// There is none, or none in time.
pub async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Lost> {
    match timeout(ANSWER_PATIENCE, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_elapsed) => Err(late()),
    }
}

/// A connection.
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct Connection {
    client: Client,
}

impl Connection {
    /// For questions that are nobody else's.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The values below a prefix, up to some thousand.
    ///
    /// # Errors
    /// etcd does not answer.
    pub async fn values(&self, prefix: &str) -> Result<Vec<Vec<u8>>, Lost> {
        let options = GetOptions::new().with_prefix().with_limit(RECORDS_MAX);
        let mut keys = self.client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut answer = in_time(keys.get(prefix, Some(options))).await?;
        Ok(answer.take_kvs().into_iter().map(|pair| pair.value().to_vec()).collect())
    }

    /// A new lease.
    pub(crate) async fn grant(&self, life: Duration) -> Result<i64, Lost> {
        let life = i64::try_from(life.as_secs()).unwrap_or(i64::MAX);
        Ok(in_time(self.client.lease_client().grant(life, None)).await?.id())
    }

    /// Prolongs a lease; whether it still lived.
    pub(crate) async fn renew(&self, lease: i64) -> Result<bool, Lost> {
        match timeout(ANSWER_PATIENCE, self.client.lease_client().keep_alive(lease)).await {
            Ok(Ok(_renewed)) => Ok(true),
            // The one answer that this error stands for: it is not there.
            Ok(Err(Error::LeaseKeepAliveError(_))) => Ok(false),
            Ok(Err(error)) => Err(error.into()),
            Err(_elapsed) => Err(late()),
        }
    }

    /// Ends a lease, and the keys with it. One that is not there any more is fine.
    pub(crate) async fn revoke(&self, lease: i64) -> Result<(), Lost> {
        match in_time(self.client.lease_client().revoke(lease)).await {
            Ok(_revoked) => Ok(()),
            Err(reason) if reason.is_of_a_gone_lease() => Ok(()),
            Err(reason) => Err(reason),
        }
    }

    pub(crate) async fn put(&self, entry: &Entry, lease: i64) -> Result<(), Lost> {
        let options = PutOptions::new().with_lease(lease);
        let (key, value) = (entry.key.as_str(), entry.value.as_str());
        in_time(self.client.kv_client().put(key, value, Some(options))).await?;
        Ok(())
    }

    /// The lease of a key, 0 for none; nothing if the key is not there.
    pub(crate) async fn lease_of(&self, key: &str) -> Result<Option<i64>, Lost> {
        let options = GetOptions::new().with_keys_only();
        let answer = in_time(self.client.kv_client().get(key, Some(options))).await?;
        Ok(answer.kvs().first().map(etcd_client::KeyValue::lease))
    }
}
