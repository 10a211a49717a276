//! A feed for each publisher that there is: workers as the fleet has them, daemons as they register, by themselves or
//! in the record of a worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvd_proto::events::Registration;
use router_core::fold::{EngineSource, HostSource, Moment, Parking};
use router_core::record::{Engine, WorkerRecord};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::socket::Place;
use super::{Feeds, Listening, Opening, Publisher, Status};
use crate::fleet::{self, Fleet, Origin};
use crate::hosts::{self, Host, Hosts};
use crate::phase::{self, Phase};

/// How often it is looked whether somebody was waited for in vain.
const TICK: Duration = Duration::from_secs(1);

/// What is followed.
#[derive(Debug)]
pub struct Following {
    /// The feeds.
    pub feeds: Arc<Feeds>,
    /// The workers.
    pub fleet: fleet::Shared,
    /// Hears when they change.
    pub fleet_changes: watch::Receiver<()>,
    /// Daemons that registered.
    pub registrations: watch::Receiver<Vec<Arc<Registration>>>,
    /// Where all hosts are published.
    pub hosts: hosts::Shared,
    /// When to end.
    pub phase: phase::Current,
}

/// Keeps feeds up to date until the process is closing.
pub async fn run(following: Following) {
    let Following { feeds, fleet, mut fleet_changes, mut registrations, hosts, mut phase } =
        following;
    let mut follower = Follower {
        feeds,
        began: Instant::now(),
        engines: BTreeMap::new(),
        parking: Parking::default(),
        hosts: BTreeMap::new(),
    };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (workers, registered) = (fleet.load_full(), registrations.borrow_and_update().clone());
        fleet_changes.borrow_and_update();
        let current = all_hosts(&workers, &registered, &hosts.load());
        follower.follow_engines(&workers).await;
        follower.follow_hosts(&current).await;
        // Who chooses by them finds their feeds.
        hosts.store(Arc::new(current));
        follower.publish();
        loop {
            tokio::select! {
                Ok(()) = fleet_changes.changed() => break,
                Ok(()) = registrations.changed() => break,
                _ = ticks.tick() => follower.expire().await,
                () = phase::reached(&mut phase, Phase::Closing) => return,
            }
        }
    }
}

fn all_hosts(workers: &Fleet, registered: &[Arc<Registration>], before: &Hosts) -> Hosts {
    let told = workers.workers().filter_map(|worker| worker.record.kvd.clone());
    // What a daemon says itself wins.
    Hosts::new(told.chain(registered.iter().map(|it| Registration::clone(it))), before)
}

type Ranks = Vec<(u32, Arc<Status>)>;

struct Follower {
    feeds: Arc<Feeds>,
    began: Instant,
    engines: BTreeMap<String, (Arc<WorkerRecord>, Ranks)>,
    /// What workers left that may come back.
    parking: Parking<Ranks>,
    hosts: BTreeMap<String, (Registration, Arc<Status>)>,
}

