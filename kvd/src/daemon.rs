//! The daemon as one value: what its threads share, and the order in which it starts and ends.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvd_shm::arena::{Arena, ArenaConfig, ArenaError};
use kvd_shm::memory_limit;
use kvd_store::{SessionLimits, Store, StoreConfig};

use crate::accept::Acceptor;
use crate::admin::Admin;
use crate::brain::Brain;
use crate::clock;
use crate::config::Settings;
use crate::listen::{Claim, ClaimError};
use crate::meters::Meters;
use crate::reaper::Reaper;
use crate::session::registry::Registry;
use crate::staging::Staging;
use crate::status::Status;
use crate::stop::Stop;
use crate::warm_up::WarmUp;

/// What a drain leaves for writes that stall: the last part of the deadline.
const FORCED: Duration = Duration::from_secs(1);

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The socket is somebody else's, or can't be made.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The arena does not fit.
    #[error(
        "the arena of {arena_bytes} bytes does not fit into the {available_bytes} bytes of memory \
         that this host or cgroup has available: lower --max-bytes or --shared-arena-bytes"
    )]
    Memory {
        /// What the settings ask for.
        arena_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// The arena could not be made.
    #[error("creating the arena: {0}")]
    Arena(#[from] ArenaError),
    /// A thread or descriptor could not be made.
    #[error("{step}: {source}")]
    System {
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Everything that the threads of one daemon share.
#[derive(Debug)]
pub struct Daemon {
    /// The checked configuration.
    pub settings: Settings,
    /// The memory.
    pub arena: Arc<Arena>,
    /// The decisions.
    pub brain: Arc<Brain>,
    /// Attached sessions.
    pub registry: Registry,
    /// Watched processes.
    pub reaper: Arc<Reaper>,
    /// Progress of the first touch.
    pub warm_up: Arc<WarmUp>,
    /// Memory for bodies outside the arena.
    pub staging: Staging,
    /// What health checks show.
    pub status: Status,
    /// The daemon's own counters.
    pub meters: Meters,
    /// Raised at shutdown.
    pub stop: Arc<Stop>,
}

/// A running daemon; [`Running::drain`] ends it.
#[derive(Debug)]
pub struct Running {
    daemon: Arc<Daemon>,
    acceptor: Acceptor,
    admin: Admin,
    threads: Vec<JoinHandle<()>>,
}

impl Daemon {
    /// Claims the sockets, creates the arena and starts every thread. The engine socket is open when
    /// this returns; the arena warms up behind it.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind then.
    pub fn start(settings: Settings) -> Result<Running, StartError> {
        let claim = Claim::new(&settings.socket, settings.socket_mode, settings.socket_group)?;
        let daemon = Arc::new(Self::prepare(settings)?);
        let system = |step| move |source| StartError::System { step, source };
        let admin =
            Admin::start(Arc::clone(&daemon)).map_err(system("starting the admin server"))?;
        let (brain, stop) = (&daemon.brain, &daemon.stop);
        let mut threads = WarmUp::start(&daemon).map_err(system("starting a touch thread"))?;
        threads.push(
            clock::start(Arc::clone(brain), Arc::clone(stop))
                .map_err(system("starting the clock"))?,
        );
        threads.push(
            daemon
                .reaper
                .start(Arc::clone(brain), Arc::clone(stop))
                .map_err(system("starting the reaper"))?,
        );
        let acceptor = Acceptor::start(Arc::clone(&daemon), claim)
            .map_err(system("starting the accept thread"))?;
        daemon.status.accepting.store(true, Ordering::Relaxed);
        Ok(Running { daemon, acceptor, admin, threads })
    }

    pub(crate) fn prepare(settings: Settings) -> Result<Self, StartError> {
        let memory = &settings.memory;
        let available_bytes = memory_limit::available();
        if memory.arena_bytes > available_bytes {
            return Err(StartError::Memory { arena_bytes: memory.arena_bytes, available_bytes });
        }
        let arena = Arc::new(Arena::create(ArenaConfig {
            bytes: memory.arena_bytes,
            hugetlb: memory.hugetlb,
            numa: memory.numa,
            pin: memory.pin,
        })?);
        let store = Store::new(store_config(&settings, arena.bytes()));
        let reaper = Reaper::new()
            .map_err(|source| StartError::System { step: "watching processes", source })?;
        Ok(Self {
            brain: Arc::new(Brain::new(
                store,
                Arc::clone(arena.mapping()),
                Arc::clone(reaper.watched()),
            )),
            registry: Registry::default(),
            reaper: Arc::new(reaper),
            warm_up: Arc::new(WarmUp::new(arena.bytes())),
            staging: Staging::new(settings.limits.staging_bytes_max),
            status: Status::new(),
            meters: Meters::default(),
            stop: Arc::new(Stop::default()),
            arena,
            settings,
        })
    }
}

impl Running {
    /// The shared parts.
    #[must_use]
    pub fn daemon(&self) -> &Arc<Daemon> {
        &self.daemon
    }

    /// Ends the daemon: stop accepting, let requests in flight finish, close what does not, join
    /// every thread. Takes at most the drain deadline.
    pub fn drain(self) {
        let daemon = &self.daemon;
        let deadline = Instant::now() + daemon.settings.drain_deadline;
        daemon.status.draining.store(true, Ordering::Relaxed);
        self.acceptor.stop();
        // A session thread finishes the frames that have arrived, then reads the end of the stream.
        daemon.registry.shut_down(Shutdown::Read);
        let patience = deadline.saturating_duration_since(Instant::now()).saturating_sub(FORCED);
        if !daemon.registry.wait_empty(patience) {
            let left = daemon.registry.len();
            tracing::warn!(left, "closing sessions that did not finish before the drain deadline");
            daemon.registry.shut_down(Shutdown::Both);
            daemon.registry.wait_empty(deadline.saturating_duration_since(Instant::now()));
        }
        daemon.stop.raise();
        daemon.reaper.wake();
        daemon.registry.join_finished();
        for thread in self.threads {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                tracing::error!(thread = name, "a thread panicked");
            }
        }
        self.admin.stop();
    }
}

fn store_config(settings: &Settings, arena_bytes: u64) -> StoreConfig {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut config = StoreConfig::new(arena_bytes, settings.memory.budget_bytes);
    config.promise_window_ms = millis(settings.promise_window);
    config.view_grace_ms = millis(settings.view_grace);
    config.session_limits = SessionLimits {
        leases_max: settings.limits.leases_max,
        tickets_max: settings.limits.tickets_max,
        in_flight_bytes_max: settings.limits.in_flight_bytes_max,
    };
    config
}
