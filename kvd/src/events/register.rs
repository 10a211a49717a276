//! The record in etcd by which routers find the daemon: kept by a lease, put again after a loss, gone with the drain.
//! Without etcd, or while it does not answer, everything else goes on.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use kvd_etcd::{Access, Entry, Etcd, Keeper, News, Owner};
use kvd_proto::events::registration::EVENT_VERSION;
use kvd_proto::events::{LoadPolicy, Registration, TierRecord};
use tokio::sync::watch;

use super::figures;
use crate::config::EventsSettings;
use crate::daemon::Daemon;

/// How long the end of the daemon waits for etcd.
const FAREWELL: Duration = Duration::from_secs(2);
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
        let settings = daemon.settings.events.clone();
        let Some((settings, access)) =
            settings.and_then(|settings| Some((settings.clone(), settings.etcd?)))
        else {
            return Ok(None);
        };
        let daemon = Arc::clone(daemon);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let thread = Builder::new().name("kvd-register".into()).spawn(move || {
            let record = Record { daemon: &daemon, settings: &settings };
            runtime.block_on(keep_registered(record, access, stopped));
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

async fn keep_registered(
    mut record: Record<'_>,
    access: Access,
    mut stopped: watch::Receiver<bool>,
) {
    let mut keeper = Keeper::new(Etcd::new(access));
    tokio::select! {
        never = Box::pin(keeper.hold(&mut record)) => match never {},
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    Box::pin(keeper.let_go(&mut record, FAREWELL)).await;
    record.daemon.events.meters.is_registered.store(false, Ordering::Relaxed);
}

/// The daemon as the owner of its record.
struct Record<'a> {
    daemon: &'a Daemon,
    settings: &'a EventsSettings,
}

impl Owner for Record<'_> {
    async fn entries(&mut self) -> Vec<Entry> {
        let key = format!("{}{}", self.settings.kvd_prefix, self.settings.host_id);
        let record = record(self.daemon, self.settings);
        serde_json::to_string(&record).map(|value| Entry { key, value }).into_iter().collect()
    }

    fn hear(&mut self, news: News<'_>) {
        let meters = &self.daemon.events.meters;
        match news {
            News::Kept { .. } => {
                if !meters.is_registered.swap(true, Ordering::Relaxed) {
                    tracing::info!("registered in etcd");
                }
            }
            News::Lost { reason, is_first } => {
                meters.is_registered.store(false, Ordering::Relaxed);
                meters.registrations_failed.fetch_add(1, Ordering::Relaxed);
                if is_first {
                    tracing::warn!(%reason, "not registered in etcd; trying on");
                }
            }
            News::Contested { key } => {
                tracing::warn!(key, "another daemon has registered under the same --host-id");
            }
            News::Stay { reason } => {
                tracing::warn!(%reason, "the record in etcd stays until its lease ends");
            }
            News::Put { .. } | News::LetGo { .. } => {}
        }
    }
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
