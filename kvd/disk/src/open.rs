//! Which engine, with which of the kernel's favours, and why not the better one.

use std::io;
use std::sync::Arc;

use kvd_shm::mapping::Mapping;

use crate::blocking::BlockingDisk;
use crate::disk::Disk;
use crate::uring::UringDisk;

/// Which engine is wanted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Engine {
    /// The ring if the kernel lets us, else the pool.
    #[default]
    Auto,
    /// The ring, or an error.
    Uring,
    /// The pool of threads.
    Blocking,
}

/// What a disk is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which engine.
    pub engine: Engine,
    /// Operations in flight, at most; more than zero.
    pub depth: usize,
    /// The memory that most operations use; registered with the ring as it is touched
    /// ([`Disk::arena_touched`]).
    pub arena: Option<Arc<Mapping>>,
    /// What threads of the pool are called, before a dash and a number. At most 12 bytes show up in
    /// tools.
    pub name: String,
}

/// What the engine got from the kernel, for the log.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Features {
    /// Names of what is in force, such as `single_issuer` or `fixed_files`.
    pub in_force: Vec<&'static str>,
    /// What was refused, with the kernel's reason.
    pub refused: Vec<String>,
}

/// An open disk.
#[derive(Debug)]
pub struct Opened {
    /// The disk.
    pub disk: Box<dyn Disk>,
    /// What it got.
    pub features: Features,
    /// Why it is not the ring although that would have been taken; to be logged once.
    pub fallback: Option<String>,
}

/// Why there is no disk.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The ring was demanded and refused.
    #[error("io_uring is refused: {reason}")]
    NoRing {
        /// Which step, and what the kernel said.
        reason: String,
    },
    /// No threads or descriptors.
    #[error("starting a pool of {threads} threads for disk operations")]
    NoPool {
        /// How many threads were wanted.
        threads: usize,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// Opens a disk without files. May be called on any thread; the thread that first submits or waits
/// owns it.
///
/// # Errors
/// If no engine that the configuration allows can be had.
///
/// # Panics
/// If the depth is zero.
pub fn open(config: Config) -> Result<Opened, OpenError> {
    let Config { engine, depth, arena, name } = config;
    let mut features = Features::default();
    let fallback = match engine {
        Engine::Blocking => None,
        Engine::Auto | Engine::Uring => match UringDisk::new(depth, arena, &mut features) {
            Ok(disk) => return Ok(Opened { disk: Box::new(disk), features, fallback: None }),
            Err(refused) => Some(refused.to_string()),
        },
    };
    match fallback {
        Some(reason) if engine == Engine::Uring => Err(OpenError::NoRing { reason }),
        fallback => {
            let disk = BlockingDisk::new(&name, depth)
                .map_err(|source| OpenError::NoPool { threads: depth, source })?;
            Ok(Opened { disk: Box::new(disk), features: Features::default(), fallback })
        }
    }
}
