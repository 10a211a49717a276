//! Everything that happens, one thing after the other.

use router_core::account::{Answering, Polled};

use super::agenda::{Agenda, Happening};
use super::draw::{Draw, Purpose};
use super::feed::{Feed, HostFeed, WorkerSays};
use super::host::{Host, Loadable};
use super::outcome::{Answered, Outcome};
use super::request::{BLOCK_TOKENS, Request};
use super::router::{Policy, Router, Sent};
use super::truth::{HostTruth, WorkerTruth};
use super::worker::{Tenant, Worker};
use super::workload::Workload;

/// How often workers are asked how they are.
const POLL_SECONDS: f64 = 1.0;

/// Hosts, and workers on them.
#[derive(Debug)]
pub struct Machines {
    /// The workers, host after host.
    pub workers: Vec<Worker>,
    /// The hosts.
    pub hosts: Vec<Host>,
}

impl Machines {
    fn new(hosts: usize, workers_per_host: usize, seed: u64) -> Self {
        let mut draw = Draw::new(seed, Purpose::Truth);
        let truths: Vec<_> = (0..hosts).map(|_| HostTruth::draw(&mut draw)).collect();
        let workers = 0..hosts * workers_per_host;
        Self {
            workers: workers.map(|_| Worker::new(WorkerTruth::draw(&mut draw))).collect(),
            hosts: truths.iter().map(|truth| Host::new(truth, workers_per_host)).collect(),
        }
    }

    /// The host of a worker.
    #[must_use]
    pub fn host_of(&self, worker: usize) -> usize {
        worker / (self.workers.len() / self.hosts.len())
    }
}

/// What becomes of a request.
#[derive(Debug, Default)]
struct Course {
    worker: usize,
    sent: Option<Sent>,
    answering: Option<Answering>,
    /// Blocks that were on the device, and that were loaded.
    device_blocks: usize,
    loadable: Loadable,
    /// Blocks of the device that have no name yet.
    reserved: usize,
    /// Its part of the worker's backlog.
    backlog: f64,
    first_byte: f64,
}

/// A fleet at work.
pub struct World<'w> {
    machines: Machines,
    router: Router,
    policy: Policy,
    workload: &'w mut dyn Workload,
    agenda: Agenda,
    feed: Feed,
    host_feed: HostFeed,
    requests: Vec<Request>,
    courses: Vec<Course>,
    open: usize,
    outcome: Outcome,
}

impl std::fmt::Debug for World<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("World").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<'w> World<'w> {
    /// A fleet of so many hosts with so many workers each, and what is asked of it.
    pub fn new(
        policy: Policy,
        [hosts, workers_per_host]: [usize; 2],
        seed: u64,
        workload: &'w mut dyn Workload,
    ) -> Self {
        let mut world = Self {
            machines: Machines::new(hosts, workers_per_host, seed),
            router: Router::new(policy, hosts, workers_per_host, seed),
            policy,
            workload,
            agenda: Agenda::default(),
            feed: Feed::new(policy.listens()),
            host_feed: HostFeed::default(),
            requests: Vec::new(),
            courses: Vec::new(),
            open: 0,
            outcome: Outcome::default(),
        };
        for request in world.workload.first() {
            world.enter(request);
        }
        world.agenda.put(POLL_SECONDS, Happening::Poll);
        world
    }

    fn enter(&mut self, request: Request) {
        self.open += 1;
        self.agenda.put(request.arrival, Happening::Arrival(self.requests.len()));
        self.requests.push(request);
        self.courses.push(Course::default());
    }

    /// Lets it work until nothing is left to do.
    pub fn run(mut self) -> Outcome {
        while self.open > 0 {
            let Some((now, happening)) = self.agenda.take() else { break };
            match happening {
                Happening::Arrival(request) => self.arrive(request, now),
                Happening::Loaded(request) => self.loaded(request, now),
                Happening::Computed(worker) => self.computed(worker, now),
                Happening::Answered(worker, version) => {
                    if self.machines.workers[worker].answers.version == version {
                        self.answered(worker, now);
                    }
                }
                Happening::Poll => self.poll(now),
            }
        }
        let is_idle = self.machines.workers.iter().all(Worker::is_idle);
        self.outcome.is_whole = self.open == 0 && is_idle && self.router.listener().is_whole();
        self.outcome
    }

