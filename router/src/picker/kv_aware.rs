//! The choice by what is cached where: tokens and residency from [`super::tokens`], scores from `router-core`.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use router_core::account::Placed;
use router_core::index::query::Held;
use router_core::policy::KvAware;
use router_core::score::ettft::{self, Target};
use router_core::score::reference::{Asked, Cost, Hint, Known};
use router_core::score::{Terms, Way};
use router_tokens::{Route, Tokens};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::course::Course;
use super::seats::{Seat, Seats, Sources};
use super::sessions::{Place, Sessions};
use super::tokens::{Facts, Models, Pool};
use super::{Answer, Picker, Plan, Question};
use crate::feed::{Feeds, Names};
use crate::flags::{CacheSettings, Score};
use crate::fleet;
use crate::hosts::{self, Host};
use crate::meters::{Label as _, Meters, Skipped};
use crate::refusal::Refusal;
use crate::request::Fields;
use crate::retention::Retention;

/// Models whose seats are remembered.
const MODELS_MAX: usize = 1024;
/// A prompt whose tokens are not known is held to have one in so many bytes.
const BYTES_PER_TOKEN: f64 = 4.0;
const NOTHING: Held<'static> = Held { device_blocks: 0, device_credit: 1.0, runs: &[] };

/// What a choice by cache works with.
#[derive(Debug)]
pub struct Parts {
    /// The feeds, and the index that they fill.
    pub feeds: Arc<Feeds>,
    /// The workers.
    pub fleet: fleet::Shared,
    /// Their hosts.
    pub hosts: hosts::Shared,
    /// Where figures go.
    pub meters: Arc<Meters>,
}

/// Chooses by what is cached where.
#[derive(Debug)]
pub struct ByCache {
    pub(super) inner: Arc<Inner>,
    models: Models,
    pool: Pool,
    seats: Mutex<BTreeMap<String, Arc<Seats>>>,
    /// Held from the scores to the account, so that two requests don't find the same worker idle.
    desk: Mutex<KvAware>,
    score: Score,
    overlap_weight: f64,
    pub(super) way: Way,
}

/// What placements share with it.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) parts: Parts,
    pub(super) turn: AtomicU64,
    /// Where sessions were last, if that counts.
    sessions: Option<Mutex<Sessions>>,
}

impl Inner {
    /// Where the session of this request was last.
    pub(super) fn last_place(&self, facts: Option<&Facts>) -> Option<Place> {
        let sessions = self.sessions.as_ref()?.lock();
        sessions.unwrap_or_else(PoisonError::into_inner).last(facts?.session?)
    }

    pub(super) fn note_place(&self, facts: Option<&Facts>, place: Place) {
        let session = facts.and_then(|facts| facts.session);
        if let Some((sessions, session)) = self.sessions.as_ref().zip(session) {
            sessions.lock().unwrap_or_else(PoisonError::into_inner).note(session, place);
        }
    }
}

impl ByCache {
    /// Reads tokenizers and starts threads.
    ///
    /// # Errors
    /// A thread can't start.
    pub async fn start(settings: CacheSettings, parts: Parts) -> io::Result<Self> {
        let (paths, is_native) = (settings.tokenizers, settings.has_native_encoder);
        let loading = spawn_blocking(move || Models::load(&paths, is_native)).await;
        let (models, failed) = loading.map_err(io::Error::other)?;
        for error in failed {
            tracing::warn!(%error, "a tokenizer can't be used; its models go by load");
        }
        let index = Arc::clone(&parts.feeds.index);
        let manner = (settings.template_kwargs, settings.vllm_hash_seed.as_deref());
        let pool = Pool::start(index, manner, Arc::clone(&parts.meters))?;
        let sessions = settings.has_session_bonus.then(Mutex::default);
        Ok(Self {
            inner: Arc::new(Inner { parts, turn: AtomicU64::new(0), sessions }),
            models,
            pool,
            seats: Mutex::default(),
            desk: Mutex::default(),
            score: settings.score,
            overlap_weight: settings.overlap_weight,
            way: settings.way,
        })
    }

    /// The tokenizer of a model.
    pub(crate) fn tokens_of(&self, model: &str) -> Option<&Tokens> {
        self.models.of(model).map(|tokens| &**tokens)
    }

