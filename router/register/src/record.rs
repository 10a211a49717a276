//! From what is known of an engine to the records that make it a worker. Pure.

use std::collections::BTreeMap;

use router_core::record::{
    DisaggMode, Engine, RequestTransport, Status, WorkerCache, WorkerRecord,
};
use serde_json::Map;

use crate::command_line::Ranks;
use crate::events::{Place, Publisher, TOPIC, place};

/// The release of the engines' events.
const EVENT_VERSION: u32 = 1;

/// What is known of an engine that answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    pub(crate) engine: Engine,
    pub(crate) model: String,
    /// Id or folder of what it has loaded, by which its host's daemon knows it.
    pub(crate) model_root: Option<String>,
    /// `http`, or `https`.
    pub(crate) scheme: &'static str,
    pub(crate) port: u16,
    pub(crate) ranks: Ranks,
    /// Tokens in a block; nothing if only its events will tell.
    pub(crate) block_size: Option<u32>,
    pub(crate) events: Events,
    pub(crate) max_decodes: Option<u32>,
    pub(crate) tokenizer: Option<Tokenizer>,
    pub(crate) disagg_mode: DisaggMode,
}

/// How a tokenizer is known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tokenizer {
    /// Name or folder.
    pub(crate) name: String,
    /// Of its file, if it is within reach.
    pub(crate) digest: Option<String>,
    pub(crate) canary: Vec<u32>,
}

/// What is known of an engine's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Events {
    /// The operator says where rank 0 publishes.
    Given(String),
    /// Rank 0 as it was configured.
    Configured(Publisher),
    /// Each rank as the engine tells.
    Told(BTreeMap<u32, Publisher>),
    /// There are none.
    Off,
}

/// The records, and what stands in the way of more.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Records {
    pub(crate) records: Vec<WorkerRecord>,
    pub(crate) remarks: Vec<String>,
}

/// One record for the engine, or one for each of its ports.
pub(crate) fn records(facts: &Facts, host: &str) -> Records {
    let mut remarks = Vec::new();
    let servers = servers(facts);
    if facts.ranks == Ranks::Some {
        let remark = "only some of the ranks are behind this port, which no record can say: it is registered as one \
                      worker without cache events; use --data-parallel-multi-port-external-lb";
        remarks.push(remark.to_owned());
    }
    let records = servers.into_iter().map(|server| {
        let found = sources(facts, server).unwrap_or_else(|remark| {
            remarks.push(format!("{remark}; requests are sent here without regard to its cache"));
            None
        });
        record(facts, host, server, found.as_ref())
    });
    let records = records.collect();
    remarks.dedup();
    Records { records, remarks }
}

/// A server and the rank, or the ranks, behind it.
#[derive(Clone, Copy)]
struct Server {
    port: u16,
    dp_rank: Option<u32>,
    dp_size: Option<u32>,
}

fn servers(facts: &Facts) -> Vec<Server> {
    let (port, alone) = (facts.port, Server { port: facts.port, dp_rank: None, dp_size: None });
    match facts.ranks {
        Ranks::Unsaid | Ranks::Some => vec![alone],
        Ranks::Multiplexed { size } => vec![Server { dp_size: Some(size), ..alone }],
        Ranks::One { rank, size } => {
            vec![Server { dp_rank: Some(rank), dp_size: Some(size), ..alone }]
        }
        Ranks::PortEach { first, local, size } => (first..first.saturating_add(local).min(size))
            .zip(port..=u16::MAX)
            .map(|(rank, port)| Server { port, dp_rank: Some(rank), dp_size: Some(size) })
            .collect(),
    }
}

/// Where a server's events are published and replayed.
#[derive(Debug)]
struct Sources {
    events: Place,
    replay: Option<Place>,
}

/// With several ranks behind the server: those of rank 0, where the others follow. Nothing if it publishes none.
fn sources(facts: &Facts, server: Server) -> Result<Option<Sources>, String> {
    let rank = server.dp_rank.unwrap_or(0);
    if facts.ranks == Ranks::Some {
        return Ok(None);
    }
    let (publisher, further) = match &facts.events {
        Events::Off => {
            return Err("the engine publishes no cache events (--kv-events-config)".to_owned());
        }
        Events::Given(endpoint) => {
            let events = further(&place(endpoint)?, rank)?;
            return Ok(Some(Sources { events, replay: None }));
        }
        Events::Configured(publisher) => (publisher, rank),
        Events::Told(ranks) => {
            let first =
                ranks.get(&rank).or_else(|| ranks.values().next().filter(|_| ranks.len() == 1));
            let first = first.ok_or_else(|| format!("the engine tells nothing of rank {rank}"))?;
            if server.dp_rank.is_none() {
                follow(ranks, server.dp_size.unwrap_or(1))?;
            }
            (first, 0)
        }
    };
    if !publisher.topic.starts_with(TOPIC) {
        let topic = &publisher.topic;
        return Err(format!(
            "cache events are published as {topic:?}, and routers listen to {TOPIC:?}"
        ));
    }
    let events = self::further(&publisher.place()?, further)?;
    let replay = publisher.replay.as_deref().and_then(|endpoint| place(endpoint).ok());
    let replay = replay.map(|replay| self::further(&replay, further)).transpose()?;
    Ok(Some(Sources { events, replay }))
}

