//! A router under steady load while whatever is around it dies, hangs, forgets or comes back elsewhere: no request fails
//! that somebody could have served, and what it knows is soon right again.

#![expect(clippy::print_stderr, reason = "figures of a run")]
#![expect(clippy::unwrap_used, reason = "a case stops at the first surprise")]

use std::thread::park_timeout;
use std::time::{Duration, Instant};

use kvd_client::Retention;
use kvd_tests::content::Random;
use kvd_tests::disk::{has, put};
use kvd_tests::engine::client_at;
use kvd_tests::figures::wait_warm;
use kvd_tests::router::client::get;
use kvd_tests::router::engine::Manner;
use kvd_tests::router::load::{Fate, Outcome};
use kvd_tests::router::publisher::prompt;
use kvd_tests::router::site::{COMMON_PAGES, HOSTED_FAMILIES, HOSTS, JUDGED, page_keys};
use kvd_tests::router::{Engine, Etcd, Load, Lossy, Router, Site, post};
use kvd_tests::until::{until, until_true, within};
use kvd_tests::{Launch, PATIENCE};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// After a start requests go where they should within this time.
const QUALITY_BACK: Duration = Duration::from_secs(5);
/// How much worse may be chosen then: one request in ten.
const SLACK: f64 = 0.1;
/// A connection that is dead without a word is noticed, and etcd's keys are listed anew.
const NOTICED: Duration = Duration::from_secs(60);
const L2: &str = r#"infera_router_index_entries{tier="l2"}"#;
/// Pages that one daemon has.
const HOSTED_PAGES: u64 = (COMMON_PAGES * HOSTED_FAMILIES) as u64;

/// Requests that may have failed, and how.
struct Excuse {
    from: Instant,
    to: Instant,
    is_meant: Box<dyn Fn(&Fate) -> bool>,
}

/// No request failed without an excuse.
fn judge(fates: &[Fate], excuses: &[Excuse]) {
    let is_excused =
        |fate: &Fate| excuses.iter().any(|it| fate.overlaps(it.from, it.to) && (it.is_meant)(fate));
    let failed = fates.iter().filter(|fate| fate.outcome != Outcome::Served);
    let unexcused: Vec<&Fate> = failed.filter(|fate| !is_excused(fate)).collect();
    assert!(unexcused.is_empty(), "{} of {}: {unexcused:#?}", unexcused.len(), fates.len());
    let slowest = fates.iter().map(|fate| fate.ended - fate.began).max();
    eprintln!("{} requests, the slowest {slowest:?}", fates.len());
}

/// Lets the load go on for a while.
fn go_on(load: &Load, requests: usize) {
    let target = load.fates().len() + requests;
    until_true("requests are served", || load.fates().len() >= target);
}

fn stale(site: &Site) -> f64 {
    site.router().metric("infera_router_discovery_stale_seconds").unwrap_or(f64::NAN)
}

fn wait_until_followed(site: &Site) {
    until("etcd is followed", NOTICED, || (stale(site) < 0.001).then_some(()));
}

/// Ends the router as an operator would: nobody begins a request while it is not ready.
fn restart_with_care(site: &mut Site, load: &Load) {
    let router = site.take_router();
    router.signal(Signal::SIGTERM);
    until_true("it says that it leaves", || get(router.address(), "/ready").0 == 503);
    load.hold(true);
    assert!(router.wait().success());
    site.start_router();
    site.wait_ready();
    load.hold(false);
}

/// Ends the router as the kernel would; the requests under way then are excused.
fn restart_at_once(site: &mut Site) -> Excuse {
    let router = site.take_router();
    let from = Instant::now();
    drop(router);
    let to = Instant::now();
    site.start_router();
    site.wait_ready();
    Excuse { from, to, is_meant: Box::new(|_| true) }
}

