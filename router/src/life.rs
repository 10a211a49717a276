//! The order in which a router starts and ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::discovery::{self, Standing, Tools};
use crate::flags::Settings;
use crate::fleet::{self, Keeper};
use crate::front::{self, App, serve};
use crate::meters::Meters;
use crate::phase::Phase;
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
    let app = App {
        relay: Relay::new(&settings, Arc::clone(&fleet), Arc::clone(&meters), current.clone()),
        fleet: Arc::clone(&fleet),
        meters: Arc::clone(&meters),
        standing: Arc::clone(&standing),
        phase: current.clone(),
        body_bytes_max: settings.body_bytes_max,
    };
    let keeper = Keeper::new(fleet, settings.breaker);
    let tools = Tools { keeper, standing, meters, phase: current.clone() };
    let mut tasks = JoinSet::new();
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
    let drained = async {
        phase.send_replace(Phase::Leaving);
        sleep(settings.shutdown_delay).await;
        phase.send_replace(Phase::Closing);
        let mut left = Box::pin(async move { while tasks.join_next().await.is_some() {} });
        if timeout(settings.drain_timeout, &mut left).await.is_err() {
            tracing::warn!("answers in flight are cut off: the drain timeout is over");
            phase.send_replace(Phase::Ending);
            if timeout(FAREWELL, left).await.is_err() {
                tracing::error!("a task goes on that should have ended");
            }
        }
    };
    tokio::select! {
        () = drained => Ok(End::Drained),
        () = signals.next() => Ok(End::Hurried),
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
