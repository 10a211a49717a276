//! Eight hosts with eight workers each, whose events fill an index: one long prompt that everybody has a part of, and
//! what else is in their memory.

use kvd_proto::events::event::{Namespace, Owner};
use kvd_proto::events::{
    BatchWriter, BlockHash, CacheTier, Chunk, Event, Parent, Place, Removed, Stored, Token,
};
use kvd_proto::pack::Array;
use router_core::fold::{EngineSource, EngineView, HostSource, HostView, Moment};
use router_core::hash;
use router_core::index::{Budget, Fleet, Index, TargetSpec};

use crate::content::Content;

/// Hosts.
pub const HOSTS: u32 = 8;
/// Workers on each.
pub const WORKERS: u32 = 8;
/// Tokens in a block.
pub const BLOCK_SIZE: u32 = 16;
/// Blocks of the prompt.
pub const PROMPT_BLOCKS: u32 = 2048;
/// Blocks of a chunk of the daemons.
pub const CHUNK_BLOCKS: u32 = 16;
const MODEL: &str = "m";

/// An index, and the views that fill it.
#[derive(Debug)]
pub struct World {
    /// The index.
    pub index: Index,
    /// The views of all workers, host after host.
    pub engines: Vec<EngineView>,
    hosts: Vec<HostView>,
    /// The names of the prompt's blocks.
    pub prompt: Vec<u64>,
}

/// Tokens of chain number `number`, from block `blocks.start` on.
#[must_use]
pub fn tokens(number: u64, blocks: core::ops::Range<u32>) -> Vec<Token> {
    let random = Content::of(&number.to_le_bytes());
    let range =
        blocks.start as usize * BLOCK_SIZE as usize..blocks.end as usize * BLOCK_SIZE as usize;
    range
        .map(|at| {
            let token = (random.word(at) % 150_000) as u32;
            Token(token)
        })
        .collect()
}

fn engine_hash(number: u64, block: u32) -> u64 {
    Content::of(&number.to_be_bytes()).word(block as usize)
}

/// A payload that says that blocks of a chain can be read.
#[must_use]
pub fn stored(number: u64, blocks: core::ops::Range<u32>) -> Vec<u8> {
    let hashes: Vec<_> =
        blocks.clone().map(|block| BlockHash::Bits(engine_hash(number, block))).collect();
    let parent = match blocks.start.checked_sub(1) {
        Some(parent) => Parent::Block(BlockHash::Bits(engine_hash(number, parent))),
        None => Parent::Root,
    };
    let tokens = tokens(number, blocks);
    payload(&Event::Stored(Stored {
        block_hashes: Array::Slice(&hashes),
        parent,
        tokens: Array::Slice(&tokens),
        block_size: BLOCK_SIZE,
        place: Place { medium: Some("GPU"), ..Place::default() },
        ..Stored::default()
    }))
}

/// A payload that says that blocks of a chain are gone.
#[must_use]
pub fn removed(number: u64, blocks: core::ops::Range<u32>) -> Vec<u8> {
    let hashes: Vec<_> = blocks.map(|block| BlockHash::Bits(engine_hash(number, block))).collect();
    payload(&Event::Removed(Removed {
        block_hashes: Array::Slice(&hashes),
        place: Place { medium: Some("GPU"), ..Place::default() },
        ..Removed::default()
    }))
}

fn payload(event: &Event<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut batch = BatchWriter::begin(&mut out, 0.0);
    batch.push(event);
    batch.finish();
    out
}

/// A view of a worker that counts nothing.
#[must_use]
pub fn engine(host: u32, worker: u32) -> EngineView {
    EngineView::new(EngineSource {
        worker: format!("h{host}:{worker}").into(),
        rank: 0,
        model: MODEL.into(),
        block_size: Some(BLOCK_SIZE),
        names_content: false,
        can_replay: false,
    })
}

impl World {
    /// Fills an index: of the prompt worker w has the first w-th part of 1/64 to all, the hosts have most of it in
    /// chunks in host memory and on disk; each worker has so many more blocks.
    #[must_use]
    pub fn new(other_blocks: u32) -> Self {
        let index = Index::new(Budget { bytes_max: 8 << 30 });
        let prompt: Vec<u32> = tokens(0, 0..PROMPT_BLOCKS).iter().map(|token| token.0).collect();
        let prompt = hash::chain(hash::ROOT, &prompt, BLOCK_SIZE);
        let (mut engines, mut hosts) = (Vec::new(), Vec::new());
        for host in 0..HOSTS {
            for worker in 0..WORKERS {
                let number = host * WORKERS + worker;
                let mut view = engine(host, worker);
                let share = PROMPT_BLOCKS * (number + 1) / (HOSTS * WORKERS);
                let payload = stored(0, 0..share);
                view.live(&index, None, &payload, Moment(0));
                for other in 0..other_blocks / 512 {
                    let chain = u64::from(number + 1) << 32 | u64::from(other);
                    view.live(&index, None, &stored(chain, 0..512), Moment(0));
                }
                engines.push(view);
            }
            hosts.push(daemon(&index, host, &prompt));
        }
        Self { index, engines, hosts, prompt }
    }

    /// The targets, resolved.
    #[must_use]
    pub fn fleet(&self) -> Fleet {
        let targets: Vec<_> = self
            .engines
            .iter()
            .zip(0..)
            .map(|(view, number): (_, u32)| TargetSpec {
                worker: view.source().worker.clone(),
                rank: 0,
                model: MODEL.into(),
                model_root: None,
                host: Some(format!("h{}", number / WORKERS).into()),
                pools: Vec::new(),
            })
            .collect();
        Fleet::new(&self.index.roster(), &targets)
    }

    /// Whether every view has what it was told.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.engines.iter().all(|view| view.counts().turned_away == 0 && !view.is_doubted())
            && self.hosts.iter().all(|view| view.counts().turned_away == 0)
    }
}

/// Host `host` has the first half of the prompt in memory, and three quarters on disk.
fn daemon(index: &Index, host: u32, prompt: &[u64]) -> HostView {
    let name = format!("h{host}");
    let mut view = HostView::new(HostSource {
        host: name.as_str().into(),
        can_replay: false,
        can_snapshot: false,
    });
    let mut out = Vec::new();
    let mut batch = BatchWriter::begin(&mut out, 0.0);
    let chunks = prompt.chunks(CHUNK_BLOCKS as usize).enumerate();
    for (number, hashes) in chunks {
        let tiers = [(CacheTier::L2, prompt.len() / 2), (CacheTier::L3, prompt.len() * 3 / 4)];
        for (tier, end) in tiers {
            if number * CHUNK_BLOCKS as usize >= end {
                continue;
            }
            batch.push(&Event::Stored(Stored {
                router_hashes: Array::Slice(hashes),
                chunk: Some(Chunk {
                    key: &number.to_le_bytes(),
                    blocks: CHUNK_BLOCKS,
                    bytes: 1 << 20,
                }),
                place: Place::of(tier),
                owner: Owner { id: Some(&name), epoch: Some(1) },
                namespace: Namespace { model: Some(MODEL), compat_key: Some("k"), engine: None },
                ..Stored::default()
            }));
        }
    }
    batch.finish();
    view.live(index, 0, &out, Moment(0));
    view
}