impl Follower {
    fn now(&self) -> Moment {
        Moment(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    async fn follow_engines(&mut self, fleet: &Fleet) {
        let now = self.now();
        let registered = fleet.workers().filter(|worker| worker.origin == Origin::Registered);
        let records: BTreeMap<&str, &Arc<WorkerRecord>> =
            registered.map(|worker| (worker.record.worker_id.as_str(), &worker.record)).collect();
        let is_same = |known: &WorkerRecord| {
            records.get(known.worker_id.as_str()).is_some_and(|record| record.is_same_life(known))
        };
        let gone: Vec<_> = self.engines.extract_if(.., |_, (known, _)| !is_same(known)).collect();
        for (id, (known, ranks)) in gone {
            if records.contains_key(id.as_str()) {
                self.close(ranks).await;
            } else if let Some(dropped) = self.parking.park(WorkerRecord::clone(&known), ranks, now)
            {
                self.close(dropped).await;
            }
        }
        for (id, record) in records {
            if self.engines.contains_key(id) {
                continue;
            }
            let ranks = match self.parking.take(record) {
                Some(Ok(ranks)) => ranks,
                Some(Err(dropped)) => {
                    self.close(dropped).await;
                    self.open(record).await
                }
                None => self.open(record).await,
            };
            self.engines.insert(id.to_owned(), (Arc::clone(record), ranks));
        }
    }

    async fn open(&self, record: &WorkerRecord) -> Ranks {
        let mut ranks = Vec::new();
        for (rank, opening) in openings(record) {
            ranks.push((rank, self.feeds.open(opening).await));
        }
        ranks
    }

    async fn close(&self, ranks: Ranks) {
        for (_, status) in ranks {
            self.feeds.close(&status).await;
        }
    }

    /// Whoever was waited for in vain is let go of.
    async fn expire(&mut self) {
        for ranks in self.parking.expired(self.now()) {
            self.close(ranks).await;
        }
    }

    async fn follow_hosts(&mut self, hosts: &Hosts) {
        let is_same = |id: &str, known: &Registration| {
            hosts.get(id).is_some_and(|host| has_same_places(&host.registration, known))
        };
        let gone: Vec<_> =
            self.hosts.extract_if(.., |id, (known, _)| !is_same(id, known)).collect();
        for (_, (_, status)) in gone {
            self.feeds.close(&status).await;
        }
        for host in hosts.iter() {
            let id = &host.registration.host_id;
            if let Some(opening) = host_opening(host).filter(|_| !self.hosts.contains_key(id)) {
                let status = self.feeds.open(opening).await;
                self.hosts.insert(id.clone(), (host.registration.clone(), status));
            }
        }
    }

    fn publish(&self) {
        let engines = self.engines.iter().flat_map(|(id, (_, ranks))| {
            ranks.iter().map(|(rank, status)| ((id.clone(), *rank), Arc::clone(status)))
        });
        let hosts = self.hosts.iter().map(|(id, (_, status))| (id.clone(), Arc::clone(status)));
        let listening = Listening { engines: engines.collect(), hosts: hosts.collect() };
        self.feeds.listening.store(Arc::new(listening));
    }
}

/// What to listen to of a worker, by rank.
fn openings(record: &WorkerRecord) -> Vec<(u32, Opening)> {
    let Some(endpoint) = record.events_endpoint() else {
        return Vec::new();
    };
    let replay = record.unknown.get("kv_replay_endpoint").and_then(|endpoint| endpoint.as_str());
    let ranks = record.ranks().unwrap_or(0..1);
    let opening = |rank| {
        let replay = replay.and_then(|replay| Place::of_rank(replay, rank));
        let source = EngineSource {
            worker: record.worker_id.as_str().into(),
            rank,
            model: record.model_name.as_str().into(),
            block_size: record.block_size(),
            names_content: record.engine == Engine::Sglang,
            can_replay: replay.is_some(),
        };
        let Some(events) = Place::of_rank(endpoint, rank) else {
            tracing::warn!(
                worker = record.worker_id,
                endpoint,
                "events can't be listened to: this is no endpoint"
            );
            return None;
        };
        Some((rank, Opening { publisher: Publisher::Engine(source), events, replay }))
    };
    ranks.map_while(opening).collect()
}

fn host_opening(host: &Host) -> Option<Opening> {
    let registration = &host.registration;
    let place = |endpoint: &Option<String>| {
        let place = Place::of(endpoint.as_deref()?)?;
        Some(Place { server_key: registration.curve_server_key.clone(), ..place })
    };
    let (events, replay) =
        (place(&registration.events_endpoint)?, place(&registration.replay_endpoint));
    let snapshot_url = registration.snapshot_url.clone();
    let source = HostSource {
        host: registration.host_id.as_str().into(),
        can_replay: replay.is_some(),
        can_snapshot: snapshot_url.is_some(),
    };
    let links = Arc::clone(&host.links);
    Some(Opening { publisher: Publisher::Host { source, snapshot_url, links }, events, replay })
}

/// Whether a daemon is listened to as before.
fn has_same_places(one: &Registration, other: &Registration) -> bool {
    let places = |it: &Registration| {
        let Registration {
            events_endpoint, replay_endpoint, snapshot_url, curve_server_key, ..
        } = it.clone();
        (events_endpoint, replay_endpoint, snapshot_url, curve_server_key)
    };
    places(one) == places(other)
}
