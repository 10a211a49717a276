//! What engines and daemons publish, on its way into the index.
//!
//! A *feed* is one publisher: a rank of a worker, or a daemon. [`follow`] keeps one for each that there is, [`thread`]
//! reads them: a few threads share all of them, each feed belongs to one, and with it its view. What was missed is asked
//! for as the view says: again from the publisher ([`socket`]), or everything by HTTP ([`snapshot`]). A view also knows
//! by which keys its daemon reads a prompt's blocks ahead ([`ahead`]).

mod access;
mod ahead;
mod follow;
mod snapshot;
mod socket;
mod thread;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use kvd_proto::events::CacheTier;
use router_core::fold::{EngineSource, HostSource, Need};
use router_core::index::{Budget, Index, Kind, Owner};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

pub use self::access::Access;
pub use self::ahead::{Names, Reading, Wanted};
pub use self::follow::{Following, run};
use self::socket::Place;
use crate::hints::Hints;
use crate::hosts::Links;
use crate::meters::{Meters, Prefetch};

/// Threads that read feeds, if there are processors for them.
const THREADS_MAX: usize = 4;
/// Messages to a thread that wait; pieces of snapshots among them.
const COMMANDS_MAX: usize = 256;
/// How long it is waited for what a thread knows of a daemon.
const PATIENCE: Duration = Duration::from_secs(1);

/// Names a feed, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct FeedId(u64);

/// What others see of a feed.
#[derive(Debug)]
pub struct Status {
    id: FeedId,
    thread: usize,
    is_connected: AtomicBool,
    is_doubted: AtomicBool,
    /// Tokens in a block; 0 until it is known.
    block_size: AtomicU32,
}

impl Status {
    /// Whether the subscription stands.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Whether something may have been missed.
    #[must_use]
    pub fn is_doubted(&self) -> bool {
        self.is_doubted.load(Ordering::Relaxed)
    }

    /// Tokens in a block, once that is known.
    #[must_use]
    pub fn block_size(&self) -> Option<u32> {
        Some(self.block_size.load(Ordering::Relaxed)).filter(|size| *size > 0)
    }
}

/// The feeds there are.
#[derive(Debug, Default)]
pub struct Listening {
    /// By worker and rank.
    pub engines: BTreeMap<(String, u32), Arc<Status>>,
    /// By host.
    pub hosts: BTreeMap<String, Arc<Status>>,
}

/// What is asked of a thread.
#[derive(Debug)]
enum Command {
    Open(Arc<Status>, Opening),
    Close(FeedId),
    Observe(FeedId, Observation),
    Snapshot(FeedId, snapshot::Attempt, snapshot::Piece),
    /// Without anybody who waits for an answer, what was asked for already is left out.
    Read(FeedId, Reading, Option<oneshot::Sender<Option<usize>>>),
}

/// A publisher to listen to.
#[derive(Debug)]
struct Opening {
    publisher: Publisher,
    events: Place,
    replay: Option<Place>,
}

#[derive(Debug)]
enum Publisher {
    Engine(EngineSource),
    Host { source: HostSource, snapshot_url: Option<String>, links: Arc<Links> },
}

/// What an answer told of an engine's cache.
#[derive(Debug)]
pub struct Observation {
    /// Names of the prompt's blocks.
    pub chain: Arc<[u64]>,
    /// Blocks that it was to have.
    pub predicted: u32,
    /// Blocks that it had.
    pub observed: u32,
}

/// All feeds, and the index that they fill.
#[derive(Debug)]
pub struct Feeds {
    /// The index.
    pub index: Arc<Index>,
    commands: Vec<mpsc::Sender<Command>>,
    listening: ArcSwap<Listening>,
    /// Grows when a choice by cache has to look anew who is who.
    changes: Arc<AtomicU64>,
    next_id: AtomicU64,
    is_over: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    meters: Arc<Meters>,
}

impl Feeds {
    /// Starts the threads. They end when [`Feeds::stop`] is called.
    ///
    /// # Errors
    /// A thread can't start.
    pub fn start(
        index_bytes_max: u64,
        access: &Access,
        (hints, meters): (&Hints, &Arc<Meters>),
    ) -> io::Result<Self> {
        let index = Arc::new(Index::new(Budget { bytes_max: index_bytes_max }));
        let changes = Arc::new(AtomicU64::new(0));
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = tokio::runtime::Handle::current();
        let is_over = Arc::new(AtomicBool::new(false));
        let (mut commands, mut threads) = (Vec::new(), Vec::new());
        for number in 0..count.div_ceil(2).min(THREADS_MAX) {
            let (sender, receiver) = mpsc::channel(COMMANDS_MAX);
            let reader = thread::Reader::new(
                Arc::clone(&index),
                Arc::clone(&changes),
                (hints.clone(), Arc::clone(meters)),
                (sender.downgrade(), receiver),
                Arc::clone(&is_over),
                (runtime.clone(), access.clone()),
            );
            let builder = std::thread::Builder::new().name(format!("router-feed-{number}"));
            threads.push(builder.spawn(move || reader.run())?);
            commands.push(sender);
        }
        Ok(Self {
            index,
            commands,
            listening: ArcSwap::default(),
            changes,
            next_id: AtomicU64::new(0),
            is_over,
            threads: Mutex::new(threads),
            meters: Arc::clone(meters),
        })
    }

