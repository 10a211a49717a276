//! One request in the figures, from its head to its last byte.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hyper::StatusCode;

use crate::meters::{Label as _, Meters, Outcome};

/// Counts as in flight while it lives; what was said last is the outcome.
#[derive(Debug)]
pub struct RequestMeter {
    meters: Arc<Meters>,
    began: Instant,
    outcome: Outcome,
}

impl RequestMeter {
    /// A request has come. Until something else is said, it has broken off.
    #[must_use]
    pub fn start(meters: Arc<Meters>) -> Self {
        meters.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { meters, began: Instant::now(), outcome: Outcome::Error }
    }

    /// Where figures go.
    #[must_use]
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// The first byte of the answer is there.
    pub fn first_byte(&self) {
        self.meters.first_bytes.observe(self.began.elapsed());
    }

    /// The last byte has gone out, after a head with this status.
    pub fn finished(&mut self, status: StatusCode) {
        self.outcome = match status.as_u16() {
            ..400 => Outcome::Ok,
            400..500 => Outcome::ClientError,
            500.. => Outcome::ServerError,
        };
    }
}

impl Drop for RequestMeter {
    fn drop(&mut self) {
        self.meters.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.meters.durations[self.outcome.index()].observe(self.began.elapsed());
    }
}
