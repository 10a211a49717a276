//! The choice of a worker: one [`Picker`] is made at start and asked once for each request. Two are simple; the third
//! ([`kv_aware`]) looks the prompt up ([`tokens`]) for the targets as they are now ([`seats`]), and keeps account of what it
//! sends where ([`placement`]); what waits there is read from disk meanwhile ([`ahead`]).

mod ahead;
mod course;
mod kv_aware;
mod placement;
mod seats;
mod sessions;
mod tokens;

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;

use bytes::Bytes;

pub use self::course::Course;
pub use self::kv_aware::{ByCache, Parts};
pub use self::placement::Placement;
pub(crate) use self::seats::models_of;
use crate::flags::SimplePolicy;
use crate::fleet::Target;
use crate::policy;
use crate::request::Fields;

/// What a picker is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Path of the request, like `/v1/chat/completions`.
    pub path: &'a str,
    /// The request as it came.
    pub body: &'a Bytes,
    /// What was read of it.
    pub fields: &'a Fields,
    /// Where it can go: never empty, in a stable order, breakers already looked at.
    pub targets: &'a [Target],
    /// The number of this request among those for its model.
    pub turn: usize,
}

impl<'a> Question<'a> {
    /// The question of a request that is only announced, and has no path or number of its own.
    fn announced(body: &'a Bytes, fields: &'a Fields, targets: &'a [Target]) -> Self {
        let path = if fields.has_messages { "/v1/chat/completions" } else { "/v1/completions" };
        Self { path, body, fields, targets, turn: 0 }
    }
}

/// What a picker answers.
#[derive(Debug)]
pub struct Plan {
    /// Indices into [`Question::targets`], best first. The first is sent to, the next ones if that fails.
    pub order: Vec<usize>,
    /// Why the first one is first, for the log.
    pub reason: &'static str,
    /// Keeps account of where it is sent, if anybody does.
    pub course: Option<Course>,
}

/// An answer that may need work done elsewhere.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Plan> + Send + 'a>>;

/// Puts targets in order.
pub trait Picker: fmt::Debug + Send + Sync {
    /// Answers with each target at most once.
    fn pick<'a>(&'a self, question: Question<'a>) -> Answer<'a>;
}

/// A picker that is told nothing but how many requests are where.
#[must_use]
pub fn simple(policy: SimplePolicy) -> Box<dyn Picker> {
    match policy {
        SimplePolicy::RoundRobin => Box::new(InTurn),
        SimplePolicy::LeastLoad => Box::new(ByLoad),
    }
}

/// One after the other.
#[derive(Debug)]
struct InTurn;

impl Picker for InTurn {
    fn pick<'a>(&'a self, question: Question<'a>) -> Answer<'a> {
        let order = policy::round_robin(question.targets.len(), question.turn);
        Box::pin(ready(Plan { order, reason: "turn", course: None }))
    }
}

/// The one with the fewest requests in flight.
#[derive(Debug)]
struct ByLoad;

impl Picker for ByLoad {
    fn pick<'a>(&'a self, question: Question<'a>) -> Answer<'a> {
        let loads: Vec<u32> = question.targets.iter().map(Target::load).collect();
        let order = policy::least_load(&loads, question.turn);
        Box::pin(ready(Plan { order, reason: "load", course: None }))
    }
}
