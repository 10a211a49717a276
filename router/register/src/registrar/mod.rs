//! Keeping an engine's records in etcd for as long as they are wished for, whatever etcd does meanwhile. One task talks to
//! etcd; a connection that fails in any way is given up as a whole, and the next one looks whether the lease lives.

mod etcd;

use std::convert::Infallible;
use std::time::Duration;

use kvd_proto::events::Registration;
use router_core::record::WorkerRecord;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub(crate) use self::etcd::Etcd;
use self::etcd::{Connected, Lost};
use crate::host::Names;

/// A lease lives for three of these.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Pause after a lost connection: doubled from one to the next up to the bound, back after a good one.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A farewell that takes longer is left to the lease's end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Where records are kept, and by what names this host is known.
#[derive(Clone, Debug)]
pub(crate) struct Register {
    pub(crate) etcd: Etcd,
    pub(crate) prefix: String,
    pub(crate) kvd_prefix: String,
    /// What the operator says of the daemon's id.
    pub(crate) kvd_host_id: Option<String>,
    pub(crate) names: Names,
}

#[derive(Debug)]
enum Wish {
    Register(Vec<WorkerRecord>),
    /// Answered when nothing is left.
    Withdraw(oneshot::Sender<()>),
}

/// The handle of the task, which ends with it.
#[derive(Debug)]
pub(crate) struct Registrar {
    wishes: mpsc::Sender<Wish>,
    _task: JoinSet<()>,
}

impl Registrar {
    /// Starts the task. Nothing is wished for yet.
    pub(crate) fn start(register: Register) -> Self {
        let (wishes, heard) = mpsc::channel(1);
        let mut task = JoinSet::new();
        let mut keeper = Keeper { register, lease: None, is_told: false, is_contested: false };
        task.spawn(async move { keeper.run(heard).await });
        Self { wishes, _task: task }
    }

    /// From now on these are to be there.
    pub(crate) async fn register(&self, records: Vec<WorkerRecord>) {
        // It ends with this handle, not before.
        drop(self.wishes.send(Wish::Register(records)).await);
    }

    /// From now on nothing is to be there; comes back when that is so, or can't be had in time.
    pub(crate) async fn withdraw(&self) {
        let (done, gone) = oneshot::channel();
        let withdrawn = async {
            drop(self.wishes.send(Wish::Withdraw(done)).await);
            gone.await
        };
        if timeout(FAREWELL, withdrawn).await.is_err() {
            tracing::warn!("etcd does not let the worker go; its lease ends within 30 s");
        }
    }
}

/// What is asked for at a key.
struct Entry {
    key: String,
    value: Value,
}

struct Keeper {
    register: Register,
    /// What our keys hang on, if there are any.
    lease: Option<i64>,
    /// Whether the log knows that the worker is not registered.
    is_told: bool,
    /// Whether the log knows that somebody else has our key.
    is_contested: bool,
}

impl Keeper {
    async fn run(&mut self, mut wishes: mpsc::Receiver<Wish>) {
        let mut wish = wishes.recv().await;
        loop {
            wish = match wish {
                None => return,
                Some(Wish::Withdraw(done)) => {
                    self.let_go().await;
                    let _may_not_wait_any_more = done.send(());
                    wishes.recv().await
                }
                Some(Wish::Register(records)) => {
                    // Other records may have other keys.
                    self.let_go().await;
                    tokio::select! {
                        next = wishes.recv() => next,
                        never = self.hold(&records) => match never {},
                    }
                }
            };
        }
    }

