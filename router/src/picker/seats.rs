//! The targets of a model in the words of the index, made anew when workers, hosts, feeds or holders change.

use std::collections::HashMap;
use std::sync::Arc;

use router_core::index::{self, Kind, TargetSpec};
use router_core::record::WorkerRecord;
use router_tokens::{Engine, Tokens};

use super::tokens::manner_of;
use crate::feed::{Feeds, Listening, Status};
use crate::fleet::{Fleet, Life, Target};
use crate::hosts::{Host, Hosts};

/// What seats are made of.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    pub(super) fleet: Arc<Fleet>,
    pub(super) hosts: Arc<Hosts>,
    pub(super) listening: Arc<Listening>,
    pub(super) feed_changes: u64,
    pub(super) roster: Arc<index::Roster>,
}

impl Sources {
    /// As they are now.
    pub(super) fn now(fleet: Arc<Fleet>, hosts: Arc<Hosts>, feeds: &Feeds) -> Self {
        let (listening, feed_changes) = (feeds.listening(), feeds.changes());
        Self { fleet, hosts, listening, feed_changes, roster: feeds.index.roster() }
    }

    /// Whether seats made of one are those of the other.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.fleet, &other.fleet)
            && Arc::ptr_eq(&self.hosts, &other.hosts)
            && Arc::ptr_eq(&self.listening, &other.listening)
            && (self.feed_changes, self.roster.generation)
                == (other.feed_changes, other.roster.generation)
    }
}

/// A target.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) life: Arc<Life>,
    pub(super) rank: Option<u32>,
    /// Its group, and its number in there; nothing if it gets no credit.
    pub(super) place: Option<(usize, usize)>,
    pub(super) block_size: u32,
    /// What daemons may call its model.
    pub(super) models: Vec<Arc<str>>,
    /// Number of its host.
    pub(super) host: Option<usize>,
    /// What its events go through.
    pub(super) feed: Option<Arc<Status>>,
    /// Most requests that it answers at once; 0 if nobody said.
    pub(super) decodes_max: u32,
}

/// Targets whose blocks have the same names.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) engine: Engine,
    pub(super) block_size: u32,
    /// For questions, in the order of their numbers.
    pub(super) fleet: index::Fleet,
}

/// What blocks are called by those who hold them.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    pub(super) has_sglang: bool,
    pub(super) has_vllm: bool,
    /// Blocks of chunks of which only the key is known.
    pub(super) key_strides: Vec<u32>,
}

/// The targets of a model.
#[derive(Debug)]
pub(super) struct Seats {
    pub(super) sources: Sources,
    pub(super) seats: Vec<Seat>,
    pub(super) groups: Vec<Group>,
    pub(super) hosts: Vec<Arc<Host>>,
    pub(super) kinds: Kinds,
    by_life: HashMap<(usize, Option<u32>), usize>,
}

fn address(life: &Arc<Life>) -> usize {
    Arc::as_ptr(life).addr()
}

impl Seats {
    /// Those of `model`, with the tokenizer that stands for it.
    pub(super) fn new(sources: Sources, model: &str, tokens: Option<&Tokens>) -> Self {
        let mut maker = Maker { sources: &sources, tokens, hosts: Vec::new(), groups: Vec::new() };
        let targets = sources.fleet.pool(model).targets();
        let seats: Vec<Seat> = targets.iter().map(|target| maker.seat(target)).collect();
        let Maker { hosts, groups, .. } = maker;
        let groups = groups.into_iter().map(|((engine, block_size), specs)| {
            let fleet = index::Fleet::new(&sources.roster, &specs);
            Group { engine, block_size, fleet }
        });
        let groups = groups.collect();
        let keyed = seats.iter().enumerate();
        let by_life = keyed.map(|(at, seat)| ((address(&seat.life), seat.rank), at)).collect();
        let kinds = kinds(&sources.roster);
        Self { seats, groups, hosts, kinds, by_life, sources }
    }