#[test]
fn a_router_that_starts_anew_chooses_as_well_as_before_and_loses_only_what_was_under_way() {
    let mut site = Site::start(&[]);
    let load = site.load();
    let before = Site::settled(&load);
    let mut excuses = Vec::new();
    for _ in 0..2 {
        restart_with_care(&mut site, &load);
        report_quality(&load, before, "SIGTERM");
        excuses.push(restart_at_once(&mut site));
        report_quality(&load, before, "SIGKILL");
    }
    judge(&load.finish(), &excuses);
    site.wait_for_truth();
}

fn report_quality(load: &Load, before: f64, how: &str) {
    let ready = Instant::now();
    let quality = until("the former quality", QUALITY_BACK, || {
        load.quality(ready, JUDGED).filter(|quality| *quality >= before - SLACK)
    });
    eprintln!("{how}: {before} before, {quality} after {:?}", ready.elapsed());
}

#[test]
fn requests_go_on_whatever_becomes_of_etcd() {
    let mut site = Site::start(&[]);
    let load = site.load();
    let before = Site::settled(&load);
    site.etcd.kill();
    until_true("the router has noticed", || stale(&site) > 0.0);
    go_on(&load, 80);
    site.etcd.resume();
    // What it would go on from may be gone already; either way is right.
    for _ in 0..5 {
        site.etcd.put("/elsewhere", &serde_json::json!({}));
    }
    site.etcd.compact(site.etcd.revision());
    wait_until_followed(&site);
    site.wait_registered();
    eprintln!("etcd was killed: {} requests so far", load.fates().len());
    judge(&load.fates(), &[]);
    site.etcd.kill();
    site.etcd.resume_empty();
    wait_until_followed(&site);
    go_on(&load, 80);
    site.wait_registered();
    eprintln!("etcd had forgotten: {} requests so far", load.fates().len());
    judge(&load.fates(), &[]);
    site.etcd.signal(Signal::SIGSTOP);
    until("the router has noticed", NOTICED, || (stale(&site) > 0.0).then_some(()));
    go_on(&load, 80);
    site.etcd.signal(Signal::SIGCONT);
    wait_until_followed(&site);
    go_on(&load, 80);
    site.wait_registered();
    let after = Site::settled(&load);
    eprintln!("etcd hung; quality {before} before, {after} after all");
    judge(&load.finish(), &[]);
    site.wait_for_truth();
}

/// An answer that had begun when its engine was killed.
fn cut_off(engine: String, from: Instant) -> Excuse {
    let is_meant = move |fate: &Fate| {
        fate.outcome == Outcome::Interrupted && fate.engine.as_ref() == Some(&engine)
    };
    Excuse { from, to: Instant::now(), is_meant: Box::new(is_meant) }
}

#[test]
fn an_engine_that_dies_or_hangs_costs_only_what_it_had_begun() {
    let breaker = ["--breaker-cooldown-s", "2", "--http-req-idle-timeout-s", "2"];
    let mut site = Site::start(&breaker);
    let load = site.load();
    Site::settled(&load);
    // Its record stays, and it has answers under way.
    let busiest = |site: &Site| {
        let pages = |at: &usize| site.engines()[*at].page_count();
        (0..site.engines().len()).max_by_key(pages).unwrap()
    };
    let it = busiest(&site);
    let killed = site.engines()[it].id();
    site.engines()[it].behave(Manner::Paced(Duration::from_secs(1)));
    let in_flight = format!("infera_router_worker_in_flight{{worker_id=\"{killed}\"}}");
    until_true("it has something to do", || site.router().metric(&in_flight) > Some(2.0));
    let from = Instant::now();
    site.crash(it);
    let mut excuses = vec![cut_off(killed.clone(), from)];
    go_on(&load, 120);
    assert!(site.etcd.record(&killed).is_some());
    judge(&load.fates(), &excuses);
    let cut = load.fates().iter().filter(|fate| fate.outcome == Outcome::Interrupted).count();
    assert!(cut > 0, "nothing was under way");
    // Back on other ports for events.
    site.revive(it);
    site.wait_registered();
    site.wait_known();
    // Nobody else has this, and the router hears of it.
    site.engines()[it].ask(&prompt(50, 640));
    Site::settled(&load);
    // It takes requests and says nothing.
    let it = busiest(&site);
    let silent = site.engines()[it].id();
    let state = format!("infera_router_worker_breaker_state{{worker_id=\"{silent}\"}}");
    let from = Instant::now();
    site.engines()[it].behave(Manner::Silent);
    until_true("it is left alone", || site.router().metric(&state) == Some(2.0));
    let to = Instant::now();
    let is_meant =
        |fate: &Fate| fate.outcome == Outcome::Refused(504, "upstream_timeout".to_owned());
    excuses.push(Excuse { from, to, is_meant: Box::new(is_meant) });
    site.engines()[it].behave(Manner::Paced(Duration::ZERO));
    go_on(&load, 80);
    until_true("it is trusted again", || site.router().metric(&state) == Some(0.0));
    judge(&load.finish(), &excuses);
    site.wait_for_truth();
}

