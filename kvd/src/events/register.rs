//! The record in etcd by which routers find the daemon: kept by a lease, put again after a loss, gone with the drain.
//! Without etcd, or while it does not answer, everything else goes on.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error, LeaseKeepAliveStream, LeaseKeeper, PutOptions};
use kvd_proto::events::registration::EVENT_VERSION;
use kvd_proto::events::{LoadPolicy, Registration, TierRecord};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::figures;
use crate::config::EventsSettings;
use crate::daemon::Daemon;

/// The record outlives a daemon that was killed by at most this.
const LEASE_S: i64 = 30;
/// The lease is renewed so often, and the record put again if it says something else by then.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// Every question is answered within this time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// How long the end of the daemon waits for etcd.
const FAREWELL: Duration = Duration::from_secs(2);
/// Pause after a failure: doubled from one to the next up to the bound.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Compatibility keys that the record names.
const COMPAT_KEYS_MAX: usize = 256;

/// The thread that keeps the record.
#[derive(Debug)]
pub struct Registrar {
    thread: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Registrar {
    /// Registers, if there is an etcd to do so.
    ///
    /// # Errors
    /// The thread can't start.
    pub fn start(daemon: &Arc<Daemon>) -> io::Result<Option<Self>> {
        let Some(settings) =
            daemon.settings.events.clone().filter(|events| !events.etcd.is_empty())
        else {
            return Ok(None);
        };
        let daemon = Arc::clone(daemon);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let thread = Builder::new().name("kvd-register".into()).spawn(move || {
            runtime.block_on(keep_registered(&daemon, &settings, stopped));
            runtime.shutdown_timeout(FAREWELL);
        })?;
        Ok(Some(Self { thread, stop }))
    }

    /// Takes the record back and joins the thread.
    pub fn stop(self) {
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the thread that registers panicked");
        }
    }
}

/// A lease and what keeps it.
struct Lease {
    client: Client,
    id: i64,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
    put: Vec<u8>,
}