    fn arrive(&mut self, number: usize, now: f64) {
        while let Some(message) = self.feed.next(now) {
            self.router.listener().hear(&message, now);
        }
        let request = &self.requests[number];
        let sent = self.router.send(request, &self.machines, now);
        let at = sent.worker;
        let host = self.machines.host_of(at);
        let worker = &mut self.machines.workers[at];
        let course = &mut self.courses[number];
        let names = request.prompt_names();
        let there = worker.prefix_to_come(names);
        let cached = there + self.machines.hosts[host].loadable(&names[there..]).blocks();
        course.backlog = prefill_seconds(worker, request, cached);
        course.worker = at;
        course.sent = Some(sent);
        worker.backlog += course.backlog;
        let blocks = request.device_blocks() - worker.device.held_among(&names[..there]);
        let output_tokens = request.output_tokens;
        worker.tenants.insert(number, Tenant { blocks, is_admitted: false, output_tokens });
        worker.expect_blocks(names, true);
        worker.waiting.push_back(number);
        self.schedule(at, now);
    }

    /// Begins what can be begun: the next prompt that is all there, and the loads of those before it.
    fn schedule(&mut self, at: usize, now: f64) {
        if self.machines.workers[at].prefill.is_some() {
            return;
        }
        if let Some(number) = self.machines.workers[at].ready.pop_front() {
            self.compute(at, number, now);
        } else {
            while let Some(number) = self.machines.workers[at].waiting.front().copied() {
                if !self.admit(at, number, now) {
                    break;
                }
                self.machines.workers[at].waiting.pop_front();
                if self.courses[number].loadable.blocks() == 0 {
                    self.compute(at, number, now);
                    break;
                }
            }
        }
        self.go_on(at, now);
    }

    /// Gives a request its blocks of the device, and begins its load. False if there is no room.
    fn admit(&mut self, at: usize, number: usize, now: f64) -> bool {
        let host = self.machines.host_of(at);
        let (request, course) = (&self.requests[number], &mut self.courses[number]);
        let worker = &mut self.machines.workers[at];
        let names = request.prompt_names();
        let there = worker.device.prefix(names);
        let shared = worker.device.held_among(&names[..there]);
        for name in &names[..there] {
            worker.device.hold(*name);
        }
        let needed = request.device_blocks() - there;
        if needed > worker.room() {
            names[..there].iter().rev().for_each(|name| worker.device.let_go(*name));
            return false;
        }
        if let Some(tenant) = worker.tenants.get_mut(&number) {
            (tenant.blocks, tenant.is_admitted) = (request.device_blocks() - shared, true);
        }
        let gone = worker.reserve(needed);
        if !gone.is_empty() {
            self.feed.worker(at, WorkerSays::Removed(gone), now);
        }
        (course.device_blocks, course.reserved) = (there, needed);
        let host_of = &mut self.machines.hosts[host];
        course.loadable = host_of.loadable(&names[there..]);
        if course.loadable.blocks() > 0 {
            let done = host_of.load(&names[there..], course.loadable, now, &mut self.host_feed);
            self.feed.host(host, &mut self.host_feed, now);
            worker.loading += 1;
            self.agenda.put(done, Happening::Loaded(number));
        }
        true
    }

    fn loaded(&mut self, number: usize, now: f64) {
        let at = self.courses[number].worker;
        let worker = &mut self.machines.workers[at];
        worker.loading -= 1;
        worker.ready.push_back(number);
        self.schedule(at, now);
    }

    fn compute(&mut self, at: usize, number: usize, now: f64) {
        let (request, course) = (&self.requests[number], &self.courses[number]);
        let worker = &mut self.machines.workers[at];
        let cached = course.device_blocks + course.loadable.blocks();
        let end = now + prefill_seconds(worker, request, cached);
        worker.backlog -= course.backlog;
        worker.prefill = Some((number, end));
        self.agenda.put(end, Happening::Computed(at));
    }