    /// The model's seats, as everything is now.
    pub(super) fn seats(&self, model: &str) -> Arc<Seats> {
        let Parts { feeds, fleet, hosts, .. } = &self.inner.parts;
        let sources = Sources::now(fleet.load_full(), hosts.load_full(), feeds);
        // What nobody registered is not remembered by name.
        let name = if sources.fleet.models().any(|known| known == model) { model } else { "" };
        let mut all = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seats) = all.get(name).filter(|seats| seats.sources.is_same(&sources)) {
            return Arc::clone(seats);
        }
        let tokens = self.models.of(name).map(|tokens| &**tokens);
        let seats = Arc::new(Seats::new(sources, name, tokens));
        if all.len() >= MODELS_MAX {
            all.clear();
        }
        all.insert(name.to_owned(), Arc::clone(&seats));
        seats
    }

    pub(super) async fn facts(
        &self,
        question: &Question<'_>,
        seats: &Arc<Seats>,
    ) -> Result<Facts, Skipped> {
        let route = match question.path {
            "/v1/chat/completions" => Route::Chat,
            "/v1/completions" => Route::Completions,
            _ => return Err(Skipped::Route),
        };
        let model = question.fields.model.as_deref().unwrap_or_default();
        let tokens = self.models.of(model).ok_or(Skipped::NoTokenizer)?;
        if seats.groups.is_empty() {
            return Err(Skipped::NoBlocks);
        }
        self.pool.look_up((tokens, seats), route, question.body).await
    }

    /// Who could take a request for this model.
    ///
    /// # Errors
    /// Nobody serves it.
    pub(super) fn targets(&self, model: &str) -> Result<Vec<fleet::Target>, Refusal> {
        let targets = self.inner.parts.fleet.load().pool(model).targets().to_vec();
        if targets.is_empty() {
            return Err(Refusal::NoWorker(format!("no active worker serves the model {model:?}")));
        }
        Ok(targets)
    }

    /// Where a request with this body would go, and why.
    ///
    /// # Errors
    /// Nobody serves its model.
    pub async fn explain(&self, body: &Bytes, fields: &Fields) -> Result<Value, Refusal> {
        let model = fields.model.as_deref().unwrap_or_default();
        let targets = self.targets(model)?;
        let question = Question::announced(body, fields, &targets);
        let seats = self.seats(model);
        let facts = self.facts(&question, &seats).await;
        let skipped = facts.as_ref().err().map(|skipped| skipped.as_str());
        let facts = facts.ok();
        let last = self.inner.last_place(facts.as_ref());
        let scene = Scene::new(&question, seats, facts, (self.way, last));
        let turn = self.inner.turn.load(Ordering::Relaxed);
        let (order, works) = self.score(&scene, &question, turn, &mut KvAware::new());
        let of = |target: &usize| {
            let (worker, rank) = (&targets[*target].worker.record.worker_id, targets[*target].rank);
            let held = scene.held(*target);
            json!({
                "worker_id": worker,
                "dp_rank": rank,
                "host_id": scene.host(*target).map(|host| &host.registration.host_id),
                "device_blocks": held.device_blocks,
                "device_credit": held.device_credit,
                "terms": works.get(*target).map(|work| &work.terms),
                "cost": works.get(*target).map(|work| &work.cost),
            })
        };
        Ok(json!({
            "model": model,
            "prompt_tokens": scene.prompt_tokens,
            "skipped": skipped,
            "reason": scene.reason(order.first().and_then(|first| works.get(*first))),
            "targets": order.iter().map(of).collect::<Vec<_>>(),
        }))
    }

    pub(super) fn score(
        &self,
        scene: &Scene,
        question: &Question<'_>,
        turn: u64,
        desk: &mut KvAware,
    ) -> (Vec<usize>, Vec<Work>) {
        match self.score {
            Score::Ettft => scene.by_time(desk),
            Score::Reference => scene.by_blocks(desk, self.overlap_weight, hint(question), turn),
        }
    }

    async fn plan(&self, question: Question<'_>) -> Plan {
        let model = question.fields.model.as_deref().unwrap_or_default();
        let seats = self.seats(model);
        let facts = self.facts(&question, &seats).await;
        let meters = &self.inner.parts.meters;
        if let Err(skipped) = &facts {
            meters.locality_skipped.count(*skipped);
        }
        let facts = facts.ok();
        let last = self.inner.last_place(facts.as_ref());
        let scene = Scene::new(&question, seats, facts, (self.way, last));
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let (order, loads) = self.score(&scene, &question, turn, &mut desk);
        let reason = scene.reason(order.first().and_then(|first| loads.get(*first)));
        let course =
            Course::new(Arc::clone(&self.inner), scene, loads, turn, order.first().copied());
        drop(desk);
        Plan { order, reason, course: Some(course) }
    }
}