    /// Keeps these there.
    async fn hold(&mut self, records: &[WorkerRecord]) -> Infallible {
        let mut pause = PAUSE;
        loop {
            let Err(reason) = self.one_connection(records, &mut pause).await;
            // One line for each loss, not for each attempt.
            if !std::mem::replace(&mut self.is_told, true) {
                tracing::warn!(%reason, "the worker is not registered; it will be as soon as etcd answers");
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Connects, and keeps them there for as long as that goes well.
    async fn one_connection(
        &mut self,
        records: &[WorkerRecord],
        pause: &mut Duration,
    ) -> Result<Infallible, Lost> {
        let connected = self.register.etcd.connect().await?;
        let entries = entries(&self.register, records, &connected).await?;
        let lease = self.lease(&connected, &entries).await?;
        *pause = PAUSE;
        loop {
            self.look_after(&connected, &entries, lease).await?;
            if std::mem::take(&mut self.is_told) {
                tracing::info!("the worker is registered again");
            }
            sleep(HEARTBEAT).await;
            if !connected.renew(lease).await? {
                self.lease = None;
                return Err(Lost::from("etcd does not know our lease any more"));
            }
        }
    }

    /// The lease that there is, if it lives; else one with fresh keys.
    async fn lease(&mut self, connected: &Connected, entries: &[Entry]) -> Result<i64, Lost> {
        if let Some(lease) = self.lease {
            if connected.renew(lease).await? {
                return Ok(lease);
            }
            self.lease = None;
        }
        let lease = connected.grant(HEARTBEAT * 3).await?;
        // From here on there may be something to take away.
        self.lease = Some(lease);
        for Entry { key, value } in entries {
            connected.put(key, value, lease).await?;
            tracing::info!(key, lease, "registered");
        }
        Ok(lease)
    }

    /// Puts back what somebody removed. What another process has written since is left to it: it began later.
    async fn look_after(
        &mut self,
        connected: &Connected,
        entries: &[Entry],
        lease: i64,
    ) -> Result<(), Lost> {
        for Entry { key, value } in entries {
            match connected.lease_of(key).await? {
                Some(holder) if holder == lease => {}
                None => connected.put(key, value, lease).await?,
                Some(_) if std::mem::replace(&mut self.is_contested, true) => {}
                Some(_) => {
                    tracing::warn!(key, "another process has registered as the same worker");
                }
            }
        }
        Ok(())
    }

    /// Takes the keys away, by their lease.
    async fn let_go(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let revoked = async { self.register.etcd.connect().await?.revoke(lease).await };
        match revoked.await {
            Ok(()) => tracing::info!(lease, "not registered any more"),
            Err(reason) => {
                tracing::warn!(%reason, "the lease can't be revoked; it ends within 30 s");
            }
        }
    }
}

/// What would be written now. Without etcd nothing is known of the host's daemon but what the operator says.
pub(crate) async fn preview(register: &Register, records: &[WorkerRecord]) -> Vec<Value> {
    let entries = async {
        let connected = register.etcd.connect().await?;
        entries(register, records, &connected).await
    };
    match entries.await {
        Ok(entries) => entries.into_iter().map(|entry| entry.value).collect(),
        Err(reason) => {
            tracing::warn!(%reason, "etcd does not answer: the host's daemon is not looked for");
            let id = register.kvd_host_id.as_deref();
            records.iter().map(|record| rendered(record, id)).collect()
        }
    }
}

async fn entries(
    register: &Register,
    records: &[WorkerRecord],
    connected: &Connected,
) -> Result<Vec<Entry>, Lost> {
    let host_id = match &register.kvd_host_id {
        Some(id) => Some(id.clone()),
        None => {
            let daemons = connected.values(&register.kvd_prefix).await?;
            let daemons = daemons.iter().filter_map(|value| serde_json::from_slice(value).ok());
            register.names.daemon(&daemons.collect::<Vec<Registration>>())
        }
    };
    let entry = |record: &WorkerRecord| Entry {
        key: format!("{}{}", register.prefix, record.worker_id),
        value: rendered(record, host_id.as_deref()),
    };
    Ok(records.iter().map(entry).collect())
}

/// The record as it is written, with the id of its host's daemon. More of the daemon stands in the daemon's own record,
/// where it is kept up to date.
fn rendered(record: &WorkerRecord, host_id: Option<&str>) -> Value {
    let mut value = json!(record);
    value["kvd"] = host_id.map_or(Value::Null, |id| json!({"host_id": id}));
    value
}
