//! Where a request is sent, one target after the other, and what is kept account of there.

use std::sync::Arc;

use super::kv_aware::{Inner, Parts, Scene, Work};
use super::placement::{Credited, Expected, Placement, Site};
use super::sessions::Place;
use crate::meters::Credit;

/// The way of a request through the targets that it is sent to, one after the other.
#[derive(Debug)]
pub struct Course {
    inner: Arc<Inner>,
    scene: Scene,
    /// By target.
    loads: Vec<Work>,
    turn: u64,
    /// The first one counts as load from the pick on.
    first: Option<(usize, Placement)>,
}

impl Course {
    /// The way that begins at `first`, where the request counts from now on.
    pub(super) fn new(
        inner: Arc<Inner>,
        scene: Scene,
        loads: Vec<Work>,
        turn: u64,
        first: Option<usize>,
    ) -> Self {
        let mut course = Self { inner, scene, loads, turn, first: None };
        if let Some(first) = first {
            course.first = course.place(first).map(|placement| (first, placement));
            course.count(first);
        }
        course
    }

    /// The request is sent to this target.
    pub fn begin(&mut self, target: usize) -> Option<Placement> {
        match self.first.take() {
            Some((first, placement)) if first == target => Some(placement),
            _ => self.place(target),
        }
    }

    fn place(&self, target: usize) -> Option<Placement> {
        let (seat, work) = (self.scene.seat(target)?, self.loads.get(target)?);
        let links = self.scene.host(target).map(|host| Arc::clone(&host.links));
        let site = Site { life: Arc::clone(&seat.life), rank: seat.rank, links };
        seat.life.account(seat.rank).see_images(self.scene.images());
        let place = Place::new(seat.life.worker_id(), seat.rank);
        self.inner.note_place(self.scene.facts.as_ref(), place);
        let terms = work.terms.filter(|_| self.scene.facts.is_some());
        let expected = terms.map(|terms| Expected {
            prompt_tokens: self.scene.prompt_tokens,
            countable_tokens: self.scene.countable(target),
            terms,
            way: self.scene.way(target).copied(),
        });
        let names = self.scene.names(target);
        let credited = seat.feed.as_ref().zip(names).map(|(feed, chain)| Credited {
            feed: Arc::clone(feed),
            chain: Arc::clone(chain),
            device_blocks: self.scene.held(target).device_blocks,
            block_size: seat.block_size,
        });
        let Parts { feeds, meters, .. } = &self.inner.parts;
        if let Some((feed, reading)) = self.scene.reading_ahead(target, work.terms.as_ref()) {
            feeds.read_ahead(feed, reading);
        }
        let shared = (Arc::clone(feeds), Arc::clone(meters));
        let counted = (self.turn, work.missed_blocks);
        Some(Placement::begin(site, work.placed.clone(), counted, (expected, credited), shared))
    }

    fn count(&self, target: usize) {
        if let Some(names) = self.scene.names(target) {
            let hits = self.scene.held(target).device_blocks;
            let meters = &self.inner.parts.meters;
            meters.pick_blocks.observe_number(names.len() as u64);
            meters.pick_hits.observe_number(hits.into());
        }
        let Some(terms) = self.loads.get(target).and_then(|work| work.terms.as_ref()) else {
            return;
        };
        let credit = &self.inner.parts.meters.credit_tokens;
        for (tier, tokens) in [
            (Credit::Device, terms.device_tokens),
            (Credit::L2, terms.l2_tokens),
            (Credit::L3, terms.l3_tokens),
            (Credit::L4, terms.l4_tokens),
        ] {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a number of tokens"
            )]
            credit.add(tier, tokens as u64);
        }
    }
}