impl Picker for ByCache {
    fn pick<'a>(&'a self, question: Question<'a>) -> Answer<'a> {
        Box::pin(self.plan(question))
    }
}

fn hint(question: &Question<'_>) -> Hint {
    match question.fields.retention {
        Some(Retention::Long) => Hint::Long,
        Some(Retention::None) => Hint::Never,
        Some(Retention::Short) | None => Hint::Usual,
    }
}

/// What a target is to do for the request.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) placed: Placed,
    /// Nothing if scores are not times.
    pub(super) terms: Option<Terms>,
    /// Nothing if scores are times.
    cost: Option<Cost>,
    pub(super) missed_blocks: Option<f64>,
}

/// A question with everything that is known of its targets.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) seats: Arc<Seats>,
    /// By target: its seat.
    at: Vec<Option<usize>>,
    pub(super) facts: Option<Facts>,
    pub(super) prompt_tokens: f64,
    /// By host.
    ways: Vec<Way>,
    /// The target where the session was last, if that counts.
    last: Option<usize>,
}

impl Scene {
    pub(super) fn new(
        question: &Question<'_>,
        seats: Arc<Seats>,
        facts: Option<Facts>,
        (believed, last_place): (Way, Option<Place>),
    ) -> Self {
        let at = question.targets.iter().map(|target| seats.of(target)).collect();
        let ways = seats.hosts.iter().map(|host| host.way(believed)).collect();
        let guessed = question.body.len() as f64 / BYTES_PER_TOKEN;
        let prompt_tokens = facts.as_ref().map_or(guessed, |facts| facts.prompt_tokens as f64);
        let is_last = |target: &fleet::Target| {
            last_place == Some(Place::new(&target.worker.record.worker_id, target.rank))
        };
        let last = last_place.and_then(|_| question.targets.iter().position(is_last));
        Self { seats, at, facts, prompt_tokens, ways, last }
    }

    pub(super) fn seat(&self, target: usize) -> Option<&Seat> {
        self.seats.seats.get((*self.at.get(target)?)?)
    }

    pub(super) fn host(&self, target: usize) -> Option<&Arc<Host>> {
        self.seats.hosts.get(self.seat(target)?.host?)
    }

    pub(super) fn way(&self, target: usize) -> Option<&Way> {
        self.ways.get(self.seat(target)?.host?)
    }