    /// The number of a target's seat; nothing if it came since.
    pub(super) fn of(&self, target: &Target) -> Option<usize> {
        self.by_life.get(&(address(&target.worker.life), target.rank)).copied()
    }
}

struct Maker<'s> {
    sources: &'s Sources,
    tokens: Option<&'s Tokens>,
    hosts: Vec<Arc<Host>>,
    groups: Vec<((Engine, u32), Vec<TargetSpec>)>,
}

impl Maker<'_> {
    fn seat(&mut self, target: &Target) -> Seat {
        let record = &target.worker.record;
        let rank = target.rank.unwrap_or(0);
        let feed = self.sources.listening.engines.get(&(record.worker_id.clone(), rank)).cloned();
        let told = feed.as_ref().and_then(|feed| feed.block_size());
        let block_size = told.or_else(|| record.block_size()).unwrap_or(0);
        let host = self.sources.hosts.of(record).cloned();
        let number = host.as_ref().map(|host| self.number(host));
        let canary = record.kv.as_ref().and_then(|kv| kv.tokenizer_canary.as_deref());
        let is_known =
            self.tokens.is_some_and(|tokens| canary.is_none_or(|ids| tokens.agrees(ids)));
        let place = (is_known && block_size > 0).then(|| {
            let registration = host.as_ref().map(|host| &host.registration);
            let spec = TargetSpec {
                worker: record.worker_id.as_str().into(),
                rank,
                model: record.model_name.as_str().into(),
                model_root: record
                    .unknown
                    .get("model_root")
                    .and_then(serde_json::Value::as_str)
                    .map(Into::into),
                host: registration.map(|it| it.host_id.as_str().into()),
                pools: registration
                    .map(|it| it.pools.iter().map(|pool| pool.as_str().into()).collect())
                    .unwrap_or_default(),
            };
            self.join((manner_of(target.worker.engine()), block_size), spec)
        });
        let decodes_max = record.unknown.get("max_decodes").and_then(serde_json::Value::as_u64);
        Seat {
            life: Arc::clone(&target.worker.life),
            rank: target.rank,
            place,
            block_size,
            models: models_of(record),
            host: number,
            feed,
            decodes_max: decodes_max.and_then(|max| u32::try_from(max).ok()).unwrap_or(0),
        }
    }

    fn number(&mut self, host: &Arc<Host>) -> usize {
        let known = self.hosts.iter().position(|known| Arc::ptr_eq(known, host));
        known.unwrap_or_else(|| {
            self.hosts.push(Arc::clone(host));
            self.hosts.len() - 1
        })
    }

    fn join(&mut self, key: (Engine, u32), spec: TargetSpec) -> (usize, usize) {
        let known = self.groups.iter().position(|(known, _)| *known == key);
        let group = known.unwrap_or_else(|| {
            self.groups.push((key, Vec::new()));
            self.groups.len() - 1
        });
        let specs = &mut self.groups[group].1;
        specs.push(spec);
        (group, specs.len() - 1)
    }
}

/// What requests call a worker's model, and what it has loaded, if that is known.
pub(crate) fn models_of(record: &WorkerRecord) -> Vec<Arc<str>> {
    let root = record.unknown.get("model_root").and_then(serde_json::Value::as_str);
    [record.model_name.as_str()].into_iter().chain(root).map(Arc::from).collect()
}

fn kinds(roster: &index::Roster) -> Kinds {
    let mut kinds = Kinds::default();
    for (_, holder) in &roster.holders {
        match holder.kind {
            Kind::Router => {}
            Kind::Sglang => kinds.has_sglang = true,
            Kind::Vllm => kinds.has_vllm = true,
            Kind::ChunkKey => kinds.key_strides.push(holder.stride.max(1)),
        }
    }
    kinds.key_strides.sort_unstable();
    kinds.key_strides.dedup();
    kinds
}