    /// The first token: the prompt's blocks have names, and the host gets them.
    fn computed(&mut self, at: usize, now: f64) {
        let host = self.machines.host_of(at);
        let worker = &mut self.machines.workers[at];
        let Some((number, _)) = worker.prefill.take() else { return };
        let (request, course) = (&self.requests[number], &mut self.courses[number]);
        let names = request.prompt_names();
        for name in &names[course.device_blocks..] {
            worker.device.hold(*name);
        }
        let named = names.len() - course.device_blocks;
        course.reserved -= named;
        worker.reserved -= named;
        worker.expect_blocks(names, false);
        if named > 0 {
            let chain = request.chain.clone();
            let says = WorkerSays::Stored { chain, from: course.device_blocks, to: names.len() };
            self.feed.worker(at, says, now);
        }
        self.machines.hosts[host].store(names, &mut self.host_feed);
        self.feed.host(host, &mut self.host_feed, now);
        worker.answers.begin(number, request.output_tokens, now);
        course.first_byte = now;
        if let Some(sent) = course.sent.take() {
            course.answering = Some(self.router.first_byte(request, sent, now));
        }
        self.schedule(at, now);
    }

    fn answered(&mut self, at: usize, now: f64) {
        let host = self.machines.host_of(at);
        let worker = &mut self.machines.workers[at];
        let Some(number) = worker.answers.end(now) else { return };
        let (request, course) = (&mut self.requests[number], &mut self.courses[number]);
        worker.reserved -= course.reserved;
        worker.tenants.remove(&number);
        let chain = std::mem::take(&mut request.chain);
        let prompt = request.prompt_blocks();
        // From the end, so that the beginning is evicted last.
        for name in chain.names[prompt..].iter().rev() {
            worker.device.touch(*name);
        }
        for name in chain.names[..prompt].iter().rev() {
            worker.device.let_go(*name);
        }
        if chain.names.len() > prompt {
            self.machines.hosts[host].store(&chain.names, &mut self.host_feed);
            self.feed.host(host, &mut self.host_feed, now);
            let to = chain.names.len();
            self.feed.worker(at, WorkerSays::Stored { chain, from: prompt, to }, now);
        }
        if let Some(answering) = course.answering.take() {
            self.router.finish(at, answering);
        }
        self.outcome.add(&Answered {
            arrival: request.arrival,
            ttft: course.first_byte - request.arrival,
            tokens_per_second: f64::from(request.output_tokens) / (now - course.first_byte),
            prompt_tokens: request.prompt_tokens,
            blocks: [course.device_blocks, course.loadable.l2, course.loadable.l3],
        });
        self.open -= 1;
        if let Some(next) = self.workload.after(&self.requests[number], now) {
            self.enter(next);
        }
        self.schedule(at, now);
        self.go_on(at, now);
    }

    /// Answers go on at the speed that they have now.
    fn go_on(&mut self, at: usize, now: f64) {
        let worker = &mut self.machines.workers[at];
        if let Some(end) = worker.answers.go_on(worker.prefill.is_some(), now) {
            self.agenda.put(end, Happening::Answered(at, worker.answers.version));
        }
    }

    fn poll(&mut self, now: f64) {
        for (number, worker) in self.machines.workers.iter().enumerate() {
            let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
            self.router.poll(
                number,
                Polled {
                    waiting: count(worker.waiting.len() + worker.ready.len()) + worker.loading,
                    running: worker.answers.count() + u32::from(worker.prefill.is_some()),
                    memory_used: worker.memory_used(),
                },
            );
        }
        self.agenda.put(now + POLL_SECONDS, Happening::Poll);
    }
}

fn prefill_seconds(worker: &Worker, request: &Request, cached_blocks: usize) -> f64 {
    let prompt = f64::from(request.prompt_tokens);
    let cached = cached_blocks as f64 * f64::from(BLOCK_TOKENS);
    let uncached = (prompt - cached).max(1.0);
    worker.truth.prefill_seconds(prompt, uncached, worker.answers.count())
}

