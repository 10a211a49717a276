//! An engine with a cache, as SGLang's HTTP and ZMQ show one: what it has computed it keeps, up to a bound, and publishes.
//! It can say what it really has, and can be killed, hang, come back elsewhere and lose what it publishes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvd_proto::events::{BlockHash, Event, Parent, Place, Removed, Stored, Token};
use kvd_proto::pack::Array;
use router_core::hash::sglang;
use serde_json::{Value, json};

use super::client::post;
use super::etcd::free_port;
use super::publisher::Publisher;
use super::request::Seen;
use super::worker::{Step, Worker, event, headers, whole};

/// Tokens of a page.
pub const PAGE: usize = 16;
/// Pages that an engine keeps.
const PAGES_MAX: usize = 600;
/// The header of an answer that names the engine.
pub const NAME: &str = "x-engine";

/// How an engine answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// In three pieces with such a pause before each but the first.
    Paced(Duration),
    /// It takes requests, and says nothing.
    Silent,
}

#[derive(Debug)]
struct Page {
    parent: Option<u64>,
    children: u32,
    used: u64,
}

/// What it is at the moment; it outlives its process.
#[derive(Debug)]
struct State {
    publisher: Option<Publisher>,
    replays: bool,
    pages: HashMap<u64, Page>,
    clock: u64,
    manner: Manner,
    /// Each so many'th message is lost on the way.
    lose_every: Option<u64>,
    messages: u64,
    lost: u64,
}

/// An engine that runs, or has been killed.
#[derive(Debug)]
pub struct Engine {
    address: SocketAddr,
    worker: Mutex<Option<Worker>>,
    state: Arc<Mutex<State>>,
    /// Prompts that begin with this token or a larger one stay in lower tiers: they are not kept here.
    not_kept_from: u32,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Starts one on free ports. `replays`: whether who missed messages can ask for them.
    ///
    /// # Panics
    /// If it can't.
    #[must_use]
    pub fn start(replays: bool, not_kept_from: u32) -> Self {
        let state = State {
            publisher: None,
            replays,
            pages: HashMap::new(),
            clock: 0,
            manner: Manner::Paced(Duration::ZERO),
            lose_every: None,
            messages: 0,
            lost: 0,
        };
        let state = Arc::new(Mutex::new(state));
        let engine = Self { address: free_port(), worker: Mutex::new(None), state, not_kept_from };
        engine.come_back();
        engine
    }

