//! What the kernel, a container or a filter of system calls may refuse, tried in small.

use std::os::unix::net::UnixStream;

use kvd_disk::{Config, Engine};
use kvd_shm::arena::{Arena, ArenaConfig, PageKind};
use kvd_shm::note::Note;
use kvd_shm::peer;

use crate::config::Settings;

/// Two huge pages: enough to see which pages come.
const ARENA_BYTES: u64 = 4 << 20;

/// How each went; a refusal is the kernel's reason.
#[derive(Debug)]
pub(super) struct Trials {
    /// A small arena with the same options.
    pub(super) arena: Result<Small, String>,
    /// A descriptor of a process.
    pub(super) pidfd: Result<(), String>,
    /// A descriptor of the process at the other end of a socket.
    pub(super) peer_pidfd: Result<(), String>,
    /// The kernel's ring.
    pub(super) ring: Result<(), String>,
}

/// What a small arena got.
#[derive(Debug)]
pub(super) struct Small {
    pub(super) pages: PageKind,
    pub(super) notes: Vec<Note>,
}

impl Trials {
    pub(super) fn make(settings: &Settings) -> Self {
        Self {
            arena: small_arena(settings),
            pidfd: peer::own_pidfd().map(drop).map_err(|error| error.to_string()),
            peer_pidfd: peer_pidfd(),
            ring: ring(),
        }
    }
}

fn small_arena(settings: &Settings) -> Result<Small, String> {
    let memory = &settings.memory;
    let config = ArenaConfig {
        bytes: ARENA_BYTES,
        hugetlb: memory.hugetlb,
        numa: memory.numa,
        pin: memory.pin,
    };
    let arena = Arena::create(config).map_err(|error| in_full(&error))?;
    arena.touch(0..arena.bytes()).map_err(|error| in_full(&error))?;
    Ok(Small { pages: arena.page_kind(), notes: arena.take_notes() })
}

fn peer_pidfd() -> Result<(), String> {
    let (here, _there) = UnixStream::pair().map_err(|error| error.to_string())?;
    peer::pidfd(&here).map(drop).map_err(|error| in_full(&error))
}

fn ring() -> Result<(), String> {
    let config =
        Config { engine: Engine::Uring, depth: 1, arena: None, name: "kvd-doctor".to_owned() };
    kvd_disk::open(config).map(drop).map_err(|error| in_full(&error))
}

/// An error with what it came from.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
