//! The router: the real one's decisions, and those that it is compared with.

use router_core::account::{Answering, HostLoad, Placed, Polled, TargetLoad, Waiting};
use router_core::index::Answer;
use router_core::policy::KvAware;
use router_core::score::ettft::{self, Target, Terms};
use router_core::score::fit::{LinkFit, ModelFit, SpeedFit};
use router_core::score::reference::{Asked, Known};
use router_core::score::{Link, Speed, Way};

use super::draw::{Draw, Purpose};
use super::listener::Listener;
use super::oracle;
use super::request::{BLOCK_TOKENS, Request};
use super::truth::{BELIEVED_GIGABYTES, BELIEVED_TOKENS_PER_SECOND, BYTES_PER_TOKEN, DECODES_MAX};
use super::world::Machines;

/// How a worker is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest requests in flight.
    LeastLoad,
    /// The reference's cost in blocks.
    Reference,
    /// The shortest expected time to the first token.
    Ettft,
    /// The shortest time to the first token, by one who knows what nobody can know.
    Oracle,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::RoundRobin, Self::LeastLoad, Self::Reference, Self::Ettft, Self::Oracle];

    /// Whether it hears what workers and hosts say.
    #[must_use]
    pub const fn listens(self) -> bool {
        matches!(self, Self::Reference | Self::Ettft)
    }
}

/// A request that was sent.
#[derive(Debug)]
pub struct Sent {
    /// Where to.
    pub worker: usize,
    waiting: Waiting,
    predicted: Option<(Terms, Way)>,
}

/// The router.
#[derive(Debug)]
pub struct Router {
    policy: Policy,
    listener: Listener,
    workers_per_host: usize,
    loads: Vec<TargetLoad>,
    host_loads: Vec<HostLoad>,
    speeds: Vec<SpeedFit>,
    model: ModelFit,
    links: Vec<LinkFit>,
    ways: Vec<Way>,
    picker: KvAware,
    turn: u64,
    ties: Draw,
}

fn believed_way() -> Way {
    let (memory, disk) = BELIEVED_GIGABYTES;
    Way {
        bytes_per_token: Some(BYTES_PER_TOKEN),
        tiers: [Link::of(memory, 0.2), Link::of(disk, 0.5), Link::of(3.0, 2.0)],
        device: Link::of(memory, 0.0),
        is_pipelined: true,
        ..Way::default()
    }
}

impl Router {
    /// A router in front of so many hosts with so many workers each.
    #[must_use]
    pub fn new(policy: Policy, hosts: usize, workers_per_host: usize, seed: u64) -> Self {
        let workers = hosts * workers_per_host;
        let speed = Speed::of_tokens_per_second(BELIEVED_TOKENS_PER_SECOND);
        Self {
            policy,
            listener: Listener::new(hosts, workers_per_host),
            workers_per_host,
            loads: vec![TargetLoad::default(); workers],
            host_loads: vec![HostLoad::default(); hosts],
            speeds: vec![SpeedFit::default(); workers],
            model: ModelFit::new(speed),
            links: vec![LinkFit::default(); hosts],
            ways: Vec::new(),
            picker: KvAware::new(),
            turn: 0,
            ties: Draw::new(seed, Purpose::Ties),
        }
    }

    /// What it has heard.
    pub fn listener(&mut self) -> &mut Listener {
        &mut self.listener
    }

    /// Sends a request somewhere.
    pub fn send(&mut self, request: &Request, machines: &Machines, now: f64) -> Sent {
        self.turn += 1;
        let seed = self.ties.bits();
        let (worker, predicted) = match self.policy {
            Policy::RoundRobin => {
                (usize::try_from(self.turn).unwrap_or(0) % self.loads.len(), None)
            }
            Policy::LeastLoad => (self.least_load(seed), None),
            Policy::Oracle => (oracle::pick(request, machines, now, seed), None),
            Policy::Reference => return self.send_as_reference(request, seed, now),
            Policy::Ettft => self.least_ettft(request, seed, now),
        };
        let placed = match &predicted {
            Some((terms, _)) => Placed::new(terms, request.prompt_names().into()),
            None => Placed::default(),
        };
        self.host_loads[worker / self.workers_per_host].begin(&placed);
        let waiting = self.loads[worker].begin(placed, self.turn, None, now);
        Sent { worker, waiting, predicted }
    }

