//! A request's part in what is in flight, from the pick to its last byte, and what is learnt from its answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use router_core::account::{Answering, Placed, Waiting};
use router_core::score::{Terms, Way};

use crate::feed::{Feeds, Observation, Status};
use crate::fleet::Life;
use crate::hosts::Links;
use crate::meters::Meters;
use crate::relay::Usage;

/// What was expected of an answer.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    /// Tokens of the prompt.
    pub(super) prompt_tokens: f64,
    /// Tokens that the worker has to count in it: nothing if there is more in the request than one prompt of text.
    pub(super) countable_tokens: Option<f64>,
    /// The terms of the target.
    pub(super) terms: Terms,
    /// The way that its loads take.
    pub(super) way: Option<Way>,
}

/// What was expected of an engine's cache.
#[derive(Debug, Clone)]
pub(super) struct Credited {
    pub(super) feed: Arc<Status>,
    pub(super) chain: Arc<[u64]>,
    pub(super) device_blocks: u32,
    pub(super) block_size: u32,
}

/// Where a request was placed.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) life: Arc<Life>,
    pub(super) rank: Option<u32>,
    pub(super) links: Option<Arc<Links>>,
}

#[derive(Debug)]
enum State {
    Waiting(Waiting),
    Answering(Answering),
    Over,
}

/// Counts as load while it lives: as work to do until the first token, as an answer until the last.
#[derive(Debug)]
pub struct Placement {
    site: Site,
    state: State,
    began: Instant,
    expected: Option<Expected>,
    credited: Option<Credited>,
    feeds: Arc<Feeds>,
    meters: Arc<Meters>,
}

impl Placement {
    /// A request is sent to `site`. `turn` and `missed_blocks` as [`router_core::account::TargetLoad::begin`] has them.
    pub(super) fn begin(
        site: Site,
        placed: Placed,
        (turn, missed_blocks): (u64, Option<f64>),
        (expected, credited): (Option<Expected>, Option<Credited>),
        (feeds, meters): (Arc<Feeds>, Arc<Meters>),
    ) -> Self {
        if let Some(links) = &site.links {
            links.load().begin(&placed);
        }
        let now = site.life.seconds();
        let waiting = site.life.account(site.rank).begin(placed, turn, missed_blocks, now);
        let state = State::Waiting(waiting);
        Self { site, state, began: Instant::now(), expected, credited, feeds, meters }
    }

    /// The first token has come; only the first word counts.
    pub fn first_token(&mut self) {
        let State::Waiting(waiting) = std::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        let Site { life, rank, links } = &self.site;
        let answering = {
            let mut account = life.account(*rank);
            let mut host = links.as_ref().map(|links| links.load());
            account.first_byte(host.as_deref_mut(), waiting, life.seconds())
        };
        self.state = State::Answering(answering);
        let observed = self.began.elapsed().as_secs_f64();
        if let Some(Expected { prompt_tokens, terms, way, .. }) = &self.expected {
            life.observe(*prompt_tokens, terms, observed);
            if let (Some(links), Some(way)) = (links, way) {
                links.fit().observe(way, terms, observed);
            }
        }
    }

    /// The worker said what the request took.
    pub fn used(&self, usage: Usage) {
        let expected = self.expected.as_ref().and_then(|expected| expected.countable_tokens);
        if let (Some(expected), Some(counted)) = (expected, usage.prompt_tokens) {
            let is_right = (expected - f64::from(counted)).abs() < 0.5;
            self.site.life.compare_tokens(is_right);
        }
        let Some(cached) = usage.cached_tokens else {
            return;
        };
        self.meters.cached_tokens.fetch_add(cached.into(), Ordering::Relaxed);
        if let Some(Credited { feed, chain, device_blocks, block_size }) = &self.credited {
            let observed = cached / (*block_size).max(1);
            let (chain, predicted) = (Arc::clone(chain), *device_blocks);
            self.feeds.observe(feed, Observation { chain, predicted, observed });
        }
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        let Site { life, rank, links } = &self.site;
        match std::mem::replace(&mut self.state, State::Over) {
            State::Waiting(waiting) => {
                let mut account = life.account(*rank);
                let mut host = links.as_ref().map(|links| links.load());
                account.abandon(host.as_deref_mut(), waiting, life.seconds());
            }
            State::Answering(answering) => life.account(*rank).finish(answering),
            State::Over => {}
        }
    }
}
