//! A request on its way: to one worker after the other until one answers (`attempt`, by `links`), then the answer back as
//! it comes (`answer`). Until its first byte nothing has reached the client, and somebody else can be asked; from
//! then on nothing is asked twice.

mod answer;
mod attempt;
mod events;
pub mod headers;
mod link;
mod links;
mod pieces;
mod request_meter;
mod usage;
mod watch;

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Response};
use router_core::record::DisaggMode;

use self::answer::Answer;
use self::attempt::Attempt;
pub use self::attempt::Begun;
use self::links::Links;
pub use self::request_meter::RequestMeter;
pub use self::usage::Usage;
use self::watch::Watch;
use crate::flags::{Patience, Settings};
use crate::fleet::{self, Fleet, Leg, Target, Worker};
use crate::meters::{Meters, Retry};
use crate::phase;
use crate::picker::{Course, Picker, Question};
use crate::readers::Readers;
use crate::refusal::Refusal;
use crate::request::Fields;
use crate::retention::{self, Retention};

/// So many workers of a request may be out of reach before that counts as an attempt: nothing was sent to them.
const UNREACHED_MAX: u32 = 8;

/// What is done with requests of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The path.
    pub path: &'static str,
    /// Whether engines are told how long to keep the blocks.
    pub has_retention: bool,
    /// Whether a stream of events ends with `[DONE]`.
    pub expects_done: bool,
}

/// A request with its body.
#[derive(Debug)]
pub struct Ask {
    /// Its path's rules.
    pub route: Route,
    /// Path and query as they came.
    pub target: String,
    /// The client's headers.
    pub headers: HeaderMap,
    /// The request's id.
    pub id: HeaderValue,
    /// The body, whole.
    pub body: Bytes,
}

/// Everything that requests share.
#[derive(Debug)]
pub struct Relay {
    fleet: fleet::Shared,
    picker: Arc<dyn Picker>,
    links: Links,
    retries_max: u32,
    patience: Patience,
    drop_headers: Vec<HeaderName>,
    default_retention: Retention,
    readers: Readers,
    meters: Arc<Meters>,
    phase: phase::Current,
}

/// Whom to ask, best first.
#[derive(Debug)]
struct Order {
    /// With their numbers in the question.
    targets: Vec<(usize, Target)>,
    /// Keeps account of where the request goes.
    course: Option<Course>,
    /// Whether they are asked in spite of their breakers.
    is_forced: bool,
}

impl Relay {
    /// One that sends to the workers of `fleet`.
    #[must_use]
    pub fn new(
        settings: &Settings,
        picker: Arc<dyn Picker>,
        fleet: fleet::Shared,
        meters: Arc<Meters>,
        phase: phase::Current,
    ) -> Self {
        Self {
            fleet,
            picker,
            links: attempt::links(&settings.trust),
            retries_max: settings.retries_max,
            patience: settings.patience,
            drop_headers: settings.drop_headers.clone(),
            default_retention: settings.default_retention,
            readers: Readers::default(),
            meters,
            phase,
        }
    }

    /// Closes connections that nobody needs, until the process is closing.
    pub fn tend(&self) -> impl Future<Output = ()> + use<> {
        self.links.tend(self.phase.clone())
    }

    /// Asks workers until one has begun to answer.
    ///
    /// # Errors
    /// None did, or the request is wrong.
    pub async fn begin(&self, ask: &Ask) -> Result<Begun, Refusal> {
        let fields = self.read(&ask.body).await?;
        let order = self.plan(ask, &fields).await?;
        self.attempts(ask, &fields, order).await
    }

    /// Reads a body.
    ///
    /// # Errors
    /// It is wrong, or others were in front of it for too long.
    pub async fn read(&self, body: &Bytes) -> Result<Fields, Refusal> {
        let fields = self.readers.read(body, Fields::read).await?;
        fields.map_err(|error| Refusal::BadRequest(error.to_string()))
    }

    /// Those who read long bodies.
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Looks who can be asked, and asks the picker for an order.
    async fn plan(&self, ask: &Ask, fields: &Fields) -> Result<Order, Refusal> {
        let began = Instant::now();
        let model = fields.model.as_deref().unwrap_or_default();
        let (targets, is_forced, turn) = {
            let fleet = self.fleet.load();
            let pool = fleet.pool(model);
            if pool.targets().is_empty() {
                return Err(no_worker(&fleet, model));
            }
            let (targets, is_forced) = admitted(pool.targets());
            (targets, is_forced, pool.next_turn())
        };
        let question =
            Question { path: ask.route.path, body: &ask.body, fields, targets: &targets, turn };
        let plan = self.picker.pick(question).await;
        self.meters.picks.observe(began.elapsed());
        let order: Vec<(usize, Target)> =
            plan.order.iter().map(|index| (*index, targets[*index].clone())).collect();
        let first = order.first();
        let first = first.map(|(_, target)| (&target.worker.record.worker_id, target.rank));
        tracing::debug!(id = ?ask.id, model, ?first, reason = plan.reason, "picked");
        Ok(Order { targets: order, course: plan.course, is_forced })
    }