    /// What it is called.
    #[must_use]
    pub fn id(&self) -> String {
        self.address.to_string()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether its process is there.
    #[must_use]
    pub fn is_running(&self) -> bool {
        held(&self.worker).is_some()
    }

    /// Ends it as the kernel would: its cache is gone, and nobody hears of that.
    pub fn kill(&self) {
        let worker = held(&self.worker).take();
        let publisher = {
            let mut state = held(&self.state);
            state.pages.clear();
            state.publisher.take()
        };
        drop((worker, publisher));
    }

    /// Starts it anew after [`Engine::kill`]: with the same port for requests, other ones for events, and an empty cache.
    ///
    /// # Panics
    /// If it can't.
    pub fn come_back(&self) {
        {
            let mut state = held(&self.state);
            state.publisher = Some(Publisher::start());
            state.manner = Manner::Paced(Duration::ZERO);
            (state.messages, state.lose_every) = (0, None);
        }
        let (state, address, limit) = (Arc::clone(&self.state), self.address, self.not_kept_from);
        let respond = move |seen: &Seen| respond(&state, address, limit, seen);
        *held(&self.worker) = Some(Worker::responding(self.address, Arc::new(respond)));
    }

    /// From now on it answers so.
    pub fn behave(&self, manner: Manner) {
        held(&self.state).manner = manner;
    }

    /// From now on each so many'th of its messages is lost on the way.
    pub fn lose_every(&self, count: Option<u64>) {
        held(&self.state).lose_every = count;
    }

    /// Messages that were lost on the way.
    #[must_use]
    pub fn lost(&self) -> u64 {
        held(&self.state).lost
    }

    /// Everything is dropped, and published as such.
    ///
    /// # Panics
    /// If it does not run.
    pub fn flush(&self) {
        let mut state = held(&self.state);
        state.pages.clear();
        state.publish(&[Event::Cleared(kvd_proto::events::Cleared::default())]);
    }

    /// How many pages it has.
    #[must_use]
    pub fn page_count(&self) -> usize {
        held(&self.state).pages.len()
    }

    /// How many of a prompt's first pages it has.
    #[must_use]
    pub fn prefix_of(&self, tokens: &[u32]) -> usize {
        held(&self.state).prefix_of(&chain(tokens))
    }

    /// Asks it past the router, and waits for the whole answer.
    ///
    /// # Panics
    /// If there is none.
    pub fn ask(&self, tokens: &[u32]) {
        let body = json!({"model": "m", "prompt": tokens, "stream": true}).to_string();
        let mut reply = post(self.address, "/v1/completions", &[], &body);
        assert!(reply.text().ends_with("data: [DONE]\n\n"));
    }

    /// What it registers, where no sidecar does that for it.
    #[must_use]
    pub fn record(&self) -> Value {
        let state = held(&self.state);
        let publisher = state.publisher.as_ref();
        let replay = publisher.filter(|_| state.replays).map(Publisher::replay_endpoint);
        json!({
            "worker_id": self.id(), "url": format!("http://{}", self.address), "model_name": "m",
            "engine": "sglang", "kv_block_size": PAGE,
            "kv_events_endpoint": publisher.map(Publisher::endpoint), "kv_replay_endpoint": replay,
        })
    }
}

/// The engine's names of a prompt's pages.
fn chain(tokens: &[u32]) -> Vec<u64> {
    sglang::chain(tokens, u32::try_from(PAGE).expect("a page"))
}

fn respond(
    state: &Mutex<State>,
    address: SocketAddr,
    not_kept_from: u32,
    seen: &Seen,
) -> Vec<Step> {
    let mut state = held(state);
    if state.publisher.is_none() {
        // It is being killed.
        return vec![Step::Cut];
    }
    match seen.target.as_str() {
        "/health" => whole(200, &[], ""),
        "/v1/models" => {
            whole(200, &[], r#"{"object":"list","data":[{"id":"m","root":"m","parent":null}]}"#)
        }
        "/server_info" => whole(200, &[], &state.server_info().to_string()),
        "/metrics" => whole(
            200,
            &[],
            "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:token_usage 0\n",
        ),
        "/v1/completions" => {
            let body = seen.json();
            let ids = body["prompt"].as_array().expect("a prompt of ids").iter();
            let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
            let tokens: Vec<u32> = ids.map(|value| id(value).expect("an id")).collect();
            state.answer(&tokens, not_kept_from, address)
        }
        _ => whole(404, &[], "{}"),
    }
}

impl State {
    fn server_info(&self) -> Value {
        let port = |endpoint: &str| {
            endpoint.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).expect("a port")
        };
        let publisher = self.publisher.as_ref().expect("it runs");
        let replay = self.replays.then(|| port(publisher.replay_endpoint()));
        json!({
            "page_size": PAGE,
            "max_running_requests": 64,
            "kv_events": {
                "publisher": "zmq", "endpoint_host": "*", "topic": "kv-events", "block_size": PAGE,
                "endpoint_port_base": port(publisher.endpoint()), "replay_endpoint_port_base": replay,
            },
        })
    }

    fn prefix_of(&self, chain: &[u64]) -> usize {
        chain.iter().take_while(|page| self.pages.contains_key(page)).count()
    }

    fn answer(&mut self, tokens: &[u32], not_kept_from: u32, address: SocketAddr) -> Vec<Step> {
        let Manner::Paced(pause) = self.manner else { return vec![Step::Hold] };
        let is_kept = tokens.first().is_some_and(|first| *first < not_kept_from);
        let found = if is_kept { self.keep(tokens) } else { 0 };
        let usage = json!({"choices": [], "usage": {
            "prompt_tokens": tokens.len(), "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": found * PAGE}}});
        let head = [("content-type", "text/event-stream"), (NAME, &address.to_string())];
        let mut steps = vec![Step::Head(200, headers(&head))];
        for piece in 0..3 {
            if piece > 0 && !pause.is_zero() {
                steps.push(Step::Pause(pause));
            }
            steps.push(Step::Bytes(event(&format!("piece {piece}"))));
        }
        steps.push(Step::Bytes(format!("data: {usage}\n\ndata: [DONE]\n\n").into_bytes()));
        steps.push(Step::End);
        steps
    }

