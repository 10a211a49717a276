//! An engine's records in etcd, for as long as they are wished for: what stands in them, and what the log says of it.

use std::path::PathBuf;
use std::time::Duration;

use kvd_etcd::{Connection, Entry, Etcd, Keeper, Lost, News, Owner};
use kvd_proto::events::Registration;
use router_core::record::WorkerRecord;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::daemon;
use crate::host::Names;

/// A farewell that takes longer is left to the lease's end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Where records are kept, and how this host is known.
#[derive(Clone, Debug)]
pub(crate) struct Register {
    pub(crate) etcd: Etcd,
    pub(crate) prefix: String,
    pub(crate) kvd_prefix: String,
    /// What the operator says of the daemon's id.
    pub(crate) kvd_host_id: Option<String>,
    /// Where this host's daemon can be asked for it.
    pub(crate) kvd_admin_socket: PathBuf,
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
        task.spawn(run(register, heard));
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

async fn run(register: Register, mut wishes: mpsc::Receiver<Wish>) {
    let mut keeper = Keeper::new(register.etcd.clone());
    let mut records = Records::new(register, Vec::new());
    let mut wish = wishes.recv().await;
    loop {
        wish = match wish {
            None => return,
            Some(Wish::Withdraw(done)) => {
                keeper.let_go(&mut records, FAREWELL).await;
                let _may_not_wait_any_more = done.send(());
                wishes.recv().await
            }
            Some(Wish::Register(wished)) => {
                // Other records may have other keys.
                keeper.let_go(&mut records, FAREWELL).await;
                records.records = wished;
                tokio::select! {
                    next = wishes.recv() => next,
                    never = keeper.hold(&mut records) => match never {},
                }
            }
        };
    }
}

/// What would be written now. Without etcd nothing is known of the host's daemon but what it and the operator say.
pub(crate) async fn preview(register: Register, wished: Vec<WorkerRecord>) -> Vec<Value> {
    let etcd = register.etcd.clone();
    let mut records = Records::new(register, wished);
    let looked_up = async { records.connected(&etcd.connect().await?).await };
    if let Err(reason) = looked_up.await {
        tracing::warn!(%reason, "etcd does not answer: the host's daemon is not looked for");
    }
    let host_id = records.host_id().await;
    records.records.iter().map(|record| rendered(record, host_id.as_deref())).collect()
}

/// The records, and what is known of the host's daemon.
struct Records {
    register: Register,
    records: Vec<WorkerRecord>,
    /// The daemon that etcd knows here.
    found: Option<String>,
    /// What the daemon said of itself.
    said: Option<String>,
}

impl Records {
    fn new(register: Register, records: Vec<WorkerRecord>) -> Self {
        Self { register, records, found: None, said: None }
    }

    /// The id of the host's daemon, as well as it is known: by the operator, the daemon itself, or etcd. A daemon that does not
    /// answer any more will be the same one.
    async fn host_id(&mut self) -> Option<String> {
        if let Some(id) = &self.register.kvd_host_id {
            return Some(id.clone());
        }
        match daemon::host_id(&self.register.kvd_admin_socket).await {
            Ok(id) if self.said.as_ref() != Some(&id) => {
                tracing::info!(host_id = id, "the host's daemon tells its id");
                self.said = Some(id);
            }
            Ok(_same) => {}
            Err(reason) => tracing::debug!(reason, "the host's daemon does not tell its id"),
        }
        self.said.clone().or_else(|| self.found.clone())
    }
}

impl Owner for Records {
    async fn connected(&mut self, connection: &Connection) -> Result<(), Lost> {
        if self.register.kvd_host_id.is_none() {
            let daemons = connection.values(&self.register.kvd_prefix).await?;
            let daemons = daemons.iter().filter_map(|value| serde_json::from_slice(value).ok());
            self.found = self.register.names.daemon(&daemons.collect::<Vec<Registration>>());
        }
        Ok(())
    }

    async fn entries(&mut self) -> Vec<Entry> {
        let host_id = self.host_id().await;
        let entry = |record: &WorkerRecord| Entry {
            key: format!("{}{}", self.register.prefix, record.worker_id),
            value: rendered(record, host_id.as_deref()).to_string(),
        };
        self.records.iter().map(entry).collect()
    }

    fn hear(&mut self, news: News<'_>) {
        match news {
            News::Put { key, lease } => tracing::info!(key, lease, "registered"),
            News::Kept { is_back: true } => tracing::info!("the worker is registered again"),
            News::Lost { reason, is_first: true } => {
                tracing::warn!(%reason, "the worker is not registered; it will be as soon as etcd answers");
            }
            News::Kept { .. } | News::Lost { .. } => {}
            News::Contested { key } => {
                tracing::warn!(key, "another process has registered as the same worker");
            }
            News::LetGo { lease } => tracing::info!(lease, "not registered any more"),
            News::Stay { reason } => {
                tracing::warn!(%reason, "the lease can't be revoked; it ends within 30 s");
            }
        }
    }
}

/// The record as it is written, with the id of its host's daemon. More of the daemon stands in the daemon's own record,
/// where it is kept up to date.
fn rendered(record: &WorkerRecord, host_id: Option<&str>) -> Value {
    let mut value = json!(record);
    value["kvd"] = host_id.map_or(Value::Null, |id| json!({"host_id": id}));
    value
}
