//! From a request's body to what each worker has of its prompt: token ids, names of blocks, and the question to the
//! index. That takes up to some tenths of a second of a processor, so it is done by threads of its own, a few of them and
//! with a deadline: an answer that comes too late is none, and the request goes by load.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use router_core::hash::{self, sglang, vllm};
use router_core::index::{Answer, Chains, Index, Name, Query};
use router_tokens::{
    Engine, Limits, LoadError, Manner, Map, Prompt, Request, Route, Tokens, WhyNot,
};
use tokio::sync::oneshot;
use tokio::time::timeout;
use xxhash_rust::xxh3::xxh3_64;

use super::seats::{Group, Kinds, Seats};
use super::sessions::Session;
use crate::feed::Names;
use crate::meters::{Meters, Skipped};

/// Threads at most.
const THREADS_MAX: usize = 8;
/// Requests that wait for one; one more goes by load.
const WAITING_MAX: usize = 256;
/// How long an answer is waited for: a usual one, and so much longer for each MiB of the body.
const PATIENCE: Duration = Duration::from_millis(250);
const PATIENCE_PER_MIB: Duration = Duration::from_millis(500);
/// Largest body that is looked at. Images are in it as text, so it may be larger than the prompt.
const BODY_BYTES_MAX: usize = 64 << 20;

/// The models' tokenizers.
#[derive(Debug, Default)]
pub(super) struct Models {
    for_all: Option<Arc<Tokens>>,
    by_name: BTreeMap<String, Arc<Tokens>>,
}

impl Models {
    /// Reads them all; which ones can't be used. Takes up to some seconds.
    pub(super) fn load(
        (for_all, by_name): &(Option<PathBuf>, BTreeMap<String, PathBuf>),
        has_native_encoder: bool,
    ) -> (Self, Vec<LoadError>) {
        let mut failed = Vec::new();
        let mut load = |path: &PathBuf| match Tokens::load(path, Limits::default()) {
            Ok(tokens) => {
                let tokens = if has_native_encoder { tokens.without_template() } else { tokens };
                Some(Arc::new(tokens))
            }
            Err(error) => {
                failed.push(error);
                None
            }
        };
        let for_all = for_all.as_ref().and_then(&mut load);
        let by_name = by_name.iter().filter_map(|(model, path)| Some((model.clone(), load(path)?)));
        let models = Self { for_all, by_name: by_name.collect() };
        (models, failed)
    }

    /// That of a model.
    pub(super) fn of(&self, model: &str) -> Option<&Arc<Tokens>> {
        self.by_name.get(model).or(self.for_all.as_ref())
    }
}

/// What is known of a request's prompt, and of who has it.
#[derive(Debug)]
pub(super) struct Facts {
    /// Tokens of the prompt.
    pub(super) prompt_tokens: usize,
    /// What is in it that is no text, by content.
    pub(super) images: Vec<u64>,
    /// Whether it is one prompt and nothing but text, so that a worker has to count as many tokens.
    pub(super) is_countable: bool,
    /// What the client calls the session.
    pub(super) session: Option<Session>,
    /// By the number of the group; nothing for those whose engine's tokens are not known.
    pub(super) groups: Vec<Option<Found>>,
}

/// What the targets of one group have.
#[derive(Debug)]
pub(super) struct Found {
    /// Tokens of the prompt, as the group's engine makes them.
    pub(super) prompt_tokens: usize,
    /// Names of the prompt's blocks.
    pub(super) names: Arc<Names>,
    /// Who has which.
    pub(super) answer: Answer,
}

/// A request to look up.
#[derive(Debug)]
struct Job {
    tokens: Arc<Tokens>,
    seats: Arc<Seats>,
    route: Route,
    body: Bytes,
    reply: oneshot::Sender<Result<Facts, WhyNot>>,
}

/// What threads work with.
#[derive(Debug)]
struct Bench {
    index: Arc<Index>,
    kwargs: Map,
    /// What stands before the first block of vLLM's; nothing if nobody said.
    vllm_root: Option<[u8; 32]>,
    jobs: Mutex<Receiver<Job>>,
    meters: Arc<Meters>,
}

/// The threads.
#[derive(Debug)]
pub(super) struct Pool {
    jobs: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts them. They end with this value. `vllm_seed`: what vLLM's names of blocks begin with.
    ///
    /// # Errors
    /// One can't start.
    pub(super) fn start(
        index: Arc<Index>,
        (kwargs, vllm_seed): (Map, Option<&str>),
        meters: Arc<Meters>,
    ) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let (vllm_root, jobs) = (vllm_seed.map(vllm::root), Mutex::new(receiver));
        let bench = Arc::new(Bench { index, kwargs, vllm_root, jobs, meters });
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let thread = |number| {
            let bench = Arc::clone(&bench);
            let builder = std::thread::Builder::new().name(format!("router-tokens-{number}"));
            builder.spawn(move || bench.work())
        };
        let threads: io::Result<Vec<_>> = (0..count.clamp(1, THREADS_MAX)).map(thread).collect();
        Ok(Self { jobs: Some(sender), threads: threads? })
    }

    /// Looks a request up.
    ///
    /// # Errors
    /// Why it could not be, or not in time.
    pub(super) async fn look_up(
        &self,
        (tokens, seats): (&Arc<Tokens>, &Arc<Seats>),
        route: Route,
        body: &Bytes,
    ) -> Result<Facts, Skipped> {
        let (reply, answer) = oneshot::channel();
        let (tokens, seats) = (Arc::clone(tokens), Arc::clone(seats));
        let job = Job { tokens, seats, route, body: body.clone(), reply };
        let is_taken = self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok());
        if !is_taken {
            return Err(Skipped::Busy);
        }
        let patience = PATIENCE + PATIENCE_PER_MIB.mul_f64(body.len() as f64 / f64::from(1 << 20));
        match timeout(patience, answer).await {
            Ok(Ok(found)) => found.map_err(|why| Skipped::from(&why)),
            Ok(Err(_gone)) => Err(Skipped::Busy),
            Err(_elapsed) => Err(Skipped::Late),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that makes tokens panicked");
            }
        }
    }
}