async fn keep_registered(
    daemon: &Daemon,
    settings: &EventsSettings,
    mut stopped: watch::Receiver<bool>,
) {
    let meters = &daemon.events.meters;
    let key = format!("{}{}", settings.kvd_prefix, settings.host_id);
    let (mut lease, mut pause, mut is_told) = (None, PAUSE, false);
    loop {
        let kept = tokio::select! {
            kept = keep(&mut lease, daemon, settings, &key) => kept,
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        let next = match kept {
            Ok(()) => {
                if !meters.is_registered.swap(true, Ordering::Relaxed) {
                    tracing::info!(key, "registered in etcd");
                }
                (pause, is_told) = (PAUSE, false);
                RENEW_EVERY
            }
            Err(error) => {
                lease = None;
                meters.is_registered.store(false, Ordering::Relaxed);
                meters.registrations_failed.fetch_add(1, Ordering::Relaxed);
                // One line for each loss, not for each attempt.
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(%error, "not registered in etcd; trying on");
                }
                let next = (pause * 2).min(PAUSE_MAX);
                std::mem::replace(&mut pause, next)
            }
        };
        tokio::select! {
            () = sleep(next) => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
    }
    if let Some(Lease { mut client, id, .. }) = lease {
        if let Err(error) = within(FAREWELL, client.lease_revoke(id)).await {
            tracing::warn!(%error, "the record in etcd stays until its lease ends");
        }
        meters.is_registered.store(false, Ordering::Relaxed);
    }
}

/// Grants or renews the lease, and puts the record if it is not what is there.
async fn keep(
    lease: &mut Option<Lease>,
    daemon: &Daemon,
    settings: &EventsSettings,
    key: &str,
) -> Result<(), Error> {
    match lease {
        None => *lease = Some(Box::pin(grant(settings)).await?),
        Some(lease) => lease.renew().await?,
    }
    let Some(lease) = lease else { return Ok(()) };
    let record = serde_json::to_vec(&record(daemon, settings)).unwrap_or_default();
    if record != lease.put {
        let options = Some(PutOptions::new().with_lease(lease.id));
        in_time(lease.client.put(key, record.clone(), options)).await?;
        lease.put = record;
    }
    Ok(())
}

async fn grant(settings: &EventsSettings) -> Result<Lease, Error> {
    let options = ConnectOptions::new()
        .with_connect_timeout(ANSWER_PATIENCE)
        .with_tcp_keepalive(RENEW_EVERY)
        .with_require_leader(true);
    let mut client = Box::pin(in_time(Client::connect(&settings.etcd, Some(options)))).await?;
    let id = in_time(client.lease_grant(LEASE_S, None)).await?.id();
    let (keeper, answers) = in_time(client.lease_keep_alive(id)).await?;
    Ok(Lease { client, id, keeper, answers, put: Vec::new() })
}

impl Lease {
    async fn renew(&mut self) -> Result<(), Error> {
        in_time(self.keeper.keep_alive()).await?;
        let answer = in_time(self.answers.message()).await?;
        if answer.is_none_or(|answer| answer.ttl() <= 0) {
            return Err(Error::LeaseKeepAliveError("the lease is over".to_owned()));
        }
        Ok(())
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    within(ANSWER_PATIENCE, answer).await
}

async fn within<T>(
    patience: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let late = |_elapsed| Error::IoError(io::ErrorKind::TimedOut.into());
    timeout(patience, answer).await.map_err(late)?
}

/// What routers are told.
fn record(daemon: &Daemon, settings: &EventsSettings) -> Registration {
    let (tiers, mut compat_keys) = daemon.brain.inspect(|store, _| {
        let mut keys = std::collections::BTreeSet::new();
        store.tier_namespaces(|namespace| {
            if keys.len() < COMPAT_KEYS_MAX {
                keys.insert(namespace.compat_key.to_owned());
            }
        });
        (figures::of(store), keys.into_iter().collect::<Vec<_>>())
    });
    compat_keys.retain(|key| !key.is_empty());
    let endpoints = daemon.events.endpoints.get();
    let host = settings.advertise.first().map_or("", String::as_str);
    let at = |endpoint: Option<&String>| endpoint.map(|endpoint| advertised(endpoint, host));
    let for_routers = daemon.snapshot_at.get();
    let url = |path: &str| {
        for_routers.map(|address| format!("http://{}{path}", with_port(host, address.port())))
    };
    let tiers = tiers.into_iter().map(|figures| {
        let (medium, locality) = figures.tier.medium();
        TierRecord {
            tier: figures.tier.as_str().to_owned(),
            medium: medium.to_owned(),
            locality: locality.to_owned(),
            bytes: figures.bytes,
            // What changes all the time is in the figures that are published.
            used: 0,
            read_bw: None,
            read_lat_us: None,
            queue_bytes: 0,
        }
    });
    Registration {
        host_id: settings.host_id.clone(),
        epoch: daemon.events.epoch,
        addrs: settings.advertise.clone(),
        events_endpoint: at(endpoints.map(|endpoints| &endpoints.events)),
        replay_endpoint: at(endpoints.map(|endpoints| &endpoints.replay)),
        snapshot_url: url("/v1/events/snapshot"),
        // Without a disk there is nothing to load ahead.
        prefetch_url: url("/v1/prefetch").filter(|_| !daemon.devices.is_empty()),
        event_version: EVENT_VERSION,
        compat_keys,
        load_policy: LoadPolicy::Always,
        pipelined: true,
        curve_server_key: endpoints.and_then(|endpoints| endpoints.curve_server_key.clone()),
        tiers: tiers.collect(),
        ..Registration::default()
    }
}

/// A bound endpoint with the name by which others reach the host.
fn advertised(endpoint: &str, host: &str) -> String {
    let port = endpoint.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0);
    format!("tcp://{}", with_port(host, port))
}

fn with_port(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        Ok(IpAddr::V4(_)) | Err(_) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::advertised;

    #[test]
    fn others_are_told_a_name_that_they_reach() {
        assert_eq!(advertised("tcp://0.0.0.0:5600", "10.0.0.1"), "tcp://10.0.0.1:5600");
        assert_eq!(advertised("tcp://[::]:5600", "fd00::1"), "tcp://[fd00::1]:5600");
        assert_eq!(advertised("tcp://127.0.0.1:5600", "node-7"), "tcp://node-7:5600");
    }
}