#[cfg(test)]
mod tests {
    use super::super::request::Chain;
    use super::super::truth::{BELIEVED_TOKENS_PER_SECOND, L2_BLOCKS_PER_WORKER};
    use super::*;

    /// Requests that come whatever becomes of others: when, the first content, blocks.
    struct Script(Vec<(f64, u64, u64)>);

    impl Workload for Script {
        fn first(&mut self) -> Vec<Request> {
            let request = |(arrival, content, blocks): &(f64, u64, u64)| Request {
                arrival: *arrival,
                session: 0,
                prompt_tokens: u32::try_from(*blocks).unwrap() * BLOCK_TOKENS + 1,
                output_tokens: 10,
                chain: Chain::new(*content..*content + *blocks),
            };
            self.0.iter().map(request).collect()
        }

        fn counted(&self) -> [f64; 2] {
            [0.0, f64::INFINITY]
        }

        fn after(&mut self, _answered: &Request, _now: f64) -> Option<Request> {
            None
        }
    }

    fn answered(policy: Policy, fleet: [usize; 2], script: &[(f64, u64, u64)]) -> Vec<Answered> {
        let mut script = Script(script.to_vec());
        let outcome = World::new(policy, fleet, 1, &mut script).run();
        assert!(outcome.is_whole);
        let mut answered = outcome.answered().to_vec();
        answered.sort_by(|left, right| left.arrival.total_cmp(&right.arrival));
        answered
    }

    #[test]
    fn a_prompt_takes_its_time_once_and_waits_for_the_one_before_it() {
        let script = [(0.0, 1, 16), (0.1, 1000, 16), (60.0, 1, 16)];
        let [first, second, third] = answered(Policy::RoundRobin, [1, 1], &script)[..] else {
            panic!("three requests")
        };
        let believed = 16.0 * 512.0 / BELIEVED_TOKENS_PER_SECOND;
        assert!((0.69 * believed..1.45 * believed).contains(&first.ttft), "{first:?}");
        assert!((second.ttft - (2.0 * first.ttft - 0.1)).abs() < 0.05 * first.ttft);
        assert_eq!((third.blocks, third.ttft < 0.01), ([16, 0, 0], true));
    }

    #[test]
    fn what_a_sibling_computed_comes_from_memory_and_later_from_disk() {
        // Two workers in turn; what fills the memory in between is more than it holds.
        let filling =
            (0..12_u32).map(|n| (100.0 + 20.0 * f64::from(n), 10_000 * (u64::from(n) + 1), 100));
        let mut script = vec![(0.0, 1, 16), (10.0, 1, 16)];
        script.extend(filling);
        const { assert!(12 * 100 > 2 * L2_BLOCKS_PER_WORKER) };
        script.push((1000.0, 1, 16));
        let answered = answered(Policy::RoundRobin, [1, 2], &script);
        assert_eq!(answered[1].blocks, [0, 16, 0]);
        assert_eq!(answered.last().map(|last| last.blocks), Some([0, 0, 16]));
    }

    #[test]
    fn the_score_finds_the_device_once_it_has_been_told() {
        for content in (1..20).map(|number| number * 1000) {
            let script = [(0.0, content, 64), (20.0, content, 64)];
            assert_eq!(answered(Policy::Ettft, [2, 8], &script)[1].blocks, [64, 0, 0]);
        }
    }

    #[test]
    fn the_same_seed_is_the_same_run() {
        let script: Vec<_> =
            (0..200_u32).map(|n| (f64::from(n) * 0.3, u64::from(n % 17) * 1000, 20)).collect();
        for policy in Policy::ALL {
            let run = || {
                let ttfts = answered(policy, [2, 2], &script);
                ttfts.iter().map(|one| one.ttft.to_bits()).collect::<Vec<_>>()
            };
            assert_eq!(run(), run(), "{policy:?}");
        }
    }
}
