//! Where a life begins: with what the life before left, if that can be trusted, or with an arena of its own.
//!
//! The ledger says which arena it is about, by the file's identity: what clients can write decides nothing. If anything
//! does not fit, nothing is taken over, and the service manager forgets it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kvd_proto::ids::SessionId;
use kvd_shm::arena::{AdoptError, Arena, ArenaConfig};
use kvd_shm::exit_watch::ExitWatch;
use kvd_shm::ledger_file::{LedgerFile, LedgerFileError};
use kvd_shm::memory_limit;
use kvd_shm::peer::pid_namespace;
use kvd_store::{
    Adopted, DroppedRows, LEDGER_HEADER_BYTES, LedgerFault, LedgerHeader, LedgerLayout, StoreConfig,
};

use super::Succession;
use super::front::{FRONT_BYTES, Front};
use super::heritage::{ARENA, Continuity, Heritage, LEDGER};
use super::notify::Manager;
use crate::brain::Brain;
use crate::config::Settings;
use crate::daemon::PrepareError;

/// The memory of this life, and the decisions about it.
#[derive(Debug)]
pub struct Estate {
    /// The memory.
    pub arena: Arc<Arena>,
    /// The decisions.
    pub brain: Brain,
    /// Where it came from.
    pub origin: Origin,
}

/// Where a life's memory came from.
#[derive(Debug, Default)]
pub struct Origin {
    /// Lives that have served this arena, this one included; 1 if nothing is kept for a successor.
    pub generation: u64,
    /// What was taken over. All zero if nothing was.
    pub adopted: Adopted,
    /// Whether something was left that could not be taken over.
    pub refused: bool,
    /// How long it took.
    pub took: Duration,
    /// Whether processes that the ledger names are numbered as this process sees them.
    pub knows_processes: bool,
    /// Descriptors of processes that were handed over and that nobody watches yet.
    pub processes: Mutex<BTreeMap<SessionId, OwnedFd>>,
}

