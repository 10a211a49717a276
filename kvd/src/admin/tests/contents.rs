//! What the answers say about a store and its sessions.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;
use kvd_shm::peer::PeerCredentials;
use kvd_store::{ClearCursor, ClearScope, Hold, Input, Keys, Writer};
use serde_json::Value;

use super::{ARENA_BYTES, NAMESPACE, Rig};
use crate::meters::{Op, SessionEnd};
use crate::registry::Facts;

#[test]
fn stats_add_up() {
    let rig = Rig::new(&[]);
    let session = rig.open(1);
    rig.store(session, NAMESPACE, b"present", 1000);
    let keys: [&[u8]; 2] = [b"present", b"absent"];
    rig.apply(Input::Fetch {
        session,
        namespace: NAMESPACE,
        keys: Keys::slices(&keys),
        prefix: false,
        hold: Hold::Lease,
    });
    let stats = rig.get("/v1/stats");
    assert_eq!(stats["epoch"], rig.daemon.status.epoch);
    assert_eq!(stats["tiers"]["host"]["entries"], 1);
    assert_eq!(stats["tiers"]["host"]["payload_bytes"], 1000);
    assert_eq!(stats["totals"]["gets"], 2);
    assert_eq!(stats["totals"]["hits"], 1);
    assert_eq!(stats["misses_by_reason"]["never_stored"], 1);
    assert_eq!(stats["held"]["leases"], 1);
    let memory = &stats["memory"];
    let states = ["free_bytes", "ticketed_bytes", "stored_bytes", "orphaned_bytes"];
    let sum: u64 = states.iter().map(|state| memory[state].as_u64().unwrap()).sum();
    assert_eq!(sum, ARENA_BYTES, "{memory}");
    assert_eq!(memory["payload_bytes"], 1000);
}

