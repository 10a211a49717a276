//! The one who makes snapshots: from the records that discovery holds for true, and the lives so far.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use router_core::record::WorkerRecord;
use router_core::score::Speed;
use router_core::score::fit::ModelFit;
use tokio::sync::watch;

use super::life::Model;
use super::{Fleet, Life, Origin, Shared, Worker};
use crate::breaker::Limits;

/// How long a life is kept for a worker whose record is gone: it may only have lost its lease.
const PARKED_FOR: Duration = Duration::from_secs(60);

/// Makes snapshots; owned by discovery.
#[derive(Debug)]
pub struct Keeper {
    fleet: Shared,
    limits: Limits,
    /// Of workers of a model nobody has answered for.
    speed: Speed,
    /// What was learnt of each model, as long as it has a worker.
    models: BTreeMap<String, Model>,
    changes: watch::Sender<()>,
    /// Workers that are gone, and since when.
    parked: BTreeMap<String, (Arc<Worker>, Instant)>,
}

impl Keeper {
    /// One that publishes into `fleet`; breakers are made by `limits`, and workers of a model are held to be of this `speed`
    /// until one has answered.
    #[must_use]
    pub fn new(fleet: Shared, limits: Limits, speed: Speed) -> Self {
        let (changes, models, parked) = (watch::Sender::new(()), BTreeMap::new(), BTreeMap::new());
        Self { fleet, limits, speed, models, changes, parked }
    }

