//! What a router lives among: an etcd, two hosts with a daemon each, four engines with their sidecars, and clients whose
//! prompts begin alike. Some of these beginnings are on engines' devices, some in the memory of a host's daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kvd_client::Retention;
use router_core::hash::sglang;
use serde_json::{Value, json};

use super::client::get;
use super::engine::PAGE;
use super::load::{Demand, Load};
use super::publisher::prompt;
use super::register::Sidecar;
use super::{Engine, Etcd, Router, post};
use crate::disk::put;
use crate::engine::client_at;
use crate::figures::wait_warm;
use crate::process::ProcessFacts;
use crate::until::{until, until_true, within};
use crate::{Daemon, Launch, PATIENCE};

/// Hosts.
pub const HOSTS: [&str; 2] = ["host-1", "host-2"];
/// Engines of each.
const ENGINES_PER_HOST: usize = 2;
/// Tokens that prompts of a family have in common.
const COMMON: u32 = 640;
/// Pages of them.
pub const COMMON_PAGES: usize = COMMON as usize / PAGE;
/// Tokens behind them, which nobody else asks for.
const TAIL: usize = 24;
/// Families whose beginning engines keep.
const KEPT_FAMILIES: usize = 12;
/// Families whose beginning each daemon keeps.
pub const HOSTED_FAMILIES: usize = 3;
/// Prompts from this token on are not kept by engines.
const NOT_KEPT_FROM: u32 = 100_000;
/// A tokenizer of bytes; prompts here are ids, so that it does not matter which.
const TOKENIZER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../router/tokens/tests/models/byte_level");
/// So many requests tell how well engines are chosen.
pub const JUDGED: usize = 40;
/// Workers write their records again at the latest when they renew their leases, and with pauses if that fails.
const REGISTERED_AGAIN: Duration = Duration::from_secs(60);

/// Everything around the router, and the router.
#[derive(Debug)]
pub struct Site {
    /// The etcd.
    pub etcd: Etcd,
    daemons: Vec<Option<Daemon>>,
    engines: Arc<Vec<Engine>>,
    sidecars: Vec<Option<Sidecar>>,
    router: Option<Router>,
    port: u16,
    more: Vec<String>,
    /// What the router held when nobody had asked anything of it.
    at_rest: Option<ProcessFacts>,
    /// Whether the daemon of a host has what it should have.
    hosted: Arc<[AtomicBool; HOSTS.len()]>,
}

/// Who has the beginning of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Kept(u32),
    Hosted { host: usize, seed: u32 },
}

const FAMILIES: usize = KEPT_FAMILIES + HOSTS.len() * HOSTED_FAMILIES;

impl Family {
    fn of(number: usize) -> Self {
        let seed = |number: usize| u32::try_from(number).expect("a small number");
        match number.checked_sub(KEPT_FAMILIES) {
            None => Self::Kept(seed(number + 1)),
            Some(hosted) => {
                let host = hosted / HOSTED_FAMILIES;
                Self::Hosted { host, seed: seed(101 + 100 * host + hosted % HOSTED_FAMILIES) }
            }
        }
    }

    fn beginning(self) -> Vec<u32> {
        let (Self::Kept(seed) | Self::Hosted { seed, .. }) = self;
        prompt(seed, COMMON)
    }

    fn of_prompt(tokens: &[u32]) -> Self {
        let seed = tokens[0] / 1_000;
        if tokens[0] < NOT_KEPT_FROM {
            Self::Kept(seed)
        } else {
            Self::Hosted { host: seed as usize / 100 - 1, seed }
        }
    }
}

/// The prompt of request `number`: that of a family, and an end of its own.
fn prompt_of(number: usize) -> Vec<u32> {
    // 7 and the number of families have no common divisor.
    let mut tokens = Family::of(number * 7 % FAMILIES).beginning();
    tokens.extend((0..TAIL).map(|at| {
        1_000_000 + u32::try_from(number * TAIL + at).expect("fewer requests than that")
    }));
    tokens
}

