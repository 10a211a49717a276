//! The order in which a router starts and ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use router_core::score::Speed;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::discovery::{self, HostTools, Standing, Tools};
use crate::feed::{self, Access, Feeds};
use crate::flags::{CacheSettings, Policy, Settings};
use crate::fleet::{self, Keeper};
use crate::front::{self, App, Bodies, serve};
use crate::hints::Hints;
use crate::hosts;
use crate::meters::Meters;
use crate::parity;
use crate::phase::{self, Phase};
use crate::picker::{self, ByCache, Parts, Picker};
use crate::polls;
use crate::relay::Relay;

/// More than what the last connections and discovery need to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Why the router did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address can't be listened on.
    #[error("--host {host} --port {port}: {source}; choose another address")]
    Listen {
        /// As it was given.
        host: String,
        /// As it was given.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// What a choice by cache needs can't be read, or a thread can't start.
    #[error("kv-aware: {0}")]
    Cache(#[source] io::Error),
    /// Signals can't be heard.
    #[error("listening for signals: {0}")]
    Signals(#[source] io::Error),
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Drained,
    /// A second signal came.
    Hurried,
    /// A part of it ended that should not have.
    Broken,
}

/// Serves until a signal comes, then drains.
///
/// # Errors
/// [`StartError`]; nothing was served then.
pub async fn run(settings: Settings) -> Result<End, StartError> {
    let mut signals = Signals::listen().map_err(StartError::Signals)?;
    let (host, port) = settings.listen.clone();
    let listener = TcpListener::bind((host.as_str(), port)).await;
    let listener = listener.map_err(|source| StartError::Listen { host, port, source })?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "serving");
    }
    let (phase, current) = watch::channel(Phase::Serving);
    let fleet = fleet::Shared::default();
    let meters = Arc::new(Meters::default());
    let standing = Arc::new(Standing::default());
    let known =
        Known { fleet: Arc::clone(&fleet), hosts: Arc::default(), meters: Arc::clone(&meters) };
    let access = access_of(&settings.policy).map_err(StartError::Cache)?;
    let (hosts, socket) = (Arc::clone(&known.hosts), settings.kvd_socket.clone());
    let (hints, taker) = Hints::new(socket, access.token(), hosts, Arc::clone(&meters));
    let picker = picker_of(&settings.policy, &known, (&access, &hints)).await;
    let (picker, cache) = picker.map_err(StartError::Cache)?;
    let feeds = cache.as_ref().map(|cache| Arc::clone(&cache.feeds));
    let by_cache = cache.as_ref().map(|cache| Arc::clone(&cache.picker));
    let app = App {
        hints,
        relay: Relay::new(
            &settings,
            picker,
            Arc::clone(&fleet),
            Arc::clone(&meters),
            current.clone(),
        ),
        feeds: feeds.clone(),
        explainer: by_cache.clone().filter(|_| settings.is_admin_enabled),
        by_cache,
        fleet: Arc::clone(&fleet),
        meters: Arc::clone(&meters),
        standing: Arc::clone(&standing),
        phase: current.clone(),
        bodies: Bodies::new(settings.body_bytes_max),
    };
    let speed = cache.as_ref().map(|cache| cache.speed).unwrap_or_default();
    let keeper = Keeper::new(fleet, settings.breaker, speed);
    let mut tasks = JoinSet::new();
    tasks.spawn(taker.run(current.clone()));
    tasks.spawn(app.relay.tend());
    if let Some(cache) = cache {
        cache.follow(&mut tasks, known, (&keeper, &settings), &current);
    }
    let tools = Tools { keeper, standing, meters, phase: current.clone() };
    tasks.spawn(discovery::run(settings.discovery, tools));
    tasks.spawn(serve::run(listener, front::routes(Arc::new(app)), current));

    tokio::select! {
        () = signals.next() => {}
        // Without workers being followed, or without a door, it is better begun anew.
        Some(ended) = tasks.join_next() => {
            tracing::error!(?ended, "a task has ended that should not");
            return Ok(End::Broken);
        }
    }
    tracing::info!("draining; a second signal exits at once");
    let drained = drain(tasks, &phase, (settings.shutdown_delay, settings.drain_timeout));
    let end = tokio::select! {
        () = drained => End::Drained,
        () = signals.next() => return Ok(End::Hurried),
    };
    if let Some(feeds) = feeds {
        feeds.stop();
    }
    Ok(end)
}