    /// Hears of every snapshot.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Publishes a snapshot of exactly these workers. Who was there before in the same shape keeps its
    /// life, also after an absence of up to a minute; who comes back in another shape begins anew.
    pub fn publish(&mut self, records: Vec<Arc<WorkerRecord>>, origin: Origin, now: Instant) {
        let before = self.fleet.load_full();
        self.parked.retain(|_, (_, since)| now.duration_since(*since) < PARKED_FOR);
        let mut workers = BTreeMap::new();
        for record in records {
            let id = record.worker_id.clone();
            let known = before.workers.get(&id);
            let known = known.or_else(|| self.parked.get(&id).map(|(worker, _)| worker));
            let life = match known {
                Some(known) if known.record.is_same_life(&record) => Arc::clone(&known.life),
                known => {
                    tracing::info!(worker = id, again = known.is_some(), "a worker appeared");
                    let ranks = record.ranks().map_or(1, |ranks| ranks.end);
                    let model = self.models.entry(record.model_name.clone());
                    let unknown = || Arc::new(Mutex::new(ModelFit::new(self.speed)));
                    let model = Arc::clone(model.or_insert_with(unknown));
                    Arc::new(Life::new(&id, ranks, self.limits, model))
                }
            };
            workers.insert(id, Arc::new(Worker { record, origin, life }));
        }
        for (id, worker) in &before.workers {
            if !workers.contains_key(id) {
                tracing::info!(worker = id, "a worker is gone");
                self.parked.insert(id.clone(), (Arc::clone(worker), now));
            }
        }
        self.parked.retain(|id, _| !workers.contains_key(id));
        self.fleet.store(Arc::new(Fleet::new(workers, &before)));
        drop(before);
        self.models.retain(|_, model| Arc::strong_count(model) > 1);
        self.changes.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use router_core::score::Terms;
    use serde_json::json;

    use super::*;
    use crate::fleet::Leg;

    const LIMITS: Limits = Limits {
        faults_max: 1,
        cooldown: Duration::from_secs(5),
        cooldown_max: Duration::from_secs(60),
    };

    fn record(id: &str, more: &serde_json::Value) -> Arc<WorkerRecord> {
        let mut raw = json!({"worker_id": id, "url": format!("http://{id}"), "model_name": "m"});
        raw.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Arc::new(WorkerRecord::parse(raw.to_string().as_bytes()).unwrap())
    }

    fn ids(fleet: &Shared, model: &str) -> Vec<(String, Option<u32>)> {
        let fleet = fleet.load();
        let id =
            |target: &super::super::Target| (target.worker.record.worker_id.clone(), target.rank);
        fleet.pool(model).targets().iter().map(id).collect()
    }

    #[test]
    fn only_active_mixed_workers_of_the_model_get_requests() {
        let fleet = Shared::default();
        let mut keeper = Keeper::new(Arc::clone(&fleet), LIMITS, Speed::default());
        let records = vec![
            record("b:1", &json!({})),
            record("a:1", &json!({"dp_size": 2})),
            record("c:1", &json!({"status": "draining"})),
            record("d:1", &json!({"disagg_mode": "prefill"})),
            record("e:1", &json!({"model_name": "other", "dp_size": 2, "dp_rank": 1})),
        ];
        keeper.publish(records, Origin::Registered, Instant::now());
        let of = |id: &str, rank| (id.to_owned(), rank);
        assert_eq!(ids(&fleet, "m"), [of("a:1", Some(0)), of("a:1", Some(1)), of("b:1", None)]);
        assert_eq!(ids(&fleet, "other"), [of("e:1", None)]);
        assert_eq!(ids(&fleet, "unknown"), []);
        assert_eq!(fleet.load().active(None), 4);
    }

    #[test]
    fn a_worker_named_without_a_model_serves_any() {
        let fleet = Shared::default();
        let mut keeper = Keeper::new(Arc::clone(&fleet), LIMITS, Speed::default());
        let records = vec![record("a:1", &json!({"model_name": ""})), record("b:1", &json!({}))];
        keeper.publish(records.clone(), Origin::Named, Instant::now());
        assert_eq!(
            (ids(&fleet, "m").len(), ids(&fleet, "x").len(), ids(&fleet, "").len()),
            (2, 1, 1)
        );
        assert_eq!(fleet.load().models().collect::<Vec<_>>(), ["m"]);
        // One that registered says its model, even if it is none.
        keeper.publish(records, Origin::Registered, Instant::now());
        assert_eq!(
            (ids(&fleet, "m").len(), ids(&fleet, "x").len(), ids(&fleet, "").len()),
            (1, 0, 1)
        );
    }

    /// Whether `a:1` still is who it was after its records were these, so many seconds apart.
    fn keeps_its_life(steps: &[(u64, Option<serde_json::Value>)]) -> bool {
        let fleet = Shared::default();
        let mut keeper = Keeper::new(Arc::clone(&fleet), LIMITS, Speed::default());
        let start = Instant::now();
        keeper.publish(vec![record("a:1", &json!({}))], Origin::Registered, start);
        let leg = Leg::start(fleet.load().pool("m").targets()[0].clone(), false).unwrap();
        for (seconds, more) in steps {
            let records = more.iter().map(|more| record("a:1", more)).collect();
            keeper.publish(records, Origin::Registered, start + Duration::from_secs(*seconds));
        }
        let kept = fleet.load().pool("m").targets()[0].load() == 1;
        drop(leg);
        assert_eq!(fleet.load().pool("m").targets()[0].load(), 0);
        kept
    }

    #[test]
    fn a_new_worker_begins_with_what_others_of_its_model_showed() {
        let fleet = Shared::default();
        let mut keeper = Keeper::new(Arc::clone(&fleet), LIMITS, Speed::default());
        let mut records = vec![record("a:1", &json!({}))];
        keeper.publish(records.clone(), Origin::Registered, Instant::now());
        let life = |id: &str| {
            let fleet = fleet.load();
            let worker = fleet.workers().find(|worker| worker.record.worker_id == id);
            Arc::clone(&worker.unwrap().life)
        };
        let terms = Terms {
            uncached_tokens: 4096.0,
            ettft_seconds: 0.5,
            prefill_seconds: 0.5,
            ..Terms::default()
        };
        for _ in 0..100 {
            life("a:1").observe(4096.0, &terms, 0.2);
        }
        records.push(record("b:1", &json!({})));
        records.push(record("c:1", &json!({"model_name": "other"})));
        keeper.publish(records, Origin::Registered, Instant::now());
        let alpha = |id| life(id).speed().alpha;
        assert!((alpha("b:1") / alpha("a:1") - 1.0).abs() < 0.05);
        assert!((alpha("c:1") / Speed::default().alpha - 1.0).abs() < 1e-9);
        // With its last worker a model is forgotten.
        keeper.publish(Vec::new(), Origin::Registered, Instant::now());
        let much_later = Instant::now() + 2 * PARKED_FOR;
        keeper.publish(vec![record("d:1", &json!({}))], Origin::Registered, much_later);
        let again = vec![record("d:1", &json!({})), record("e:1", &json!({}))];
        keeper.publish(again, Origin::Registered, much_later);
        assert_eq!(keeper.models.len(), 1);
    }

    #[test]
    fn a_life_outlives_a_lost_lease_and_ends_with_another_shape() {
        let same = || Some(json!({}));
        assert!(keeps_its_life(&[(1, same())]));
        assert!(keeps_its_life(&[(1, None), (60, same())]));
        assert!(!keeps_its_life(&[(1, None), (61, same())]));
        assert!(keeps_its_life(&[(1, Some(json!({"note": "unknown"})))]));
        for another in [
            json!({"kv_events_endpoint": "tcp://a:7"}),
            json!({"kv_block_size": 32}),
            json!({"dp_size": 2}),
            json!({"url": "http://a:2"}),
        ] {
            assert!(!keeps_its_life(&[(1, Some(another.clone()))]), "{another}");
            assert!(!keeps_its_life(&[(1, None), (2, Some(another))]));
        }
    }
}