#[test]
fn what_a_daemon_has_counts_again_soon_after_it_was_away() {
    let mut site = Site::start(&[]);
    let load = site.load();
    Site::settled(&load);
    let l2 = |site: &Site| site.router().count(L2);
    let wait_for = |site: &Site, pages: u64| {
        until("the tier's pages", NOTICED, || (l2(site) == pages).then_some(()));
    };
    wait_for(&site, 2 * HOSTED_PAGES);
    // Another life, with what was there before anybody heard of it.
    site.kill_daemon(0);
    site.start_daemon(0);
    site.wait_registered();
    wait_for(&site, 2 * HOSTED_PAGES);
    Site::settled(&load);
    // One that hangs is not believed for longer than its lease.
    site.daemon(1).signal(Signal::SIGSTOP);
    wait_for(&site, HOSTED_PAGES);
    go_on(&load, 40);
    site.daemon(1).signal(Signal::SIGCONT);
    wait_for(&site, 2 * HOSTED_PAGES);
    Site::settled(&load);
    judge(&load.finish(), &[]);
    site.wait_for_truth();
}

/// A router that looks at caches.
fn router_of(etcd: &Etcd) -> Router {
    let endpoint = etcd.address().to_string();
    let tokenizer =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../router/tokens/tests/models/byte_level");
    let words = ["--etcd-endpoint", &endpoint, "--router-policy", "kv-aware"];
    Router::start(&[&words[..], &["--kv-tokenizer-path", tokenizer]].concat())
}

fn view(router: &Router, engine: &Engine) -> Value {
    let path = format!("/v1/admin/cache-view/{}", engine.id());
    serde_json::from_str(&get(router.address(), &path).1).unwrap()
}

fn wait_for_pages(router: &Router, engine: &Engine) {
    let mut last = (0, Value::Null);
    let is_right = within(PATIENCE, || {
        last = (engine.page_count(), view(router, engine));
        (last.1["block_count"] == last.0).then_some(())
    });
    assert!(is_right.is_some(), "{last:?}");
}

#[test]
fn messages_of_engines_that_are_lost_are_had_again_or_doubted() {
    let etcd = Etcd::start();
    // One that replays, and one that does not.
    let engines = [true, false].map(|replays| Engine::start(replays, u32::MAX));
    for engine in &engines {
        etcd.register(&engine.id(), &engine.record());
    }
    let router = router_of(&etcd);
    until_true("both are heard", || {
        router.worker_ids().len() == 2
            && engines.iter().all(|engine| view(&router, engine)["is_connected"] == true)
    });
    for engine in &engines {
        engine.lose_every(Some(5));
        // More than it has room for, so that it drops some too.
        (1..=60).for_each(|seed| engine.ask(&prompt(seed, 400)));
        engine.lose_every(None);
        // Only a later message shows that one is missing.
        engine.ask(&prompt(100, 400));
        assert!(engine.lost() >= 10, "{engine:?}");
    }
    let [replays, does_not] = &engines;
    wait_for_pages(&router, replays);
    until_true("it is believed", || view(&router, replays)["is_doubted"] == false);
    until_true("the other one is not", || view(&router, does_not)["is_doubted"] == true);
    for seed in 1..=20 {
        let body = json!({"model": "m", "prompt": prompt(seed, 400), "stream": true}).to_string();
        let mut reply = post(router.address(), "/v1/completions", &[], &body);
        assert!(reply.text().ends_with("data: [DONE]\n\n"));
    }
    // Who begins from nothing, and says so, is known again.
    does_not.flush();
    (1..=5).for_each(|seed| does_not.ask(&prompt(seed, 400)));
    wait_for_pages(&router, does_not);
    wait_for_pages(&router, replays);
    assert_eq!(does_not.page_count(), 125);
}