#[test]
fn listings_page_through_everything_once() {
    let rig = Rig::new(&[]);
    let session = rig.open(1);
    for number in 0..150_u8 {
        rig.store(session, NAMESPACE, &[7, number], u64::from(number));
    }
    let mut seen = Vec::new();
    let mut path = "/v1/ls?limit=40".to_owned();
    loop {
        let page = rig.get(&path);
        let rows = page["rows"].as_array().unwrap();
        assert!(rows.len() <= 40);
        seen.extend(rows.iter().map(|row| row["key"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_u64() else {
            break;
        };
        path = format!("/v1/ls?limit=40&cursor={next}");
    }
    seen.sort();
    let wanted: Vec<String> = (0..150).map(|number| format!("07{number:02x}")).collect();
    assert_eq!(seen, wanted);
}

#[test]
fn listings_filter_by_namespace_and_key() {
    let rig = Rig::new(&[]);
    let session = rig.open(1);
    let other = Namespace { model: "org/m", compat_key: "tp1of2" };
    rig.store(session, NAMESPACE, &[0xAB, 1], 10);
    rig.store(session, NAMESPACE, &[0xCD, 1], 20);
    rig.store(session, other, &[0xAB, 1], 30);
    let lengths = |query: &str| -> Vec<u64> {
        let page = rig.get(&format!("/v1/ls?{query}"));
        assert_eq!(page["next"], Value::Null);
        let rows = page["rows"].as_array().unwrap();
        let mut lengths: Vec<u64> =
            rows.iter().map(|row| row["len_bytes"].as_u64().unwrap()).collect();
        lengths.sort_unstable();
        lengths
    };
    assert_eq!(lengths(""), [10, 20, 30]);
    assert_eq!(lengths("prefix=ab"), [10, 30]);
    assert_eq!(lengths("compat_key=tp0of1"), [10, 20]);
    assert_eq!(lengths("model=org%2Fm&compat_key=tp1of2&prefix=AB01"), [30]);
    assert_eq!(lengths("model=other"), [0_u64; 0]);
    let row = rig.get("/v1/ls?prefix=cd")["rows"][0].clone();
    assert_eq!(row["retention"], "short");
    assert_eq!(row["model"], "org/m");
    assert_eq!(row["pins"], 0);
}

#[test]
fn why_explains_presence_absence_and_the_wrong_namespace() {
    let rig = Rig::new(&[]);
    let session = rig.open(1);
    rig.store(session, NAMESPACE, &[1, 2, 3], 10);
    let found = rig.get("/v1/why?key=010203&model=org/m&compat_key=tp0of1");
    assert_eq!(found["present"], true);
    assert_eq!(found["row"]["len_bytes"], 10);
    let elsewhere = rig.get("/v1/why?key=010203&model=org/m&compat_key=tp0of2");
    assert_eq!(elsewhere["present"], false);
    assert_eq!(elsewhere["reason"], "other_namespace");
    assert_eq!(elsewhere["elsewhere"]["compat_key"], "tp0of1");
    let never = rig.get("/v1/why?key=ff&model=org/m&compat_key=tp0of1");
    assert_eq!(never["reason"], "never_stored");
    let everything = ClearScope::Everything;
    rig.apply(Input::Clear { scope: everything, cursor: ClearCursor::START });
    let cleared = rig.get("/v1/why?key=010203&model=org/m&compat_key=tp0of1");
    assert_eq!(cleared["reason"], "cleared");
    assert_eq!(cleared["explanation"], "removed by a clear");
}

#[test]
fn top_joins_what_a_session_is_with_what_it_holds() {
    let rig = Rig::new(&["--tickets-max=2"]);
    let hog = rig.open(1);
    for _ in 0..3 {
        rig.apply(Input::Reserve {
            session: hog,
            len_bytes: 4096,
            class: Some(Retention::Short),
            writer: Writer::Client,
        });
    }
    let credentials = PeerCredentials { pid: Some(42), uid: 1000, gid: 1000 };
    let facts = Arc::new(Facts::new(hog, credentials));
    facts.client_id.set("hog".to_owned()).unwrap();
    facts.requests.store(3, Ordering::Relaxed);
    let (stream, _peer) = UnixStream::pair().unwrap();
    rig.daemon.registry.insert(facts, Arc::new(stream));
    rig.open(2);
    let top = rig.get("/v1/top");
    assert_eq!(top["caps"]["tickets_max"], 2);
    let [first, second] = top["sessions"].as_array().unwrap().as_slice() else {
        panic!("{top}");
    };
    assert_eq!(first["client_id"], "hog");
    assert_eq!((first["pid"].clone(), first["uid"].clone()), (42.into(), 1000.into()));
    assert_eq!((first["tickets"].clone(), first["refused_total"].clone()), (2.into(), 1.into()));
    assert_eq!(first["at_cap"], serde_json::json!(["tickets"]));
    assert_eq!(first["requests"], 3);
    assert_eq!(second["id"], 2);
    assert_eq!(second["client_id"], Value::Null);
    assert_eq!(second["at_cap"], serde_json::json!([]));
}

#[test]
fn quarantine_is_released_for_closed_sessions_only() {
    let rig = Rig::new(&[]);
    let lost = rig.open(1);
    let reserve = Input::Reserve {
        session: lost,
        len_bytes: 4096,
        class: Some(Retention::Short),
        writer: Writer::Client,
    };
    rig.apply(reserve);
    let credentials = PeerCredentials { pid: None, uid: 0, gid: 0 };
    let (stream, _peer) = UnixStream::pair().unwrap();
    rig.daemon.registry.insert(Arc::new(Facts::new(lost, credentials)), Arc::new(stream));
    let (code, error) = rig.refused("POST", "/v1/quarantine/release?session=1");
    assert_eq!((code, error["code"].clone()), (409, "conflict".into()));
    rig.daemon.registry.remove(lost);
    rig.apply(Input::Close { session: lost });
    let quarantined = rig.get("/v1/stats")["held"]["quarantined_bytes"].as_u64().unwrap();
    assert!(quarantined >= 4096);
    let top = rig.get("/v1/top");
    assert_eq!(top["sessions"][0]["closed"], true);
    let (code, body) = rig.ask("POST", "/v1/quarantine/release?session=1");
    assert_eq!((code, body), (200, format!("{{\"released_bytes\":{quarantined}}}")));
    assert_eq!(rig.get("/v1/stats")["held"]["quarantined_bytes"], 0);
    assert_eq!(rig.ask("GET", "/v1/quarantine/release").0, 405);
}

#[test]
fn metrics_have_help_and_type_and_the_right_values() {
    let rig = Rig::new(&[]);
    let session = rig.open(1);
    rig.store(session, NAMESPACE, b"key", 1000);
    rig.daemon.meters.sessions_ended.count(SessionEnd::WriteStall);
    rig.daemon.meters.requests.of(Op::Fetch).observe(Duration::from_micros(15));
    let (code, text) = rig.ask("GET", "/metrics");
    assert_eq!(code, 200);
    for line in [
        "# HELP infera_kvd_entries Rows in host memory.",
        "# TYPE infera_kvd_entries gauge",
        "infera_kvd_entries 1",
        "infera_kvd_host_bytes 1000",
        "# TYPE infera_kvd_misses_total counter",
        "infera_kvd_misses_total{reason=\"never_stored\"} 0",
        "infera_kvd_sessions_ended_total{reason=\"write_stall\"} 1",
        "infera_kvd_request_seconds_bucket{op=\"fetch\",le=\"0.00003\"} 1",
        "infera_kvd_request_seconds_count{op=\"fetch\"} 1",
        "infera_kvd_arena_bytes 1048576",
        "infera_kvd_ready 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
    check_exposition(&text);
}

/// Every sample follows the HELP and TYPE of its family, and no series appears twice.
fn check_exposition(text: &str) {
    let mut family = String::new();
    let mut series = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.split(' ');
            let keyword = words.next().unwrap();
            assert!(keyword == "HELP" || keyword == "TYPE", "{line}");
            family = words.next().unwrap().to_owned();
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with(&family), "{name} is not of the family {family}");
        assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        assert!(series.insert(name.to_owned()), "{name} appears twice");
    }
    assert!(series.len() > 60, "{}", series.len());
}