    fn least_load(&self, seed: u64) -> usize {
        let count = self.loads.len();
        let start = usize::try_from(seed % count as u64).unwrap_or(0);
        let order = (start..count).chain(0..start);
        order.min_by_key(|worker| self.loads[*worker].requests()).unwrap_or(0)
    }

    fn send_as_reference(&mut self, request: &Request, seed: u64, now: f64) -> Sent {
        let answer = self.listener.ask(request.prompt_names());
        let blocks = u32::try_from(request.prompt_blocks()).unwrap_or(u32::MAX);
        let asked = Asked { blocks, weight: 1.0, ..Asked::default() };
        let known = self.loads.iter().enumerate().map(|(worker, load)| Known {
            hits: f64::from(answer.held(worker).device_blocks),
            images_held: 0,
            load: load.reference_load(self.turn),
        });
        let pick = self.picker.pick_as_reference(&asked, known, seed);
        let (worker, missing) = pick
            .map_or((0, 0.0), |pick| (pick.target, pick.picked().map_or(0.0, |cost| cost.missing)));
        let blocks = request.prompt_names().into();
        let placed = Placed { blocks, counts_blocks: true, ..Placed::default() };
        let waiting = self.loads[worker].begin(placed, self.turn, Some(missing), now);
        Sent { worker, waiting, predicted: None }
    }

    fn least_ettft(
        &mut self,
        request: &Request,
        seed: u64,
        now: f64,
    ) -> (usize, Option<(Terms, Way)>) {
        let believed = believed_way();
        let queued = self.host_loads.iter().zip(&self.links);
        self.ways.clear();
        self.ways.extend(queued.map(|(load, fit)| load.queued(fit.applied(believed))));
        let Self { listener, ways, loads, speeds, model, workers_per_host, .. } = self;
        let names = request.prompt_names();
        let answer: &Answer = listener.ask(names);
        let asked = ettft::Request {
            prompt_tokens: f64::from(request.prompt_tokens),
            ..Default::default()
        };
        let targets = loads.iter().zip(speeds).enumerate().map(|(worker, (load, speed))| {
            let speed = speed.speed(model);
            let held = answer.held(worker);
            Target {
                held: held.with_device(load.blocks_to_come(names, held.device_blocks)),
                block_size: BLOCK_TOKENS,
                way: ways.get(worker / *workers_per_host),
                speed,
                load: load.load(DECODES_MAX, &speed, now),
                images_held: 0,
                is_last_of_session: false,
            }
        });
        let Some(pick) = self.picker.pick(&asked, targets, seed) else {
            return (0, None);
        };
        let way = ways[pick.target / *workers_per_host];
        (pick.target, pick.picked().map(|terms| (*terms, way)))
    }

    /// The first byte of an answer came `now`.
    pub fn first_byte(&mut self, request: &Request, sent: Sent, now: f64) -> Answering {
        let host = sent.worker / self.workers_per_host;
        let observed = now - request.arrival;
        if let Some((terms, way)) = &sent.predicted {
            let prompt_tokens = f64::from(request.prompt_tokens);
            self.speeds[sent.worker].observe(&mut self.model, prompt_tokens, terms, observed);
            self.links[host].observe(way, terms, observed);
        }
        self.loads[sent.worker].first_byte(self.host_loads.get_mut(host), sent.waiting, now)
    }

    /// An answer is over.
    pub fn finish(&mut self, worker: usize, answering: Answering) {
        self.loads[worker].finish(answering);
    }

    /// A worker says how it is.
    pub fn poll(&mut self, worker: usize, polled: Polled) {
        self.loads[worker].set_polled(Some(polled));
    }
}