#[test]
fn messages_of_daemons_that_are_lost_are_had_again() {
    let etcd = Etcd::start();
    let endpoint = format!("http://{}", etcd.address());
    let daemon = Launch::new()
        .args(["--max-bytes", "32M", "--host-id", HOSTS[0]])
        .args(["--etcd-endpoint", &endpoint, "--kvd-prefix", "/elsewhere/"])
        .args(["--events-listen", "127.0.0.1:0", "--events-snapshot-listen", "127.0.0.1:0"])
        .start();
    wait_warm(&daemon);
    let mut record =
        until("it is registered", PATIENCE, || etcd.value(&format!("/elsewhere/{}", HOSTS[0])));
    let line = Lossy::from(record["events_endpoint"].as_str().unwrap(), 7);
    record["events_endpoint"] = line.endpoint().into();
    etcd.put(&format!("/infera/kvd/{}", HOSTS[0]), &record);
    let engine = Engine::start(true, u32::MAX);
    etcd.register(&engine.id(), &engine.record());
    let router = router_of(&etcd);
    until_true("the router is ready", || get(router.address(), "/ready").0 == 200);
    let client = client_at(daemon.socket());
    // Far more than there is room for, until much of it was lost.
    let keys: Vec<String> = (1..=30).flat_map(|seed| page_keys(&prompt(seed, 640))).collect();
    let mut rounds = 0;
    until_true("messages are lost", || {
        keys.iter().for_each(|key| put(&client, key.as_bytes(), 40_000, Retention::Long));
        rounds += 1;
        line.lost() >= 20 && rounds > 1
    });
    let held = keys.iter().filter(|key| has(&client, key.as_bytes(), 40_000)).count();
    assert!(held > 0 && held < keys.len(), "{held}");
    // Also the last message may be lost; every ten seconds there is another one.
    let mut last = 0;
    let is_right = within(PATIENCE, || {
        last = router.count(L2);
        (last == held as u64).then_some(())
    });
    assert!(is_right.is_some(), "{last} pages, not {held}");
    assert!(router.count("infera_router_kv_gaps_total") > 0);
    assert_eq!(router.count("infera_router_kv_digest_mismatch_total"), 0);
}

/// A fault of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    RouterEnds,
    RouterDies,
    EtcdDies,
    EtcdForgets,
    EtcdHangs,
    EngineDies,
    EngineAndSidecarDie,
    EngineHangs,
    DaemonDies,
    DaemonHangs,
    MessagesAreLost,
}

const FAULTS: [Fault; 11] = [
    Fault::RouterEnds,
    Fault::RouterDies,
    Fault::EtcdDies,
    Fault::EtcdForgets,
    Fault::EtcdHangs,
    Fault::EngineDies,
    Fault::EngineAndSidecarDie,
    Fault::EngineHangs,
    Fault::DaemonDies,
    Fault::DaemonHangs,
    Fault::MessagesAreLost,
];

/// Rounds of [`every_fault_at_random_moments`], and the environment's word for more.
const ROUNDS: usize = 30;
const ROUNDS_WANTED: &str = "KVD_TEST_CHAOS_ROUNDS";
const SEED_WANTED: &str = "KVD_TEST_CHAOS_SEED";

fn wanted<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().map(|text| text.parse().ok().unwrap())
}

struct Chaos {
    site: Site,
    random: Random,
    excuses: Vec<Excuse>,
}

impl Chaos {
    fn pause(&mut self, milliseconds_max: usize) {
        let pause = self.random.below(milliseconds_max);
        park_timeout(Duration::from_millis(u64::try_from(pause).unwrap()));
    }