    /// The feeds there are.
    #[must_use]
    pub fn listening(&self) -> Arc<Listening> {
        self.listening.load_full()
    }

    /// Grows when a block size became known.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Blocks of a tier, over all holders.
    #[must_use]
    pub fn entries(&self, tier: CacheTier) -> u64 {
        self.index.entries(tier)
    }

    /// Blocks on the device of each rank of each worker.
    #[must_use]
    pub fn device_blocks(&self) -> BTreeMap<(Arc<str>, u32), u64> {
        let roster = self.index.roster();
        let devices = roster.holders.iter().filter_map(|(id, holder)| match &holder.owner {
            Owner::Rank { worker, rank }
                if (holder.tier, holder.kind) == (CacheTier::Device, Kind::Router) =>
            {
                Some(((Arc::clone(worker), *rank), self.index.blocks_of(*id)))
            }
            Owner::Rank { .. } | Owner::Host { .. } | Owner::Pool { .. } => None,
        });
        devices.collect()
    }

    /// Blocks in each tier of a rank of a worker, as its own events tell.
    pub fn blocks_of(&self, worker: &str, rank: u32) -> impl Iterator<Item = (CacheTier, u64)> {
        let roster = self.index.roster();
        let own: Vec<_> = roster
            .holders
            .iter()
            .filter_map(|(id, holder)| match &holder.owner {
                Owner::Rank { worker: owner, rank: of } if (&**owner, *of) == (worker, rank) => {
                    (holder.kind == Kind::Router).then(|| (holder.tier, self.index.blocks_of(*id)))
                }
                Owner::Rank { .. } | Owner::Host { .. } | Owner::Pool { .. } => None,
            })
            .collect();
        own.into_iter()
    }

    /// Whether all subscriptions stand.
    #[must_use]
    pub fn are_connected(&self) -> bool {
        let listening = self.listening();
        let mut all = listening.engines.values().chain(listening.hosts.values());
        all.all(|feed| feed.is_connected())
    }

    /// An engine's answer told what it had. If its thread has no time for it, that is lost.
    pub fn observe(&self, feed: &Status, observation: Observation) {
        if let Some(thread) = self.commands.get(feed.thread) {
            drop(thread.try_send(Command::Observe(feed.id, observation)));
        }
    }

    /// Has a daemon asked to read ahead what it was not asked for before. If its thread has no time, it is not.
    pub fn read_ahead(&self, feed: &Status, reading: Reading) {
        let command = Command::Read(feed.id, reading, None);
        let is_sent = |thread: &mpsc::Sender<Command>| thread.try_send(command).is_ok();
        if !self.commands.get(feed.thread).is_some_and(is_sent) {
            self.meters.prefetches.count(Prefetch::Dropped);
        }
    }

    /// Has a daemon asked to read ahead; of how many keys. Nothing if it is not known what the daemon has, or not in time.
    pub async fn read_ahead_and_tell(&self, feed: &Status, reading: Reading) -> Option<usize> {
        let thread = self.commands.get(feed.thread)?;
        let (reply, answer) = oneshot::channel();
        let asked = async {
            thread.send(Command::Read(feed.id, reading, Some(reply))).await.ok()?;
            answer.await.ok()?
        };
        timeout(PATIENCE, asked).await.ok()?
    }

    async fn open(&self, opening: Opening) -> Arc<Status> {
        let id = FeedId(self.next_id.fetch_add(1, Ordering::Relaxed));
        #[expect(clippy::cast_possible_truncation, reason = "any spread will do")]
        let thread = id.0 as usize % self.commands.len();
        let block_size = match &opening.publisher {
            Publisher::Engine(source) => source.block_size.unwrap_or(0),
            Publisher::Host { .. } => 0,
        };
        let status = Arc::new(Status {
            id,
            thread,
            is_connected: AtomicBool::new(false),
            is_doubted: AtomicBool::new(false),
            block_size: AtomicU32::new(block_size),
        });
        self.tell(thread, Command::Open(Arc::clone(&status), opening)).await;
        status
    }

    async fn close(&self, status: &Status) {
        self.tell(status.thread, Command::Close(status.id)).await;
    }

    async fn tell(&self, thread: usize, command: Command) {
        if self.commands[thread].send(command).await.is_err() {
            tracing::error!("a thread that reads events is gone");
        }
    }

    /// Ends the threads and waits for them; at most some tenths of a second.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that reads events panicked");
            }
        }
    }
}

/// Whoever does the I/O is told what is needed.
type Needed = Option<Need>;

/// A piece of a snapshot, or its end.
type Chunked = Result<Option<Bytes>, String>;