    /// Asks one worker after the other, each once.
    async fn attempts(&self, ask: &Ask, fields: &Fields, order: Order) -> Result<Begun, Refusal> {
        let hint = fields.retention.filter(|_| ask.route.has_retention);
        if let Some(hint) = hint {
            self.meters.retention_seen.count(hint);
        }
        let headers = headers::to_worker(&ask.headers, &self.drop_headers, &ask.id);
        let id = ask.id.to_str().unwrap_or_default();
        let mut last_answer: Option<Begun> = None;
        let mut last_loss = String::new();
        let Order { mut targets, mut course, is_forced } = order;
        let mut attempts_left = self.retries_max + 1;
        let mut unreached_left = UNREACHED_MAX;
        let mut has_asked = false;
        while let Some((number, target)) = next_target(&mut targets).filter(|_| attempts_left > 0) {
            // Somebody has to be asked, even if another request has just taken the last probe.
            let is_last_hope = !has_asked && targets.is_empty();
            let Some(mut leg) = Leg::start(target, is_forced || is_last_hope) else { continue };
            leg.place(course.as_mut().and_then(|course| course.begin(number)));
            has_asked = true;
            attempts_left -= 1;
            let worker = leg.target().worker.record.worker_id.clone();
            let body = self.body_for(leg.target(), ask, fields, hint);
            let sent = attempt::request(&leg, &ask.target, headers.clone(), body);
            let request = sent.map_err(|error| Refusal::BadRequest(error.to_string()))?;
            let watch = Watch::start(self.patience, Arc::clone(&self.meters), &worker, id);
            let why = match attempt::send(&self.links, request, leg, watch).await {
                Attempt::Begun(begun) => return Ok(*begun),
                Attempt::Idle => return Err(Refusal::Timeout),
                Attempt::Refused(begun, why) => {
                    tracing::info!(worker, id, status = %begun.head.status, "a worker refused");
                    last_answer = Some(*begun);
                    why
                }
                Attempt::Lost(reason) => {
                    last_loss = lost(&worker, id, &reason);
                    Retry::Lost
                }
                Attempt::Unreached(reason) => {
                    last_loss = lost(&worker, id, &reason);
                    if unreached_left > 0 {
                        unreached_left -= 1;
                        attempts_left += 1;
                    }
                    Retry::Lost
                }
            };
            if attempts_left > 0 && !targets.is_empty() {
                self.meters.retries.count(why);
            }
        }
        last_answer.ok_or(Refusal::Unreachable(last_loss))
    }

    /// The body as this target's engine gets it.
    fn body_for(
        &self,
        target: &Target,
        ask: &Ask,
        fields: &Fields,
        hint: Option<Retention>,
    ) -> Vec<Bytes> {
        match target.worker.engine() {
            Some(engine) if ask.route.has_retention => {
                let retention = hint.unwrap_or(self.default_retention);
                retention::inject(&ask.body, &fields.blanks, engine, retention)
            }
            _ => vec![ask.body.clone()],
        }
    }

    /// What has begun, as the client gets it: its body goes on to come from the worker.
    #[must_use]
    pub fn pass_on(&self, ask: &Ask, begun: Begun, meter: RequestMeter) -> Response<Body> {
        let status = begun.head.status;
        let headers = headers::to_client(&begun.head.headers, &ask.id);
        let expects_done = ask.route.expects_done;
        let answer = Answer::new(begun, meter, expects_done, self.phase.clone());
        let mut response = Response::new(Body::new(answer));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

fn lost(worker: &str, id: &str, reason: &str) -> String {
    tracing::warn!(worker, id, reason, "a worker did not answer");
    format!("{worker}: {reason}")
}

/// Those whose breakers let a request through; all, by force, if none does.
fn admitted(targets: &[Target]) -> (Vec<Target>, bool) {
    let admitted = targets.iter().filter(|target| target.worker.life.admits());
    let admitted: Vec<Target> = admitted.cloned().collect();
    if admitted.is_empty() { (targets.to_vec(), true) } else { (admitted, false) }
}

/// Takes the next target, and the others of the same worker with it: each worker is asked once.
fn next_target(targets: &mut Vec<(usize, Target)>) -> Option<(usize, Target)> {
    let next = targets.first().cloned()?;
    targets.retain(|(_, target)| !Arc::ptr_eq(&target.worker, &next.1.worker));
    Some(next)
}

fn no_worker(fleet: &Fleet, model: &str) -> Refusal {
    let is_part = |worker: &&Arc<Worker>| {
        worker.record.model_name == model && worker.record.disagg_mode != DisaggMode::Mixed
    };
    let more = match fleet.workers().find(is_part) {
        Some(_) => "; its prefill and decode workers are not paired by this version",
        None => "",
    };
    Refusal::NoWorker(format!("no active worker serves the model {model:?}{more}"))
}