/// Why what was left is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum Misfit {
    /// The configuration says so.
    #[error("--warm-restart=false")]
    NotWanted,
    /// Nobody can tell which belong together.
    #[error("{arenas} arenas and {ledgers} ledgers are there instead of one each")]
    NotOneEach {
        /// Arenas that are there.
        arenas: usize,
        /// Ledgers that are there.
        ledgers: usize,
    },
    /// The arena is none, or not the one that is configured.
    #[error("the arena: {0}")]
    Arena(#[from] AdoptError),
    /// The ledger's file is none.
    #[error("the ledger: {0}")]
    File(#[from] LedgerFileError),
    /// What stands in the ledger cannot be believed.
    #[error("{0}")]
    Ledger(#[from] LedgerFault),
    /// They do not belong together.
    #[error("the ledger is about another arena")]
    OtherArena,
    /// Something in it ends whoever takes it over.
    #[error("several starts ended while they took it over")]
    TooManyAttempts,
}

impl Estate {
    /// Takes over what was left, or makes a new arena; tells the service manager what to keep.
    ///
    /// What a daemon that still runs hands over is looked at only: the brain stands still until it comes into force.
    ///
    /// # Errors
    /// As [`PrepareError`], if there is no room for a new arena, or what is handed over does not fit.
    pub fn open(
        settings: &Settings,
        config: impl Fn(&Arena) -> StoreConfig,
        succession: Succession,
        epoch: u64,
        watch: &Arc<ExitWatch>,
    ) -> Result<(Self, Manager), PrepareError> {
        let Succession { manager, heritage, .. } = succession;
        if heritage.handover.is_some() {
            let estate = inherit(settings, &config, heritage, watch)?;
            return Ok((estate, manager));
        }
        let was_left = !heritage.is_empty();
        if was_left {
            manager.status("taking over what the life before left in memory");
            match inherit(settings, &config, heritage, watch) {
                Ok(estate) => {
                    estate.brain.come_into_force();
                    if let Some(front) = estate.brain.ledger().and_then(Front::of) {
                        front.done();
                    }
                    return Ok((estate, manager));
                }
                Err(reason) => {
                    tracing::warn!(%reason, "blocks in memory that the life before left are not taken over");
                    manager.forget(ARENA);
                    manager.forget(LEDGER);
                    // Its memory is free only once the manager has let go of it.
                    manager.barrier();
                }
            }
        }
        let mut estate = found(settings, &config, &manager, epoch, watch)?;
        estate.origin.refused = was_left;
        Ok((estate, manager))
    }
}

impl Origin {
    /// Why rows that were left are not back, in the order of [`Origin::dropped_rows`].
    pub const DROP_REASONS: [&str; 4] = ["torn", "conflicting", "expired", "without_room"];

    /// How many rows are not back, by reason.
    #[must_use]
    pub fn dropped_rows(&self) -> [u64; 4] {
        let DroppedRows { torn, conflicting, expired, without_room } = self.adopted.dropped;
        [torn, conflicting, expired, without_room]
    }

    /// Notes that this life serves, and says what it began with.
    pub fn serves(&self, brain: &Brain) {
        if let Some(front) = brain.ledger().and_then(Front::of) {
            // While sessions are left that were numbered elsewhere, no number means anything to those who come
            // after. 0 is no namespace's number: no process is known by it.
            let all_are_ours = self.knows_processes || self.adopted.sessions.is_empty();
            let here = pid_namespace().ok().filter(|_| all_are_ours);
            front.serves(here.unwrap_or(0));
        }
        if self.generation > 1 {
            let Adopted { rows, bytes, rights, dropped, .. } = &self.adopted;
            tracing::info!(
                generation = self.generation,
                rows,
                bytes,
                rights,
                sessions = self.adopted.sessions.len(),
                torn = dropped.torn,
                conflicting = dropped.conflicting,
                expired = dropped.expired,
                without_room = dropped.without_room,
                took_ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
                "took over what the life before left in memory"
            );
        }
    }
}

fn arena_config(settings: &Settings) -> ArenaConfig {
    let memory = &settings.memory;
    let (bytes, hugetlb) = (memory.arena_bytes, memory.hugetlb);
    ArenaConfig { bytes, hugetlb, numa: memory.numa, pin: memory.pin }
}

fn inherit(
    settings: &Settings,
    config: impl Fn(&Arena) -> StoreConfig,
    heritage: Heritage,
    watch: &Arc<ExitWatch>,
) -> Result<Estate, Misfit> {
    let began = Instant::now();
    if !settings.warm_restart {
        return Err(Misfit::NotWanted);
    }
    let (arena, ledger, handover) = one_each(heritage)?;
    let arena = Arena::adopt(arena, arena_config(settings))?;
    let ledger = LedgerFile::adopt(ledger)?;
    let mut page = vec![0; LEDGER_HEADER_BYTES];
    let too_short = LedgerFault::TooShort { bytes: ledger.bytes() };
    if ledger.bytes() < page.len() as u64 + FRONT_BYTES {
        return Err(too_short.into());
    }
    ledger.read(0, &mut page);
    if arena.id().ok() != Some(LedgerHeader::decode(&page)?.arena_id) {
        return Err(Misfit::OtherArena);
    }
    let front = Front::of(&ledger).ok_or(too_short)?;
    // A life that still runs goes on if this one ends.
    if handover.is_none() && !front.begin() {
        return Err(Misfit::TooManyAttempts);
    }
    let generation = front.generation() + 1;
    let knows_processes = pid_namespace().is_ok_and(|here| here == front.pid_namespace());
    let Continuity { connected, processes, .. } = handover.unwrap_or_default();
    let (brain, adopted) = Brain::adopt(
        config(&arena),
        Arc::clone(arena.mapping()),
        Arc::clone(watch),
        ledger,
        &connected,
    )?;
    let origin = Origin {
        generation,
        adopted,
        refused: false,
        took: began.elapsed(),
        knows_processes,
        processes: Mutex::new(processes),
    };
    Ok(Estate { arena: Arc::new(arena), brain, origin })
}

fn one_each(heritage: Heritage) -> Result<(OwnedFd, OwnedFd, Option<Continuity>), Misfit> {
    let Heritage { mut arenas, mut ledgers, handover, .. } = heritage;
    match (arenas.pop(), ledgers.pop()) {
        (Some(arena), Some(ledger)) if arenas.is_empty() && ledgers.is_empty() => {
            Ok((arena, ledger, handover))
        }
        (arena, ledger) => {
            let arenas = arenas.len() + usize::from(arena.is_some());
            let ledgers = ledgers.len() + usize::from(ledger.is_some());
            Err(Misfit::NotOneEach { arenas, ledgers })
        }
    }
}

fn found(
    settings: &Settings,
    config: impl Fn(&Arena) -> StoreConfig,
    manager: &Manager,
    epoch: u64,
    watch: &Arc<ExitWatch>,
) -> Result<Estate, PrepareError> {
    let memory = &settings.memory;
    let available_bytes = memory_limit::available();
    if memory.arena_bytes > available_bytes {
        return Err(PrepareError::Memory {
            arena_bytes: memory.arena_bytes,
            available_bytes,
            chosen_by: memory.size_source.clone(),
        });
    }
    let arena = Arc::new(Arena::create(arena_config(settings))?);
    let mut config = config(&arena);
    let ledger = if settings.warm_restart && may_be_succeeded(settings, manager) {
        let layout = LedgerLayout::for_arena(arena.bytes(), settings.limits.sessions_max);
        match new_ledger(&arena, layout, epoch) {
            Ok(ledger) => {
                config.ledger = Some(layout);
                keep(manager, &arena, &ledger);
                Some(ledger)
            }
            Err(error) => {
                tracing::warn!(%error, "no ledger: blocks in memory will not survive a restart");
                None
            }
        }
    } else {
        None
    };
    let brain = Brain::new(config, Arc::clone(arena.mapping()), Arc::clone(watch), ledger);
    Ok(Estate { arena, brain, origin: Origin { generation: 1, ..Origin::default() } })
}

/// Whether anybody could come who reads a ledger.
fn may_be_succeeded(settings: &Settings, manager: &Manager) -> bool {
    manager.is_there() || settings.takeover_socket.is_some()
}

/// Gives the service manager what the next life needs if this one ends before it can hand over.
pub fn keep(manager: &Manager, arena: &Arena, ledger: &LedgerFile) {
    if manager.keeps_descriptors() {
        manager.keep(ARENA, arena.descriptor());
        manager.keep(LEDGER, ledger.descriptor());
    }
}

fn new_ledger(
    arena: &Arena,
    layout: LedgerLayout,
    epoch: u64,
) -> Result<LedgerFile, LedgerFileError> {
    let ledger = LedgerFile::create(layout.bytes() + FRONT_BYTES)?;
    let arena_id = arena
        .id()
        .map_err(|source| LedgerFileError::Kernel { step: "identifying the arena", source })?;
    let header = LedgerHeader { arena_id, arena_bytes: arena.bytes(), epoch, layout };
    let page = header.encode();
    let (words, _rest) = page.as_chunks::<8>();
    for (offset, word) in (0..).step_by(8).zip(words) {
        ledger.store(offset, u64::from_le_bytes(*word));
    }
    Ok(ledger)
}