fn best(engines: &[Engine], hosted: &[AtomicBool], tokens: &[u32]) -> Vec<String> {
    if let Family::Hosted { host, .. } = Family::of_prompt(tokens) {
        let on_host = engines.iter().enumerate().filter(|(at, _)| at / ENGINES_PER_HOST == host);
        let running = on_host.map(|(_, engine)| engine).filter(|engine| engine.is_running());
        let is_hosted = hosted[host].load(Ordering::SeqCst);
        return running.filter(|_| is_hosted).map(Engine::id).collect();
    }
    let prefixes = || engines.iter().map(|engine| (engine.prefix_of(tokens), engine));
    let most = prefixes().map(|(pages, _)| pages).max().unwrap_or(0);
    let have_it = prefixes().filter(|(pages, _)| *pages == most && most > 0);
    have_it.map(|(_, engine)| engine.id()).collect()
}

impl Site {
    /// Starts all of it, and waits until the router knows it. `more`: arguments of the router.
    ///
    /// # Panics
    /// If something does not start.
    #[must_use]
    pub fn start(more: &[&str]) -> Self {
        let etcd = Etcd::start();
        let engines: Vec<Engine> = (0..HOSTS.len() * ENGINES_PER_HOST)
            .map(|_| Engine::start(true, NOT_KEPT_FROM))
            .collect();
        let mut site = Self {
            etcd,
            daemons: HOSTS.iter().map(|_| None).collect(),
            sidecars: engines.iter().map(|_| None).collect(),
            engines: Arc::new(engines),
            router: None,
            port: 0,
            more: more.iter().map(|word| (*word).to_owned()).collect(),
            at_rest: None,
            hosted: Arc::default(),
        };
        (0..HOSTS.len()).for_each(|host| site.start_daemon(host));
        (0..site.engines.len()).for_each(|engine| site.start_sidecar(engine));
        site.wait_registered();
        site.start_router();
        site.wait_ready();
        site.wait_for_truth();
        site.at_rest = Some(site.router().facts());
        site
    }

    /// The router.
    ///
    /// # Panics
    /// If there is none at the moment.
    #[must_use]
    pub fn router(&self) -> &Router {
        self.router.as_ref().expect("a router")
    }

    /// The engines; those of one host follow each other.
    #[must_use]
    pub fn engines(&self) -> &[Engine] {
        &self.engines
    }

    /// The daemon of a host.
    ///
    /// # Panics
    /// If there is none at the moment.
    #[must_use]
    pub fn daemon(&self, host: usize) -> &Daemon {
        self.daemons[host].as_ref().expect("a daemon")
    }

    /// Starts the router, where it was before.
    ///
    /// # Panics
    /// If it does not serve.
    pub fn start_router(&mut self) {
        let endpoint = self.etcd.address().to_string();
        let mut words = vec!["--etcd-endpoint", &endpoint, "--router-policy", "kv-aware"];
        words.extend(["--request-transport", "http", "--kv-event-transport", "zmq"]);
        words.extend(["--kv-tokenizer-path", TOKENIZER, "--enable-admin", "true"]);
        // Long enough that whoever asks `/ready` sees it on a busy machine.
        words.extend(["--shutdown-delay-s", "3"]);
        words.extend(self.more.iter().map(String::as_str));
        let mut router = Router::start_on(self.port, &words);
        for expected in [
            "etcd does not answer",
            "a worker did not answer",
            "an answer was not finished",
            "an answer has not begun",
        ] {
            router.announce(expected);
        }
        self.port = router.address().port();
        self.router = Some(router);
    }

    /// Takes the router, to end it.
    ///
    /// # Panics
    /// If there is none at the moment.
    pub fn take_router(&mut self) -> Router {
        self.router.take().expect("a router")
    }

    /// Waits until it is ready.
    pub fn wait_ready(&self) {
        let address = self.router().address();
        until_true("the router is ready", || get(address, "/ready").0 == 200);
    }