fn further(place: &Place, rank: u32) -> Result<Place, String> {
    place.further(rank).ok_or_else(|| format!("there is no port for the events of rank {rank}"))
}

/// Whether each rank's port follows the one before, as a record has to claim.
fn follow(ranks: &BTreeMap<u32, Publisher>, size: u32) -> Result<(), String> {
    let Some(first) = ranks.get(&0).filter(|_| size > 1) else { return Ok(()) };
    let first = first.place()?;
    let follows = |rank: u32| {
        let found = ranks.get(&rank)?.place().ok()?;
        (found == first.further(rank)?).then_some(())
    };
    (1..size).try_for_each(|rank| {
        follows(rank).ok_or_else(|| {
            format!("the events of rank {rank} are not at the port of rank 0 + {rank}: give it a port, not 0")
        })
    })
}

fn record(facts: &Facts, host: &str, server: Server, sources: Option<&Sources>) -> WorkerRecord {
    let worker_id = format!("{host}:{}", server.port);
    let events = sources.map(|sources| sources.events.endpoint(host));
    let replay = sources.and_then(|sources| sources.replay.as_ref());
    let mut more = Map::new();
    if let Some(replay) = replay {
        more.insert("kv_replay_endpoint".to_owned(), replay.endpoint(host).into());
    }
    if let Some(count) = facts.max_decodes {
        more.insert("max_decodes".to_owned(), count.into());
    }
    if let Some(root) = facts.model_root.as_deref().filter(|root| *root != facts.model) {
        more.insert("model_root".to_owned(), root.trim_end_matches('/').into());
    }
    WorkerRecord {
        url: format!("{}://{worker_id}", facts.scheme),
        worker_id,
        model_name: facts.model.clone(),
        engine: facts.engine,
        status: Status::Active,
        disagg_mode: facts.disagg_mode,
        disagg_meta: None,
        kv: cache(facts, events.as_ref()),
        kv_events_endpoint: events,
        kv_block_size: facts.block_size,
        dp_rank: server.dp_rank,
        dp_size: server.dp_size,
        request_transport: RequestTransport::Http,
        kvd: None,
        unknown: more,
    }
}