    pub(super) fn held(&self, target: usize) -> Held<'_> {
        let found = self.seat(target).filter(|seat| seat.life.has_same_tokens()).and_then(|seat| {
            let (group, number) = seat.place?;
            Some(self.facts.as_ref()?.groups.get(group)?.as_ref()?.answer.held(number))
        });
        found.unwrap_or(NOTHING)
    }

    /// Tokens of the prompt as the target's engine makes them, if it has to count as many.
    pub(super) fn countable(&self, target: usize) -> Option<f64> {
        let facts = self.facts.as_ref().filter(|facts| facts.is_countable)?;
        let (group, _) = self.seat(target)?.place?;
        Some(facts.groups.get(group)?.as_ref()?.prompt_tokens as f64)
    }

    pub(super) fn all_names(&self, target: usize) -> Option<&Arc<Names>> {
        let (group, _) = self.seat(target)?.place?;
        Some(&self.facts.as_ref()?.groups.get(group)?.as_ref()?.names)
    }

    pub(super) fn names(&self, target: usize) -> Option<&Arc<[u64]>> {
        Some(&self.all_names(target)?.router)
    }

    pub(super) fn images(&self) -> &[u64] {
        self.facts.as_ref().map_or(&[], |facts| &facts.images)
    }

    fn request(&self) -> ettft::Request {
        let images = u32::try_from(self.images().len()).unwrap_or(u32::MAX);
        ettft::Request { prompt_tokens: self.prompt_tokens, images }
    }

    fn target(&self, target: usize) -> Target<'_> {
        let mut held = self.held(target);
        let seat = self.seat(target);
        let (mut load, mut speed, mut images_held) = Default::default();
        if let Some(seat) = seat {
            speed = seat.life.speed();
            let account = seat.life.account(seat.rank);
            load = account.load(seat.decodes_max, &speed, seat.life.seconds());
            images_held = account.images_held(self.images());
            if let Some(names) = self.names(target).filter(|_| seat.life.has_same_tokens()) {
                held = held.with_device(account.blocks_to_come(names, held.device_blocks));
            }
        }
        Target {
            held,
            block_size: seat.map_or(0, |seat| seat.block_size),
            way: self.way(target),
            speed,
            load,
            images_held,
            is_last_of_session: self.last == Some(target),
        }
    }

    /// The targets in the order of their expected times to the first token, and what each would have to do.
    fn by_time(&self, desk: &mut KvAware) -> (Vec<usize>, Vec<Work>) {
        let targets = (0..self.at.len()).map(|target| self.target(target));
        let Some(pick) = desk.pick(&self.request(), targets, fastrand::u64(..)) else {
            return (Vec::new(), Vec::new());
        };
        let work = |(target, terms): (usize, &Terms)| Work {
            placed: Placed::new(terms, self.names(target).cloned().unwrap_or_default()),
            terms: Some(*terms),
            cost: None,
            missed_blocks: None,
        };
        (pick.order(), pick.terms.iter().enumerate().map(work).collect())
    }

    /// The same in the order of the reference's costs.
    fn by_blocks(
        &self,
        desk: &mut KvAware,
        weight: f64,
        hint: Hint,
        turn: u64,
    ) -> (Vec<usize>, Vec<Work>) {
        let blocks = (0..self.at.len())
            .filter_map(|target| self.names(target))
            .map(|names| names.len())
            .max();
        let asked = Asked {
            blocks: blocks.and_then(|blocks| u32::try_from(blocks).ok()).unwrap_or(0),
            images: self.request().images,
            weight,
            hint,
        };
        let known = (0..self.at.len()).map(|target| {
            let account = self.seat(target).map(|seat| seat.life.account(seat.rank));
            let held = self.held(target);
            Known {
                hits: f64::from(held.device_blocks) * f64::from(held.device_credit),
                images_held: account
                    .as_ref()
                    .map_or(0, |account| account.images_held(self.images())),
                load: account.as_ref().map_or(0.0, |account| account.reference_load(turn)),
            }
        });
        let Some(pick) = desk.pick_as_reference(&asked, known, fastrand::u64(..)) else {
            return (Vec::new(), Vec::new());
        };
        let works = pick.terms.iter().enumerate().map(|(target, cost)| {
            let blocks = self.names(target).cloned();
            let block_size = self.seat(target).map_or(0, |seat| seat.block_size);
            let missed_blocks = blocks.as_ref().map(|_| cost.missing);
            let work_tokens =
                missed_blocks.map_or(self.prompt_tokens, |blocks| blocks * f64::from(block_size));
            let blocks = blocks.unwrap_or_default();
            let placed = Placed { work_tokens, blocks, counts_blocks: true, ..Placed::default() };
            Work { placed, terms: None, cost: Some(*cost), missed_blocks }
        });
        (pick.order(), works.collect())
    }

    /// What made the first one first.
    fn reason(&self, first: Option<&Work>) -> &'static str {
        let Some(terms) =
            first.and_then(|work| work.terms.as_ref()).filter(|_| self.facts.is_some())
        else {
            return if self.facts.is_some() { "blocks" } else { "load" };
        };
        let credit = [
            (terms.device_tokens, "device"),
            (terms.l2_tokens, "l2"),
            (terms.l3_tokens, "l3"),
            (terms.l4_tokens, "l4"),
        ];
        let most = credit.into_iter().max_by(|one, other| one.0.total_cmp(&other.0));
        most.filter(|(tokens, _)| *tokens > 0.0).map_or("load", |(_, tier)| tier)
    }
}
