//! Clients that ask a router steadily and note what becomes of each request.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Reply, send};
use super::engine::NAME;
use crate::PATIENCE;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A whole answer came.
    Served,
    /// The answer had begun and ended with the error event, as it should if its worker breaks off.
    Interrupted,
    /// An error of the router's own: status and code.
    Refused(u16, String),
    /// Anything else.
    Broken(String),
}

/// A request that is over.
#[derive(Clone, Debug)]
pub struct Fate {
    /// When it was sent, over a connection that the router had let in.
    pub began: Instant,
    /// When it was over.
    pub ended: Instant,
    /// What became of it.
    pub outcome: Outcome,
    /// The engine whose answer it was.
    pub engine: Option<String>,
    /// Whether that one had as long a prefix of it as any, when it was sent; nothing if nobody had any.
    pub is_best: Option<bool>,
}

impl Fate {
    /// Whether it was under way at some moment of these.
    #[must_use]
    pub fn overlaps(&self, from: Instant, to: Instant) -> bool {
        self.began <= to && self.ended >= from
    }
}

/// The prompt of a request, by its number.
pub type Prompts = Arc<dyn Fn(usize) -> Vec<u32> + Send + Sync>;
/// Those who have the longest prefix of a prompt; nobody if nobody has any.
pub type Best = Arc<dyn Fn(&[u32]) -> Vec<String> + Send + Sync>;

/// What is asked for.
#[derive(Clone)]
pub struct Demand {
    /// The router.
    pub to: SocketAddr,
    /// Clients, each with one request at a time.
    pub clients: usize,
    /// Pause of a client between the starts of two requests.
    pub every: Duration,
    /// What is asked.
    pub prompts: Prompts,
    /// Who would be the best to ask.
    pub best: Best,
}

impl std::fmt::Debug for Demand {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { to, clients, every, .. } = self;
        write!(out, "{clients} clients ask {to} every {every:?}")
    }
}

/// Clients at work. They stop with this value.
#[derive(Debug)]
pub struct Load {
    fates: Arc<Mutex<Vec<Fate>>>,
    is_held: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the clients. Where nobody listens they try on; whatever else happens to a request is its fate.
    ///
    /// # Panics
    /// If a thread can't start.
    #[must_use]
    pub fn start(demand: &Demand) -> Self {
        let fates = Arc::new(Mutex::new(Vec::new()));
        let (is_held, is_over) = (Arc::default(), Arc::default());
        let number = Arc::new(AtomicUsize::new(0));
        let client = |client: usize| {
            let (demand, number, into) = (demand.clone(), Arc::clone(&number), Arc::clone(&fates));
            let (is_held, is_over) = (Arc::clone(&is_held), Arc::clone(&is_over));
            let work = move || run(client, &demand, (&number, &into), (&is_held, &is_over));
            std::thread::Builder::new().name("load".to_owned()).spawn(work).expect("a thread")
        };
        let clients = (0..demand.clients).map(client).collect();
        Self { fates, is_held, is_over, clients }
    }

    /// Begins no further requests, as a load balancer would whose router is not ready, or begins them again.
    pub fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::SeqCst);
    }

    /// What became of the requests that are over.
    #[must_use]
    pub fn fates(&self) -> Vec<Fate> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The share of the last `count` requests begun after `since` that went to the best; nothing until there are so many.
    #[must_use]
    pub fn quality(&self, since: Instant, count: usize) -> Option<f64> {
        let fates = self.fates();
        let judged =
            fates.iter().filter(|fate| fate.began >= since).filter_map(|fate| fate.is_best);
        let judged: Vec<bool> = judged.collect();
        let last = judged.get(judged.len().checked_sub(count)?..)?;
        Some(last.iter().filter(|is_best| **is_best).count() as f64 / count as f64)
    }

    /// Ends the clients after the requests they have under way.
    ///
    /// # Panics
    /// If one of them panicked.
    #[must_use]
    pub fn finish(mut self) -> Vec<Fate> {
        self.is_over.store(true, Ordering::SeqCst);
        for client in self.clients.drain(..) {
            client.join().expect("a client");
        }
        self.fates()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

fn run(
    client: usize,
    demand: &Demand,
    (number, fates): (&AtomicUsize, &Mutex<Vec<Fate>>),
    (is_held, is_over): (&AtomicBool, &AtomicBool),
) {
    let offset = demand.every.mul_f64(client as f64 / demand.clients as f64);
    let mut next = Instant::now() + offset;
    while !is_over.load(Ordering::SeqCst) {
        let pause = next.saturating_duration_since(Instant::now());
        std::thread::park_timeout(pause.min(Duration::from_millis(20)));
        if pause > Duration::from_millis(20) || is_held.load(Ordering::SeqCst) {
            continue;
        }
        // Who is late does not catch up: the load is steady.
        next = (next + demand.every).max(Instant::now());
        let tokens = (demand.prompts)(number.fetch_add(1, Ordering::SeqCst));
        let fate = request(demand, &tokens, is_over);
        fates.lock().unwrap_or_else(PoisonError::into_inner).extend(fate);
    }
}

/// Asks until somebody lets it in. Nothing if that does not happen before the end.
fn request(demand: &Demand, tokens: &[u32], is_over: &AtomicBool) -> Option<Fate> {
    let body = json!({"model": "m", "prompt": tokens, "stream": true, "max_tokens": 3}).to_string();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (best, began) = ((demand.best)(tokens), Instant::now());
        let reply = send(demand.to, "POST", "/v1/completions", &[], &body);
        let (outcome, engine) = match reply {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if is_over.load(Ordering::SeqCst) {
                    return None;
                }
                if began < deadline {
                    std::thread::park_timeout(Duration::from_millis(5));
                    continue;
                }
                (Outcome::Broken("nobody listens".to_owned()), None)
            }
            Err(error) => (Outcome::Broken(format!("no head: {error}")), None),
            Ok(mut reply) => (outcome_of(&mut reply), reply.header(NAME).map(str::to_owned)),
        };
        let is_best = engine.as_ref().map(|engine| best.contains(engine));
        let is_best = is_best.filter(|_| !best.is_empty() && outcome == Outcome::Served);
        return Some(Fate { began, ended: Instant::now(), outcome, engine, is_best });
    }
}

fn outcome_of(reply: &mut Reply) -> Outcome {
    let text = match reply.rest().map(String::from_utf8) {
        Ok(Ok(text)) => text,
        Ok(Err(_)) => return Outcome::Broken("no text".to_owned()),
        Err(error) => return Outcome::Broken(format!("cut: {error}")),
    };
    if reply.status != 200 {
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        let code = body["error"]["code"].as_str().filter(|_| body["error"]["message"].is_string());
        return match code {
            Some(code) => Outcome::Refused(reply.status, code.to_owned()),
            None => Outcome::Broken(format!("{}: {text}", reply.status)),
        };
    }
    let events: Vec<&str> = text.split_terminator("\n\n").collect();
    let is_whole = text.ends_with("\n\n");
    let last = events.last().and_then(|event| event.strip_prefix("data: ")).unwrap_or_default();
    let error: Value = serde_json::from_str(last).unwrap_or_default();
    let is_in_order = events.iter().all(|event| event.starts_with("data: "));
    if is_whole && is_in_order && last == "[DONE]" && events.len() == 5 {
        Outcome::Served
    } else if is_whole && error["error"]["code"] == "stream_interrupted" {
        Outcome::Interrupted
    } else {
        Outcome::Broken(format!("an odd answer: {text:?}"))
    }
}