    /// Keeps the pages of a prompt and tells of it; how many were there.
    fn keep(&mut self, tokens: &[u32]) -> usize {
        self.clock += 1;
        let pages = chain(tokens);
        let found = self.prefix_of(&pages);
        let mut parent = None;
        for (at, page) in pages.iter().copied().enumerate() {
            if at >= found {
                self.pages.insert(page, Page { parent, children: 0, used: 0 });
                if let Some(parent) = parent.and_then(|parent| self.pages.get_mut(&parent)) {
                    parent.children += 1;
                }
            }
            if let Some(page) = self.pages.get_mut(&page) {
                page.used = self.clock;
            }
            parent = Some(page);
        }
        let gone: Vec<BlockHash<'_>> = self.make_room().into_iter().map(BlockHash::Bits).collect();
        let new: Vec<BlockHash<'_>> = pages[found..].iter().copied().map(BlockHash::Bits).collect();
        let of_new = tokens[found * PAGE..pages.len() * PAGE].iter();
        let of_new: Vec<Token> = of_new.map(|token| Token(*token)).collect();
        let place = Place { medium: Some("GPU"), ..Place::default() };
        let stored = Event::Stored(Stored {
            block_hashes: Array::Slice(&new),
            parent: match found.checked_sub(1) {
                None => Parent::Root,
                Some(last) => Parent::Block(BlockHash::Bits(pages[last])),
            },
            tokens: Array::Slice(&of_new),
            block_size: u32::try_from(PAGE).expect("a page"),
            place,
            ..Stored::default()
        });
        let removed = Event::Removed(Removed {
            block_hashes: Array::Slice(&gone),
            place,
            ..Removed::default()
        });
        match (new.is_empty(), gone.is_empty()) {
            (true, true) => {}
            (false, true) => self.publish(&[stored]),
            (true, false) => self.publish(&[removed]),
            (false, false) => self.publish(&[stored, removed]),
        }
        found
    }

    /// Drops what was not used for longest, ends of prompts first.
    fn make_room(&mut self) -> Vec<u64> {
        let mut gone = Vec::new();
        while self.pages.len() > PAGES_MAX {
            let ends = self.pages.iter().filter(|(_, page)| page.children == 0);
            let oldest = ends.min_by_key(|(name, page)| (page.used, **name));
            let Some(name) = oldest.map(|(name, _)| *name) else { break };
            let parent = self.pages.remove(&name).and_then(|page| page.parent);
            if let Some(parent) = parent.and_then(|parent| self.pages.get_mut(&parent)) {
                parent.children -= 1;
            }
            gone.push(name);
        }
        gone
    }

    fn publish(&mut self, events: &[Event<'_>]) {
        self.messages += 1;
        let is_lost = self.lose_every.is_some_and(|every| self.messages.is_multiple_of(every));
        let publisher = self.publisher.as_mut().expect("it runs");
        if is_lost {
            self.lost += 1;
            publisher.lose(events);
        } else {
            publisher.publish(events);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::publisher::prompt;

    #[test]
    fn what_was_computed_is_kept_until_there_is_no_room() {
        let engine = Engine::start(true, 1_000_000);
        let one = prompt(1, 400);
        let keep = |tokens: &[u32]| held(&engine.state).keep(tokens);
        assert_eq!((keep(&one), keep(&one), engine.page_count()), (0, 25, 25));
        let longer: Vec<u32> = one.iter().copied().chain(prompt(9, 40)).collect();
        assert_eq!((keep(&longer), engine.prefix_of(&longer)), (25, 27));
        // Others take its place, its end first.
        (10..60).for_each(|seed| assert_eq!(keep(&prompt(seed, 400)), 0));
        assert_eq!((engine.page_count(), engine.prefix_of(&one)), (PAGES_MAX, 0));
        engine.kill();
        assert_eq!((engine.page_count(), engine.is_running()), (0, false));
    }
}
