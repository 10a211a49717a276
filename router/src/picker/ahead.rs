//! What is read ahead for a request that has to wait, and for one that was only announced.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use kvd_proto::events::CacheTier;
use router_core::policy::KvAware;
use router_core::score::Terms;

use super::Question;
use super::kv_aware::{ByCache, Scene};
use crate::feed::{Reading, Status, Wanted};
use crate::hosts::Host;
use crate::refusal::Refusal;
use crate::request::Fields;

/// Copies that were read ahead are kept for twice the time that the request is expected to wait, at least and at most for
/// so long.
const HINT_LIFETIME_MIN: Duration = Duration::from_secs(5);
const HINT_SECONDS_MAX: f64 = 600.0;

impl ByCache {
    /// Has the host to which the next request with this body would go read ahead what that would load; its id, and how
    /// many keys that are. Nothing is sent to a worker.
    ///
    /// # Errors
    /// Nobody serves its model, its blocks are not known, or its host takes no hints.
    pub async fn prewarm(
        &self,
        body: &Bytes,
        fields: &Fields,
        lifetime: Duration,
    ) -> Result<(String, usize), Refusal> {
        let model = fields.model.as_deref().unwrap_or_default();
        let targets = self.targets(model)?;
        let question = Question::announced(body, fields, &targets);
        let seats = self.seats(model);
        let facts = self.facts(&question, &seats).await.map_err(|_skipped| {
            Refusal::NotServed("the prompt's blocks are not known: /v1/admin/explain says why")
        })?;
        let last = self.inner.last_place(Some(&facts));
        let scene = Scene::new(&question, seats, Some(facts), (self.way, last));
        let turn = self.inner.turn.load(Ordering::Relaxed);
        let (order, _works) = self.score(&scene, &question, turn, &mut KvAware::new());
        let first = order.first().copied();
        let takes_hints = |host: &&Arc<Host>| host.registration.prefetch_url.is_some();
        let host = first.and_then(|first| scene.host(first)).filter(takes_hints).ok_or(
            Refusal::NotServed(
                "the daemon of the host that the request would go to takes no hints",
            ),
        )?;
        let host = host.registration.host_id.clone();
        let Some((feed, reading)) = first.and_then(|first| scene.reading(first, lifetime)) else {
            return Ok((host, 0));
        };
        let told = self.inner.parts.feeds.read_ahead_and_tell(feed, reading).await;
        Ok((host, told.unwrap_or(0)))
    }
}

impl Scene {
    /// What is worth being read ahead while a request waits on a target.
    pub(super) fn reading_ahead(
        &self,
        target: usize,
        terms: Option<&Terms>,
    ) -> Option<(&Arc<Status>, Reading)> {
        let terms = terms.filter(|terms| terms.is_prefetch_worth)?;
        let seconds = (2.0 * terms.queue_seconds).min(HINT_SECONDS_MAX);
        self.reading(target, HINT_LIFETIME_MIN.max(Duration::from_secs_f64(seconds)))
    }

    /// What a target would load from below its host's memory, and who is to read it ahead; nothing if nobody takes hints, or
    /// there is nothing.
    fn reading(&self, target: usize, lifetime: Duration) -> Option<(&Arc<Status>, Reading)> {
        let host = self.host(target)?;
        host.registration.prefetch_url.as_ref()?;
        let feed = self.seats.sources.listening.hosts.get(&host.registration.host_id)?;
        let runs = self.held(target).below();
        let runs = runs.filter(|run| matches!(run.tier, CacheTier::L3 | CacheTier::L4));
        let blocks: Vec<_> = runs.map(|run| run.start..run.end).collect();
        let names = Arc::clone(self.all_names(target).filter(|_| !blocks.is_empty())?);
        let wanted = Wanted::Blocks { names, blocks };
        Some((feed, Reading { models: self.seat(target)?.models.clone(), wanted, lifetime }))
    }
}
