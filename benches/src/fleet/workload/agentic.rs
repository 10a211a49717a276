//! Agents at work: a prefix of 20 000 tokens, of which the first part (instructions, tools) is that of the kind of agent
//! and the rest (the task) its own, then 30 turns. Each turn adds what a tool said to the prompt; the next one comes when
//! the tool is done, not before the answer is.

use super::super::draw::{Draw, Purpose};
use super::super::request::{BLOCK_TOKENS, Chain, Request};
use super::Workload;

/// Tokens before the first turn.
const PREFIX_TOKENS: u32 = 20_000;
/// Tokens of it that all agents of a kind share.
const SHARED_TOKENS: u32 = 12_000;
const TURNS: u32 = 30;
/// Medians of what a turn adds.
const TOOL_TOKENS: f64 = 600.0;
const ANSWER_TOKENS: f64 = 150.0;
/// How long tools take on average.
const TOOL_SECONDS: f64 = 6.0;

/// How many agents, and how they come.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// From when to when requests count. Afterwards none come.
    pub counted: [f64; 2],
    /// Kinds of them; the first ones are more popular.
    pub kinds: u32,
    /// Agents that begin in a second.
    pub per_second: f64,
}

#[derive(Debug)]
struct Session {
    kind: u64,
    task: u64,
    turn: u32,
}

/// The agents.
#[derive(Debug)]
pub struct Agents {
    shape: Shape,
    draw: Draw,
    sessions: Vec<Session>,
}

impl Agents {
    /// Agents of this shape.
    #[must_use]
    pub fn new(shape: Shape, seed: u64) -> Self {
        Self { shape, draw: Draw::new(seed, Purpose::Workload), sessions: Vec::new() }
    }

    fn turn(&mut self, number: u32, history: u32, arrival: f64) -> Option<Request> {
        let prompt_tokens = history + self.draw.length(TOOL_TOKENS);
        let output_tokens = self.draw.length(ANSWER_TOKENS);
        let session = self.sessions.get_mut(number as usize)?;
        session.turn += 1;
        let (kind, task) = (session.kind, session.task);
        let blocks = u64::from((prompt_tokens + output_tokens) / BLOCK_TOKENS);
        let shared = u64::from(SHARED_TOKENS / BLOCK_TOKENS);
        let content = |at: u64| {
            let salt = if at < shared { kind } else { task };
            (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt
        };
        let chain = Chain::new((0..blocks).map(content));
        Some(Request { arrival, session: number, prompt_tokens, output_tokens, chain })
    }
}

impl Workload for Agents {
    fn first(&mut self) -> Vec<Request> {
        let kinds: Vec<u64> = (0..self.shape.kinds).map(|_| self.draw.bits()).collect();
        let mut at = 0.0;
        let mut requests = Vec::new();
        for number in 0.. {
            at += self.draw.wait(1.0 / self.shape.per_second);
            if at > self.shape.counted[1] {
                break;
            }
            let kind = kinds[self.draw.popular(self.shape.kinds) as usize];
            let task = self.draw.bits();
            self.sessions.push(Session { kind, task, turn: 0 });
            requests.extend(self.turn(number, PREFIX_TOKENS, at));
        }
        requests
    }

    fn counted(&self) -> [f64; 2] {
        self.shape.counted
    }

    fn after(&mut self, answered: &Request, now: f64) -> Option<Request> {
        let turn = self.sessions.get(answered.session as usize)?.turn;
        let arrival = now + self.draw.wait(TOOL_SECONDS);
        if turn >= TURNS || arrival > self.shape.counted[1] {
            return None;
        }
        self.turn(answered.session, answered.prompt_tokens + answered.output_tokens, arrival)
    }
}
