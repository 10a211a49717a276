//! The fuzz targets' checks on the stable toolchain: every file of the seed corpus, and seeded
//! mutations of it.

#[path = "../../../tests/fuzz/src/wire.rs"]
#[expect(unreachable_pub, clippy::expect_used, reason = "a crate of its own for the fuzz targets")]
mod checks;
#[path = "../../../tests/fuzz/src/events.rs"]
#[expect(unreachable_pub, clippy::expect_used, reason = "a crate of its own for the fuzz targets")]
mod events;
#[path = "../../../tests/fuzz/seeded.rs"]
mod seeded;

use seeded::{Random, SEED, corpus, run};

/// Of each file. Raise it to search longer.
const MUTATIONS: u64 = 400;

#[test]
fn protocol_1_requests() {
    run("v1_request", MUTATIONS, checks::v1_request);
}

#[test]
fn protocol_2_requests() {
    run("v2_request", MUTATIONS, checks::v2_request);
}

#[test]
fn protocol_2_replies() {
    run("v2_reply", MUTATIONS, checks::v2_reply);
}

#[test]
fn published_events() {
    run("events", MUTATIONS, events::payload);
}

#[test]
fn mutations_reach_both_outcomes() {
    let files = corpus("v1_request");
    let mut random = Random(SEED);
    let (mut served, mut closed, mut told) = (0, 0, 0);
    for _ in 0..4000 {
        let mut body = files[random.below(files.len())].clone();
        random.mutate(&mut body, &files);
        match kvd_proto::v1::Request::decode(&body) {
            Ok(_) => served += 1,
            Err(rejected) if rejected.closes() => closed += 1,
            Err(_) => told += 1,
        }
    }
    assert!(served > 100 && closed > 100 && told > 100, "{served} {closed} {told}");
}
