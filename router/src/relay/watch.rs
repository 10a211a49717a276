//! Watching over a worker's silence: reported once it is long, given up if the settings say so.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::flags::Patience;
use crate::meters::{Meters, Silence};

/// The worker was silent for so long that it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Idle;

/// Watches over one attempt.
#[derive(Debug)]
pub(super) struct Watch {
    patience: Patience,
    meters: Arc<Meters>,
    /// For the log: the worker and the request.
    worker: String,
    id: String,
    /// When the worker was last heard of.
    heard: Instant,
    began: Instant,
    has_first_byte: bool,
    is_reported: bool,
    /// Goes off when something is due, or before: a sign of life does not set it anew, since there are many of those.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Watch {
    /// From now on.
    pub(super) fn start(patience: Patience, meters: Arc<Meters>, worker: &str, id: &str) -> Self {
        let now = Instant::now();
        Self {
            patience,
            meters,
            worker: worker.to_owned(),
            id: id.to_owned(),
            heard: now,
            began: now,
            has_first_byte: false,
            is_reported: false,
            alarm: None,
        }
    }

    /// The first byte of the body is there.
    pub(super) fn first_byte(&mut self) {
        self.has_first_byte = true;
        self.is_reported = false;
    }

    /// Waits for `sign`, which is a sign of life.
    ///
    /// # Errors
    /// There was none for too long.
    pub(super) async fn over<T>(&mut self, sign: impl Future<Output = T>) -> Result<T, Idle> {
        let mut sign = pin!(sign);
        poll_fn(|context| match sign.as_mut().poll(context) {
            Poll::Ready(sign) => {
                self.heard();
                Poll::Ready(Ok(sign))
            }
            Poll::Pending => self.poll_silence(context).map(Err),
        })
        .await
    }

    /// There was a sign of life.
    pub(super) fn heard(&mut self) {
        self.heard = Instant::now();
        self.is_reported &= !self.has_first_byte;
    }

    /// Ready once there was no sign of life for too long.
    pub(super) fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<Idle> {
        loop {
            let (report_at, idle_at) = (self.report_at(), self.idle_at());
            let Some(next) = report_at.into_iter().chain(idle_at).min() else {
                return Poll::Pending;
            };
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(next)));
            if alarm.is_elapsed() || alarm.deadline() > next {
                alarm.as_mut().reset(next);
            }
            ready!(alarm.as_mut().poll(context));
            let now = Instant::now();
            if idle_at.is_some_and(|at| at <= now) {
                return Poll::Ready(Idle);
            }
            if report_at.is_some_and(|at| at <= now) {
                self.report();
            }
        }
    }

    fn idle_at(&self) -> Option<Instant> {
        self.patience.idle.map(|idle| self.heard + idle)
    }

    fn report_at(&self) -> Option<Instant> {
        let (since, after) = if self.has_first_byte {
            (self.heard, self.patience.stall_warn)
        } else {
            (self.began, self.patience.admission_warn)
        };
        after.filter(|_| !self.is_reported).map(|after: Duration| since + after)
    }

    fn report(&mut self) {
        self.is_reported = true;
        let (worker, id) = (&self.worker, &self.id);
        let silent_s = self.heard.elapsed().as_secs();
        if self.has_first_byte {
            self.meters.silences.count(Silence::Stall);
            tracing::warn!(worker, id, silent_s, "an answer has stalled");
        } else {
            self.meters.silences.count(Silence::Admission);
            tracing::warn!(worker, id, silent_s, "an answer has not begun");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::meters::Silence;

    fn watch(idle: Option<u64>) -> (Watch, Arc<Meters>) {
        let meters = Arc::new(Meters::default());
        let patience = Patience {
            idle: idle.map(Duration::from_secs),
            admission_warn: Some(Duration::from_secs(240)),
            stall_warn: Some(Duration::from_secs(60)),
        };
        (Watch::start(patience, Arc::clone(&meters), "w", "id"), meters)
    }

    async fn after(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn each_long_silence_is_reported_once() {
        let (mut watch, meters) = watch(None);
        let reports =
            || (meters.silences.get(Silence::Admission), meters.silences.get(Silence::Stall));
        watch.over(after(239)).await.unwrap();
        assert_eq!(reports(), (0, 0));
        // The head is no first byte.
        watch.over(after(500)).await.unwrap();
        assert_eq!(reports(), (1, 0));
        watch.first_byte();
        for (seconds, stalls) in [(59, 0), (61, 1), (1, 1), (600, 2)] {
            watch.over(after(seconds)).await.unwrap();
            assert_eq!(reports(), (1, stalls), "{seconds}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_for_too_long_is_given_up() {
        let (mut watch, meters) = watch(Some(300));
        watch.over(after(299)).await.unwrap();
        watch.over(ready(())).await.unwrap();
        assert_eq!(watch.over(pending::<()>()).await, Err(Idle));
        assert_eq!(watch.began.elapsed().as_secs(), 599);
        assert_eq!(meters.silences.get(Silence::Admission), 1);
    }
}