/// Complete or not at all: there are readers that give up a record with half of it.
fn cache(facts: &Facts, events: Option<&String>) -> Option<WorkerCache> {
    let tokenizer = facts.tokenizer.as_ref()?;
    let block_size = facts.block_size?;
    Some(WorkerCache {
        engine_block_size: Some(block_size),
        index_block_size: Some(block_size),
        tokenizer: Some(tokenizer.name.clone()),
        tokenizer_digest: Some(tokenizer.digest.clone().unwrap_or_default()),
        tokenizer_canary: Some(tokenizer.canary.clone()),
        supports_events: Some(events.is_some()),
        event_version: Some(EVENT_VERSION),
        events_endpoint: events.cloned(),
        snapshot_endpoint: None,
        tiers: vec!["device".to_owned()],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn publisher(endpoint: &str) -> Publisher {
        Publisher {
            is_on: true,
            endpoint: endpoint.to_owned(),
            replay: Some("tcp://*:5600".to_owned()),
            topic: "kv-events".to_owned(),
            binds: None,
        }
    }

    fn facts(ranks: Ranks, events: Events) -> Facts {
        Facts {
            engine: Engine::Vllm,
            model: "m".to_owned(),
            model_root: Some("/models/m-7b/".to_owned()),
            scheme: "http",
            port: 8000,
            ranks,
            block_size: Some(16),
            events,
            max_decodes: Some(4),
            tokenizer: Some(Tokenizer { name: "/t".into(), digest: None, canary: vec![1, 2] }),
            disagg_mode: DisaggMode::Mixed,
        }
    }

    /// Id, rank, size, events of a record.
    type Brief<'a> = (&'a str, Option<u32>, Option<u32>, Option<&'a str>);

    fn brief(records: &Records) -> Vec<Brief<'_>> {
        let mut rows = Vec::new();
        for record in &records.records {
            let WorkerRecord { worker_id, dp_rank, dp_size, .. } = record;
            rows.push((worker_id.as_str(), *dp_rank, *dp_size, record.events_endpoint()));
        }
        rows
    }

    #[test]
    fn a_record_says_all_that_is_known() {
        let found =
            records(&facts(Ranks::Unsaid, Events::Configured(publisher("tcp://*:5557"))), "h");
        let record = serde_json::to_value(&found.records[0]).unwrap();
        let wanted = json!({
            "worker_id": "h:8000", "url": "http://h:8000", "model_name": "m", "engine": "vllm", "status": "active",
            "disagg_mode": "mixed", "disagg_meta": null, "kv_events_endpoint": "tcp://h:5557", "kv_block_size": 16,
            "dp_rank": null, "dp_size": null, "request_transport": "http", "kvd": null,
            "kv": {"engine_block_size": 16, "index_block_size": 16, "tokenizer": "/t", "tokenizer_digest": "",
                   "tokenizer_canary": [1, 2], "supports_events": true, "event_version": 1,
                   "events_endpoint": "tcp://h:5557", "snapshot_endpoint": null, "tiers": ["device"]},
            "kv_replay_endpoint": "tcp://h:5600", "max_decodes": 4, "model_root": "/models/m-7b"});
        assert_eq!(record, wanted);
        assert_eq!(found.remarks, Vec::<String>::new());
    }

    #[test]
    fn ranks_share_a_record_or_have_their_own() {
        let configured = || Events::Configured(publisher("tcp://*:5557"));
        let found = records(&facts(Ranks::Multiplexed { size: 2 }, configured()), "h");
        assert_eq!(brief(&found), [("h:8000", None, Some(2), Some("tcp://h:5557"))]);
        let found = records(&facts(Ranks::One { rank: 3, size: 4 }, configured()), "h");
        assert_eq!(brief(&found), [("h:8000", Some(3), Some(4), Some("tcp://h:5560"))]);
        let found =
            records(&facts(Ranks::PortEach { first: 2, local: 2, size: 4 }, configured()), "h");
        let wanted = [
            ("h:8000", Some(2), Some(4), Some("tcp://h:5559")),
            ("h:8001", Some(3), Some(4), Some("tcp://h:5560")),
        ];
        assert_eq!(brief(&found), wanted);
        let found = records(&facts(Ranks::Some, configured()), "h");
        assert_eq!(brief(&found), [("h:8000", None, None, None)]);
        assert_eq!(found.remarks.len(), 1);
    }

    #[test]
    fn what_the_engine_tells_of_its_ranks_has_to_fit_the_record() {
        let told = |ports: &[u16]| {
            let publishers = ports.iter().map(|port| publisher(&format!("tcp://*:{port}")));
            Events::Told((0..).zip(publishers).collect())
        };
        let multiplexed = Ranks::Multiplexed { size: 2 };
        let found = records(&facts(multiplexed, told(&[7, 8])), "h");
        assert_eq!(brief(&found)[0].3, Some("tcp://h:7"));
        for ports in [&[7, 9][..], &[7], &[]] {
            let found = records(&facts(multiplexed, told(ports)), "h");
            assert_eq!((brief(&found)[0].3, found.remarks.len()), (None, 1), "{ports:?}");
        }
        // A server of one rank tells of that one only.
        let own = Events::Told([(3, publisher("tcp://*:9"))].into());
        let found = records(&facts(Ranks::One { rank: 3, size: 4 }, own), "h");
        assert_eq!(brief(&found)[0].3, Some("tcp://h:9"));
    }

    #[test]
    fn events_that_reach_nobody_are_remarked() {
        let mut other_topic = publisher("tcp://*:5557");
        other_topic.topic = String::new();
        for (events, remark) in [
            (Events::Off, "publishes no cache events"),
            (Events::Configured(other_topic), "routers listen to"),
            (Events::Configured(publisher("tcp://10.0.0.1:1")), "instead of listening"),
            (Events::Given("ipc://x".to_owned()), "nobody elsewhere can connect"),
        ] {
            let found = records(&facts(Ranks::Unsaid, events), "h");
            assert_eq!(brief(&found)[0].3, None);
            assert!(found.remarks[0].contains(remark), "{:?}", found.remarks);
            assert_eq!(found.records[0].kv.as_ref().unwrap().supports_events, Some(false));
        }
        let given = Events::Given("tcp://nat:7".to_owned());
        assert_eq!(brief(&records(&facts(Ranks::Unsaid, given), "h"))[0].3, Some("tcp://nat:7"));
    }

    #[test]
    fn half_of_what_is_said_of_a_cache_is_not_said() {
        let mut known = facts(Ranks::Unsaid, Events::Off);
        known.block_size = None;
        let record = &records(&known, "h").records[0];
        assert_eq!((record.kv.as_ref(), record.block_size()), (None, None));
        let mut known = facts(Ranks::Unsaid, Events::Off);
        known.tokenizer = None;
        let record = &records(&known, "h").records[0];
        assert_eq!((record.kv.as_ref(), record.block_size()), (None, Some(16)));
    }
}
