//! Workers that register in etcd. `mirror` holds what is known of its keys and decides what that means; this file
//! connects, asks and waits, each with a deadline. A connection that fails in any way is given up as a whole: the next
//! one goes on where this one was, or begins anew if that can't be.

mod mirror;
mod source;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use self::mirror::{Change, Mirror};
use self::source::{Lost, Source, Watching};
use super::Tools;
use crate::fleet::Origin;
use crate::phase::{self, Phase};

/// Pause after a lost connection: doubled from one to the next up to the bound, back after a good one.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// After this long without a word it is asked whether something was missed.
const SILENCE: Duration = Duration::from_secs(15);
/// What was missed must come within this time, or the watch is dead.
const LATE: Duration = Duration::from_secs(2);

/// Mirrors the keys below `prefix` until the process is closing.
pub(super) async fn run(endpoint: String, prefix: String, tools: Tools) {
    let mut phase = tools.phase.clone();
    let source = Source::new(endpoint, prefix);
    let mut follower = Follower { source, mirror: Mirror::default(), is_told: false, tools };
    tokio::select! {
        () = follower.follow() => {}
        () = phase::reached(&mut phase, Phase::Closing) => {}
    }
}

struct Follower {
    source: Source,
    mirror: Mirror,
    /// Whether the log knows that etcd does not answer.
    is_told: bool,
    tools: Tools,
}

impl Follower {
    async fn follow(&mut self) {
        let mut pause = PAUSE;
        loop {
            let Err(lost) = self.one_connection().await;
            self.tools.standing.lose();
            if let Lost::Anew(_) = lost {
                self.mirror.forget_place();
            }
            // One line for each loss, not for each attempt at it.
            if !std::mem::replace(&mut self.is_told, true) {
                tracing::warn!(reason = %lost, "etcd does not answer; the workers known so far are kept");
                pause = PAUSE;
            }
            self.wait(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Connects, catches up and follows, for as long as that goes well.
    async fn one_connection(&mut self) -> Result<std::convert::Infallible, Lost> {
        let mut source = self.source.connect().await?;
        let (cluster, revision) = source.place().await?;
        if !self.mirror.can_resume(cluster, revision) {
            let listing = source.list().await?;
            let bad = self.mirror.load(listing, Instant::now());
            self.count_bad(bad);
            self.publish();
        }
        let mut watching = source.watch(self.mirror.revision() + 1).await?;
        self.confirm();
        loop {
            let news = timeout(SILENCE.min(self.until_expiry()), watching.next()).await;
            match news {
                Ok(change) => self.apply(change?),
                Err(_elapsed) => {
                    self.expire();
                    self.compare(&mut source, &mut watching).await?;
                }
            }
            self.confirm();
        }
    }

    /// Asks whether something was missed, and if so waits for it a moment.
    async fn compare(
        &mut self,
        source: &mut source::Connected,
        watching: &mut Watching,
    ) -> Result<(), Lost> {
        let keys = source.keys().await?;
        let late = tokio::time::Instant::now() + LATE;
        while !self.mirror.agrees(&keys) {
            let Ok(change) = tokio::time::timeout_at(late, watching.next()).await else {
                return Err(Lost::Anew("the watch does not tell what has changed".to_owned()));
            };
            self.apply(change?);
        }
        Ok(())
    }

    fn apply(&mut self, change: Change) {
        let bad = self.mirror.apply(change);
        self.count_bad(bad);
        self.publish();
    }

    fn confirm(&mut self) {
        if self.tools.standing.confirm() {
            tracing::info!(workers = self.mirror.len(), "following etcd");
        }
        self.is_told = false;
    }

    fn count_bad(&self, bad: Vec<String>) {
        for what in bad {
            self.tools.meters.bad_records.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("a worker's record can't be read: {what}");
        }
    }

    fn publish(&mut self) {
        let records = self.mirror.records();
        self.tools.keeper.publish(records, Origin::Registered, Instant::now());
    }

    fn until_expiry(&self) -> Duration {
        let next = self.mirror.next_expiry();
        next.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Lets go of workers that were only kept for a while.
    fn expire(&mut self) {
        if self.mirror.expire(Instant::now()) {
            self.publish();
        }
    }

    /// Waits without etcd; what was kept for a while is let go of meanwhile.
    async fn wait(&mut self, pause: Duration) {
        sleep(pause).await;
        self.expire();
    }
}
