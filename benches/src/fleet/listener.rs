//! The router's ear: messages as bytes, folded into the real index.

use kvd_proto::events::event::{Namespace, Owner};
use kvd_proto::events::{
    BatchWriter, BlockHash, CacheTier, Chunk, Event, Parent, Place, Removed, Stored,
};
use kvd_proto::pack::Array;
use router_core::fold::{EngineSource, EngineView, HostSource, HostView, Moment};
use router_core::index::{Answer, Budget, Chains, Fleet, Index, Query, TargetSpec};

use super::feed::{HostSays, Message, WorkerSays};
use super::host::BLOCK_BYTES;

const MODEL: &str = "m";

/// The index, and all views.
#[derive(Debug)]
pub struct Listener {
    index: Index,
    workers: Vec<EngineView>,
    hosts: Vec<(HostView, u64)>,
    specs: Vec<TargetSpec>,
    fleet: Fleet,
    query: Query,
    payload: Vec<u8>,
}

impl Listener {
    /// One that listens to so many hosts with so many workers each.
    #[must_use]
    pub fn new(hosts: usize, workers_per_host: usize) -> Self {
        let worker = |number: usize| EngineSource {
            worker: format!("w{number}").into(),
            rank: 0,
            model: MODEL.into(),
            block_size: Some(1),
            names_content: false,
            can_replay: false,
        };
        let host = |number: usize| HostSource {
            host: format!("h{number}").into(),
            can_replay: false,
            can_snapshot: false,
        };
        let workers = 0..hosts * workers_per_host;
        let spec = |number: usize| TargetSpec {
            worker: format!("w{number}").into(),
            rank: 0,
            model: MODEL.into(),
            model_root: None,
            host: Some(format!("h{}", number / workers_per_host).into()),
            pools: Vec::new(),
        };
        Self {
            index: Index::new(Budget { bytes_max: 16 << 30 }),
            workers: workers.clone().map(|number| EngineView::new(worker(number))).collect(),
            hosts: (0..hosts).map(|number| (HostView::new(host(number)), 0)).collect(),
            specs: workers.map(spec).collect(),
            fleet: Fleet::default(),
            query: Query::new(),
            payload: Vec::new(),
        }
    }

    /// Hears a message.
    pub fn hear(&mut self, message: &Message, now: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
        let now = Moment((now * 1e3) as u64);
        self.payload.clear();
        match message {
            Message::Worker(worker, says) => {
                worker_payload(says, &mut self.payload);
                self.workers[*worker].live(&self.index, None, &self.payload, now);
            }
            Message::Host(host, said) => {
                host_payload(*host, said, &mut self.payload);
                let (view, seq) = &mut self.hosts[*host];
                view.live(&self.index, *seq, &self.payload, now);
                *seq += 1;
            }
        }
    }

    /// Who has what of these blocks, as far as was heard.
    pub fn ask(&mut self, names: &[u64]) -> &Answer {
        let roster = self.index.roster();
        if roster.generation != self.fleet.generation || self.fleet.is_empty() {
            self.fleet = Fleet::new(&roster, &self.specs);
        }
        let chains = Chains { router: names, ..Chains::default() };
        self.query.ask(&self.index, &self.fleet, &chains)
    }

    /// Whether everything that was heard could be used.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let hosts = self.hosts.iter().map(|(view, _)| view.counts());
        let mut counts = self.workers.iter().map(EngineView::counts).chain(hosts);
        counts.all(|counts| counts.turned_away + counts.malformed + counts.orphaned == 0)
    }
}

fn worker_payload(says: &WorkerSays, out: &mut Vec<u8>) {
    let mut batch = BatchWriter::begin(out, 0.0);
    let place = Place { medium: Some("GPU"), ..Place::default() };
    match says {
        WorkerSays::Stored { chain, from, to } => {
            let hashes: Vec<_> =
                chain.names[*from..*to].iter().map(|name| BlockHash::Bits(*name)).collect();
            let before = from.checked_sub(1).and_then(|at| chain.names.get(at));
            batch.push(&Event::Stored(Stored {
                block_hashes: Array::Slice(&hashes),
                parent: before.map_or(Parent::Root, |name| Parent::Block(BlockHash::Bits(*name))),
                tokens: Array::Slice(&chain.tokens[*from..*to]),
                block_size: 1,
                place,
                ..Stored::default()
            }));
        }
        WorkerSays::Removed(names) => {
            let hashes: Vec<_> = names.iter().map(|name| BlockHash::Bits(*name)).collect();
            batch.push(&Event::Removed(Removed {
                block_hashes: Array::Slice(&hashes),
                place,
                ..Removed::default()
            }));
        }
    }
    batch.finish();
}

fn host_payload(host: usize, said: &[HostSays], out: &mut Vec<u8>) {
    let name = format!("h{host}");
    let owner = Owner { id: Some(&name), epoch: Some(1) };
    let namespace = Namespace { model: Some(MODEL), compat_key: Some("k"), engine: None };
    let mut batch = BatchWriter::begin(out, 0.0);
    for HostSays { block, is_in_memory, is_stored } in said {
        let place = Place::of(if *is_in_memory { CacheTier::L2 } else { CacheTier::L3 });
        let key = block.to_le_bytes();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "134 MB")]
        let chunk = Some(Chunk { key: &key, blocks: 1, bytes: BLOCK_BYTES as u64 });
        let names = [*block];
        let router_hashes = Array::Slice(&names);
        batch.push(&if *is_stored {
            Event::Stored(Stored {
                router_hashes,
                chunk,
                place,
                owner,
                namespace,
                ..Stored::default()
            })
        } else {
            Event::Removed(Removed { chunk, place, owner, namespace, ..Removed::default() })
        });
    }
    batch.finish();
}