    /// Starts the daemon of a host; it does not have anything yet.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_daemon(&mut self, host: usize) {
        let endpoint = format!("http://{}", self.etcd.address());
        let daemon = Launch::new()
            .args(["--max-bytes", "32M", "--host-id", HOSTS[host], "--etcd-endpoint", &endpoint])
            .args(["--events-listen", "127.0.0.1:0", "--events-snapshot-listen", "127.0.0.1:0"])
            .announce("not registered in etcd")
            .announce("the record in etcd stays")
            .start();
        wait_warm(&daemon);
        self.daemons[host] = Some(daemon);
        self.fill_daemon(host);
    }

    /// Stores what the daemon of a host is to have.
    fn fill_daemon(&self, host: usize) {
        let client = client_at(self.daemon(host).socket());
        for tokens in Self::hosted_by(host) {
            page_keys(&tokens)
                .iter()
                .for_each(|key| put(&client, key.as_bytes(), 1_000, Retention::Long));
        }
        self.hosted[host].store(true, Ordering::SeqCst);
    }

    fn hosted_by(host: usize) -> impl Iterator<Item = Vec<u32>> {
        let families = (0..FAMILIES).map(Family::of);
        families
            .filter(move |family| matches!(family, Family::Hosted { host: of, .. } if *of == host))
            .map(Family::beginning)
    }

    /// Ends the daemon of a host as the kernel would, and what it had with it.
    ///
    /// # Panics
    /// If there is none.
    pub fn kill_daemon(&mut self, host: usize) {
        self.hosted[host].store(false, Ordering::SeqCst);
        self.daemons[host].take().expect("a daemon").kill();
    }

    /// Starts the sidecar of an engine.
    pub fn start_sidecar(&mut self, engine: usize) {
        let host = HOSTS[engine / ENGINES_PER_HOST];
        let flags = ["--engine", "sglang", "--kvd-host-id", host];
        let address = self.engines[engine].address();
        self.sidecars[engine] = Some(Sidecar::beside(self.etcd.address(), address, &flags));
    }

    /// Ends an engine as the kernel would, with its sidecar: its record stays until its lease ends.
    pub fn crash(&mut self, engine: usize) {
        if let Some(mut sidecar) = self.sidecars[engine].take() {
            sidecar.crash();
        }
        self.engines[engine].kill();
    }

    /// Starts an engine that was crashed, and its sidecar.
    pub fn revive(&mut self, engine: usize) {
        self.engines[engine].come_back();
        self.start_sidecar(engine);
    }

    /// Waits until all engines that run are registered as what they are, and all daemons.
    pub fn wait_registered(&self) {
        for engine in self.engines.iter().filter(|engine| engine.is_running()) {
            let wanted = engine.record()["kv_events_endpoint"].clone();
            let id = engine.id();
            until(&format!("{id} is registered"), REGISTERED_AGAIN, || {
                let (record, _lease) = self.etcd.record(&id)?;
                (record["kv_events_endpoint"] == wanted).then_some(())
            });
        }
        for (host, daemon) in HOSTS.iter().zip(&self.daemons) {
            let Some(daemon) = daemon else { continue };
            let wanted = daemon.admin_json("/v1/events")["epoch"].clone();
            until(&format!("{host} is registered"), REGISTERED_AGAIN, || {
                let record = self.etcd.value(&format!("/infera/kvd/{host}"))?;
                (record["epoch"] == wanted).then_some(())
            });
        }
    }

    /// Waits until the router knows all engines that run, and hears their events.
    pub fn wait_known(&self) {
        let running: Vec<&Engine> =
            self.engines.iter().filter(|engine| engine.is_running()).collect();
        until_true("the router knows who is there, and hears them", || {
            let ids = self.router().worker_ids();
            ids.len() == running.len()
                && running.iter().all(|engine| self.view(engine)["is_connected"] == true)
        });
    }

    fn view(&self, engine: &Engine) -> Value {
        let path = format!("/v1/admin/cache-view/{}", engine.id());
        serde_json::from_str(&get(self.router().address(), &path).1).expect("JSON")
    }

    /// Waits until the router holds no more than when nobody had asked anything of it.
    pub fn wait_for_rest(&self) {
        let mut last = None;
        let is_at_rest = within(PATIENCE, || {
            let now = self.router().facts();
            let before = self.at_rest.as_ref()?;
            // It keeps a connection to each engine that it polls; they may not have stood then.
            let descriptors_max = before.descriptors + self.engines.len();
            let has_no_more =
                now.descriptors <= descriptors_max && now.thread_count() <= before.thread_count();
            last = Some((now, before));
            has_no_more.then_some(())
        });
        assert!(is_at_rest.is_some(), "the router holds more than before: {last:#?}");
    }

    /// Starts clients: some 40 requests a second.
    #[must_use]
    pub fn load(&self) -> Load {
        let (engines, hosted) = (Arc::clone(&self.engines), Arc::clone(&self.hosted));
        Load::start(&Demand {
            to: self.router().address(),
            clients: 8,
            every: Duration::from_millis(200),
            prompts: Arc::new(prompt_of),
            best: Arc::new(move |tokens| best(&engines, &*hosted, tokens)),
        })
    }

    /// Waits until requests go where their beginnings are, and says how well: the share that does.
    #[expect(clippy::must_use_candidate, reason = "to have waited is enough")]
    pub fn settled(load: &Load) -> f64 {
        let since = Instant::now();
        until("requests go where their beginnings are", PATIENCE, || {
            load.quality(since, JUDGED).filter(|quality| *quality >= 0.9)
        })
    }

    /// Waits until the router's view is what engines and daemons have. Nobody may be asking meanwhile.
    pub fn wait_for_truth(&self) {
        let mut last = String::new();
        let is_true = within(PATIENCE, || {
            last = self.untruths().join("\n");
            last.is_empty().then_some(())
        });
        assert!(is_true.is_some(), "the router is wrong:\n{last}");
    }

    /// Where the router's view is not what engines and daemons have.
    fn untruths(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let ids: Vec<String> = self.router().worker_ids();
        let running = self.engines.iter().filter(|engine| engine.is_running());
        let mut wanted: Vec<String> = running.clone().map(Engine::id).collect();
        wanted.sort_unstable();
        if ids != wanted {
            return vec![format!("workers {ids:?}, not {wanted:?}")];
        }
        for engine in running {
            let (pages, view) = (engine.page_count(), self.view(engine));
            if view["block_count"] != pages || view["is_connected"] != true {
                wrong.push(format!("{pages} pages of {}: {view}", engine.id()));
            }
        }
        for family in (0..FAMILIES).map(Family::of) {
            let tokens = family.beginning();
            let explained = self.explain(&tokens);
            for target in explained["targets"].as_array().into_iter().flatten() {
                let (device, lower) = self.owned(family, &tokens, &target["worker_id"]);
                let is_right = target["device_blocks"] == device
                    && target["terms"]["l2_tokens"].as_f64() == Some((lower * PAGE) as f64);
                if !is_right {
                    wrong.push(format!("{family:?}: {device} and {lower} pages, not {target}"));
                }
            }
        }
        wrong
    }

    /// Pages of a family's beginning on an engine's device, and those that it can load.
    fn owned(&self, family: Family, tokens: &[u32], worker: &Value) -> (usize, usize) {
        let at = self.engines.iter().position(|engine| *worker == engine.id());
        let at = at.expect("one of ours");
        let lower = match family {
            Family::Hosted { host, .. } if host == at / ENGINES_PER_HOST => {
                if self.hosted[host].load(Ordering::SeqCst) { COMMON_PAGES } else { 0 }
            }
            Family::Kept(_) | Family::Hosted { .. } => 0,
        };
        (self.engines[at].prefix_of(tokens), lower)
    }

    /// Where the router would send this prompt, and why.
    ///
    /// # Panics
    /// If it does not say.
    #[must_use]
    pub fn explain(&self, tokens: &[u32]) -> Value {
        let body = json!({"model": "m", "prompt": tokens}).to_string();
        let mut reply = post(self.router().address(), "/v1/admin/explain", &[], &body);
        serde_json::from_str(&reply.text()).expect("JSON")
    }
}

/// The daemon's key of each page of a prompt: the page's whole hash, as SGLang writes it.
#[must_use]
pub fn page_keys(tokens: &[u32]) -> Vec<String> {
    let mut prior = None;
    let pages = tokens.chunks_exact(PAGE);
    pages
        .map(|tokens| {
            let digest = sglang::page(prior.as_ref(), tokens);
            prior = Some(digest);
            digest.iter().map(|byte| format!("{byte:02x}")).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_belong_to_families_and_to_nobody_else() {
        for number in 0..FAMILIES {
            let family = Family::of(number);
            assert_eq!(Family::of_prompt(&family.beginning()), family);
        }
        let (one, other) = (prompt_of(0), prompt_of(FAMILIES));
        assert_eq!(one[..COMMON as usize], other[..COMMON as usize]);
        assert_ne!(one[COMMON as usize], other[COMMON as usize]);
        let seen: std::collections::BTreeSet<u32> =
            (0..FAMILIES).map(|number| prompt_of(number)[0]).collect();
        assert_eq!(seen.len(), FAMILIES);
    }
}