    /// One fault, and its end.
    fn round(&mut self, fault: Fault, load: &Load) {
        let engine = self.random.below(self.site.engines().len());
        let host = self.random.below(HOSTS.len());
        self.pause(200);
        let from = Instant::now();
        match fault {
            Fault::RouterEnds => restart_with_care(&mut self.site, load),
            Fault::RouterDies => self.excuses.push(restart_at_once(&mut self.site)),
            Fault::EtcdDies => {
                self.site.etcd.kill();
                self.pause(500);
                self.site.etcd.resume();
            }
            Fault::EtcdForgets => {
                self.site.etcd.kill();
                self.site.etcd.resume_empty();
            }
            Fault::EtcdHangs => {
                self.site.etcd.signal(Signal::SIGSTOP);
                self.pause(1_000);
                self.site.etcd.signal(Signal::SIGCONT);
            }
            Fault::EngineDies => {
                let id = self.site.engines()[engine].id();
                self.site.engines()[engine].kill();
                self.excuses.push(cut_off(id.clone(), from));
                // Only then does its sidecar look at it anew.
                until_true("its sidecar has noticed", || self.site.etcd.record(&id).is_none());
                self.pause(300);
                self.site.engines()[engine].come_back();
            }
            Fault::EngineAndSidecarDie => {
                self.site.crash(engine);
                self.excuses.push(cut_off(self.site.engines()[engine].id(), from));
                self.pause(500);
                self.site.revive(engine);
            }
            Fault::EngineHangs => {
                self.site.engines()[engine].behave(Manner::Silent);
                self.pause(500);
                self.site.engines()[engine].behave(Manner::Paced(Duration::ZERO));
                // What it got meanwhile is given up after a while.
                let is_meant = |fate: &Fate| {
                    fate.outcome == Outcome::Refused(504, "upstream_timeout".to_owned())
                };
                let to = Instant::now();
                self.excuses.push(Excuse { from, to, is_meant: Box::new(is_meant) });
            }
            Fault::DaemonDies => {
                self.site.kill_daemon(host);
                self.site.start_daemon(host);
            }
            Fault::DaemonHangs => {
                self.site.daemon(host).signal(Signal::SIGSTOP);
                self.pause(1_000);
                self.site.daemon(host).signal(Signal::SIGCONT);
            }
            Fault::MessagesAreLost => {
                self.site.engines()[engine].lose_every(Some(3));
                self.pause(500);
                self.site.engines()[engine].lose_every(None);
            }
        }
    }
}

#[test]
fn every_fault_at_random_moments() {
    let seed = wanted(SEED_WANTED).unwrap_or_else(|| std::process::id().into());
    let rounds = wanted(ROUNDS_WANTED).unwrap_or(ROUNDS);
    eprintln!("{SEED_WANTED}={seed} {ROUNDS_WANTED}={rounds}");
    let site = Site::start(&["--http-req-idle-timeout-s", "1", "--breaker-cooldown-s", "1"]);
    let load = site.load();
    Site::settled(&load);
    let mut chaos = Chaos { site, random: Random::seeded(seed), excuses: Vec::new() };
    // Each fault comes as often as any other, in an order of its own.
    let mut left = Vec::new();
    for round in 0..rounds {
        if left.is_empty() {
            left = FAULTS.to_vec();
        }
        let fault = left.swap_remove(chaos.random.below(left.len()));
        eprintln!("round {round}: {fault:?}");
        chaos.round(fault, &load);
        // One fault at a time: with two at once, somebody may be asked in vain twice, and nobody a third time.
        wait_until_followed(&chaos.site);
        chaos.site.wait_registered();
        chaos.site.wait_known();
        judge(&load.fates(), &chaos.excuses);
    }
    Site::settled(&load);
    judge(&load.finish(), &chaos.excuses);
    // Where the last message was lost, only a later one shows it.
    chaos.site.engines().iter().for_each(|engine| engine.ask(&prompt(50, 640)));
    chaos.site.wait_for_truth();
    chaos.site.wait_for_rest();
}
