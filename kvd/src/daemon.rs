//! The daemon as one value: what all its threads share. It knows none of them; `life.rs` starts
//! and ends them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kvd_shm::arena::{Arena, ArenaError};
use kvd_store::{DiskConfig, SessionLimits, StoreConfig};

use crate::brain::Brain;
use crate::config::{Durability, Settings, Source};
use crate::devices::Devices;
use crate::devices::identity::random_id;
use crate::drain::Drain;
use crate::events::Events;
use crate::lost::Lost;
use crate::meters::Meters;
use crate::reaper::Reaper;
use crate::registry::Registry;
use crate::sparing::Sparing;
use crate::staging::Staging;
use crate::status::Status;
use crate::stop::Stop;
use crate::succession::Succession;
use crate::succession::estate::{Estate, Misfit, Origin};
use crate::succession::handover::parking::Parking;
use crate::succession::holders::Overhang;
use crate::succession::notify::Manager;
use crate::succession::watchdog::Pulse;
use crate::warm_up::WarmUp;

/// Why the shared parts could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The arena does not fit.
    #[error(
        "an arena of {} MiB ({chosen_by}) does not fit into the {} MiB of memory that this host or \
         control group has available: give a smaller size, or end what holds memory",
        arena_bytes.div_ceil(1 << 20),
        available_bytes >> 20
    )]
    Memory {
        /// What the settings ask for.
        arena_bytes: u64,
        /// What there is.
        available_bytes: u64,
        /// Where the size was set.
        chosen_by: Source,
    },
    /// The arena could not be made.
    #[error("creating the arena: {0}")]
    Arena(#[from] ArenaError),
    /// What is handed over does not fit.
    #[error("what the running daemon hands over does not fit: {0}")]
    Misfit(#[from] Misfit),
    /// The system gives no random bytes.
    #[error("reading random bytes: {0}")]
    Random(#[source] io::Error),
    /// Processes can't be watched.
    #[error("watching processes: {0}")]
    Reaper(#[source] io::Error),
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
    /// Closed sessions that still hold something.
    pub lost: Lost,
    /// Watched processes.
    pub reaper: Arc<Reaper>,
    /// Progress of the first touch.
    pub warm_up: Arc<WarmUp>,
    /// Which closed and refused connections are written to the log.
    pub closings: Sparing,
    /// The disk tier.
    pub devices: Devices,
    /// Names the devices that are made in this daemon's life.
    pub set_id: [u8; 16],
    /// What a planned restart asks of it.
    pub drain: Drain,
    /// Memory for bodies outside the arena.
    pub staging: Staging,
    /// Where the memory came from.
    pub origin: Origin,
    /// What the kernel may still write into it.
    pub overhang: Overhang,
    /// Who looks after this process.
    pub manager: Manager,
    /// Where sessions stand still while a successor takes over.
    pub parking: Parking,
    /// The accept thread goes round.
    pub accept_pulse: Pulse,
    /// What others are told of its tiers.
    pub events: Events,
    /// Where snapshots are to be had by TCP, once they are.
    pub snapshot_at: OnceLock<SocketAddr>,
    /// What health checks show.
    pub status: Status,
    /// The daemon's own counters.
    pub meters: Meters,
    /// Raised at shutdown.
    pub stop: Arc<Stop>,
}

impl Daemon {
    /// Takes over or creates the arena, and creates everything around it. Nothing runs yet.
    ///
    /// # Errors
    /// [`PrepareError`]; nothing is left behind then.
    pub fn prepare(settings: Settings, succession: Succession) -> Result<Self, PrepareError> {
        let handover = succession.heritage.handover.as_ref();
        let status = handover.map_or_else(Status::new, |life| Status::of_epoch(life.epoch));
        let reaper = Reaper::new().map_err(PrepareError::Reaper)?;
        let config = |arena: &Arena| store_config(&settings, arena.bytes());
        let (estate, manager) =
            Estate::open(&settings, config, succession, status.epoch, reaper.watched())?;
        let Estate { arena, brain, origin } = estate;
        Ok(Self {
            brain: Arc::new(brain),
            registry: Registry::default(),
            lost: Lost::default(),
            reaper: Arc::new(reaper),
            warm_up: Arc::new(WarmUp::resumed(arena.bytes(), origin.adopted.ready_bytes)),
            closings: Sparing::default(),
            devices: Devices::new(&settings.disk.paths),
            set_id: random_id().map_err(PrepareError::Random)?,
            drain: Drain::default(),
            staging: Staging::new(settings.limits.staging_bytes_max),
            origin,
            overhang: Overhang::default(),
            manager,
            parking: Parking::default(),
            accept_pulse: Pulse::default(),
            events: Events::new(),
            snapshot_at: OnceLock::new(),
            status,
            meters: Meters::default(),
            stop: Arc::new(Stop::default()),
            arena,
            settings,
        })
    }
}

fn store_config(settings: &Settings, arena_bytes: u64) -> StoreConfig {
    let mut config = StoreConfig::new(arena_bytes, settings.memory.budget_bytes);
    config.promise_window_ms = millis(settings.promise_window);
    config.view_grace_ms = millis(settings.view_grace);
    // Keys come from clients: a seed that they can't guess keeps them from choosing collisions.
    config.hash_seed = RandomState::new().build_hasher().finish();
    config.session_limits = SessionLimits {
        leases_max: settings.limits.leases_max,
        tickets_max: settings.limits.tickets_max,
        in_flight_bytes_max: settings.limits.in_flight_bytes_max,
    };
    config.disk = disk_config(settings, arena_bytes);
    config.events = settings.events.is_some();
    config
}

fn disk_config(settings: &Settings, arena_bytes: u64) -> DiskConfig {
    let disk = &settings.disk;
    // The settings allow no more than a store can have.
    let devices = u8::try_from(disk.paths.len()).unwrap_or(u8::MAX);
    let mut config = DiskConfig::new(devices, arena_bytes);
    config.durability = match disk.durability {
        Durability::Relaxed => kvd_store::Durability::Relaxed,
        Durability::Group(interval) => {
            config.group_interval_ms = millis(interval);
            kvd_store::Durability::Group
        }
        Durability::Strict => kvd_store::Durability::Strict,
    };
    config.write_budget_bytes_per_s = disk.write_budget_bytes;
    config.second_touch = disk.second_touch;
    config
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