impl Bench {
    fn work(&self) {
        let mut query = Query::new();
        loop {
            let next = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = next else { return };
            // Nobody waits for it any more.
            if job.reply.is_closed() {
                continue;
            }
            let facts = self.facts(&job, &mut query);
            // Or by now.
            drop(job.reply.send(facts));
        }
    }

    fn facts(&self, job: &Job, query: &mut Query) -> Result<Facts, WhyNot> {
        let began = Instant::now();
        let request = Request::parse(job.route, &job.body, BODY_BYTES_MAX)?;
        let images = request.images().iter().map(|image| xxh3_64(image.as_bytes())).collect();
        let mut prompts = [None, None];
        let mut why_not = None;
        for group in &job.seats.groups {
            let prompt = &mut prompts[group.engine as usize];
            if prompt.is_some() {
                continue;
            }
            let manner = Manner {
                engine: group.engine,
                template_kwargs: self.kwargs.clone(),
                drops_unused_tools: false,
            };
            match job.tokens.of(&request, &manner, SystemTime::now()) {
                Ok(made) => *prompt = Some(made),
                Err(why) => why_not = Some(why),
            }
        }
        self.meters.tokens.observe(began.elapsed());
        let first = prompts.iter().flatten().next();
        let Some(prompt_tokens) = first.map(|prompt| prompt.ids.len()) else {
            return Err(why_not.unwrap_or(WhyNot::Invalid("nobody to ask")));
        };
        let mut found = |group: &Group| {
            let prompt = prompts[group.engine as usize].as_ref()?;
            Some(self.found(&request, prompt, group, &job.seats.kinds, query))
        };
        let groups = job.seats.groups.iter().map(&mut found).collect();
        let is_text = |prompt: &Prompt| prompt.certain == prompt.ids.len();
        let is_countable = request.prompts() == 1 && prompts.iter().flatten().all(is_text);
        let session = request.session();
        let session = session.map(|key| Session::new(request.model().unwrap_or_default(), key));
        Ok(Facts { prompt_tokens, images, is_countable, session, groups })
    }

    fn found(
        &self,
        request: &Request,
        prompt: &Prompt,
        group: &Group,
        kinds: &Kinds,
        query: &mut Query,
    ) -> Found {
        let ids = prompt.ids.get(..prompt.certain).unwrap_or(&prompt.ids);
        let (adapter, salt) = (request.adapter(), request.salt());
        let block_size = group.block_size;
        let names = hash::chain(hash::root(adapter, salt), ids, block_size);
        // SGLang's pages say nothing of adapters and salts.
        let is_plain = adapter.is_none() && salt.is_none();
        let pages =
            if kinds.has_sglang && is_plain { sglang::chain(ids, block_size) } else { Vec::new() };
        let is_asked = kinds.has_vllm || !kinds.key_strides.is_empty();
        // An adapter is part of vLLM's names with the path that it was loaded from, which only the engine knows.
        let digests = match self.vllm_root.as_ref().filter(|_| is_asked && adapter.is_none()) {
            Some(root) => {
                let first = salt.map(|salt| vllm::Extra::Pair("cache_salt", salt));
                vllm::chain(root, ids, block_size, &[], first.as_slice())
            }
            None => Vec::new(),
        };
        let bits: Vec<u64> = digests.iter().map(vllm::bits).collect();
        let keys = |stride: &u32| {
            let chunks = digests.chunks_exact(*stride as usize);
            let keys = chunks.map(|chunk| Name::of_chunk_key(&vllm::chunk_key(chunk, 0)));
            (*stride, keys.collect::<Vec<_>>())
        };
        let chunk_keys = kinds.key_strides.iter().map(keys).collect();
        let names = Names { router: names.into(), sglang: pages, vllm: bits, chunk_keys };
        let ask = |chains: &Chains<'_>| query.ask(&self.index, &group.fleet, chains).clone();
        let answer = names.with_chains(ask);
        Found { prompt_tokens: prompt.ids.len(), names: Arc::new(names), answer }
    }
}

/// The server whose way of preparing chats a worker follows.
pub(super) const fn manner_of(engine: Option<router_core::record::Engine>) -> Engine {
    match engine {
        Some(router_core::record::Engine::Sglang) => Engine::Sglang,
        Some(router_core::record::Engine::Vllm | router_core::record::Engine::Atom) | None => {
            Engine::Vllm
        }
    }
}