/// Lets answers in flight go on for a while, then ends them.
async fn drain(
    mut tasks: JoinSet<()>,
    phase: &watch::Sender<Phase>,
    (delay, patience): (Duration, Duration),
) {
    phase.send_replace(Phase::Leaving);
    sleep(delay).await;
    phase.send_replace(Phase::Closing);
    let mut left = Box::pin(async move { while tasks.join_next().await.is_some() {} });
    if timeout(patience, &mut left).await.is_err() {
        tracing::warn!("answers in flight are cut off: the drain timeout is over");
        phase.send_replace(Phase::Ending);
        if timeout(FAREWELL, left).await.is_err() {
            tracing::error!("a task goes on that should have ended");
        }
    }
}

/// What everybody who looks at caches looks at.
struct Known {
    fleet: fleet::Shared,
    hosts: hosts::Shared,
    meters: Arc<Meters>,
}

/// What a choice by cache needs to be kept up to date.
struct Cache {
    picker: Arc<ByCache>,
    feeds: Arc<Feeds>,
    kvd_prefix: String,
    speed: Speed,
}

/// What daemons want to see, where they are listened to.
fn access_of(policy: &Policy) -> io::Result<Access> {
    match policy {
        Policy::Simple(_) => Ok(Access::default()),
        Policy::KvAware(cache) => {
            Access::read(cache.kvd_keys.as_deref(), cache.kvd_token.as_deref())
        }
    }
}

async fn picker_of(
    policy: &Policy,
    known: &Known,
    (access, hints): (&Access, &Hints),
) -> io::Result<(Arc<dyn Picker>, Option<Cache>)> {
    let cache = match policy {
        Policy::Simple(simple) => return Ok((picker::simple(*simple).into(), None)),
        Policy::KvAware(cache) => CacheSettings::clone(cache),
    };
    let feeds = Feeds::start(cache.index_bytes_max, access, (hints, &known.meters))?;
    let feeds = Arc::new(feeds);
    let (kvd_prefix, speed) = (cache.kvd_prefix.clone(), cache.speed);
    let Known { fleet, hosts, meters } = known;
    let (fleet, hosts, meters) = (Arc::clone(fleet), Arc::clone(hosts), Arc::clone(meters));
    let parts = Parts { feeds: Arc::clone(&feeds), fleet, hosts, meters };
    let picker = Arc::new(ByCache::start(cache, parts).await?);
    Ok((Arc::clone(&picker) as _, Some(Cache { picker, feeds, kvd_prefix, speed })))
}

impl Cache {
    fn follow(
        self,
        tasks: &mut JoinSet<()>,
        known: Known,
        (keeper, settings): (&Keeper, &Settings),
        phase: &phase::Current,
    ) {
        let registrations = watch::Sender::new(Vec::new());
        tasks.spawn(polls::run(Arc::clone(&known.fleet), settings.trust.clone(), phase.clone()));
        let (fleet, changes) = (Arc::clone(&known.fleet), keeper.changes());
        let trust = settings.trust.clone();
        tasks.spawn(parity::run((fleet, changes), trust, self.picker, phase.clone()));
        tasks.spawn(feed::run(feed::Following {
            feeds: self.feeds,
            fleet: known.fleet,
            fleet_changes: keeper.changes(),
            registrations: registrations.subscribe(),
            hosts: known.hosts,
            phase: phase.clone(),
        }));
        let tools = HostTools { registrations, meters: known.meters, phase: phase.clone() };
        let discovery = settings.discovery.clone();
        tasks.spawn(discovery::run_hosts(discovery, self.kvd_prefix, tools));
    }
}

/// What asks for the end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
