//! How fast a device is, as far as its work so far tells.

use crate::time::Timestamp;

/// Bytes per second before anything was measured: a plain SSD.
const FIRST_BYTES_PER_S: u64 = 1 << 30;
/// Time of work that one measurement covers; shorter ones say little.
const SPAN_MS: u64 = 20;

/// Throughput while busy: bytes completed over a span in which something was always under way.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    bytes_per_s: u64,
    /// Of one operation, from its start to its end.
    latency_us: u32,
    /// Since when something is under way without a pause.
    busy_since: Option<Timestamp>,
    bytes: u64,
    /// Work under way.
    in_flight: u32,
    /// Its bytes.
    pub(crate) in_flight_bytes: u64,
}

impl Pace {
    pub(crate) fn begin(&mut self, bytes: u64, now: Timestamp) {
        if self.in_flight == 0 {
            self.busy_since = Some(now);
            self.bytes = 0;
        }
        self.in_flight += 1;
        self.in_flight_bytes += bytes;
    }

    pub(crate) fn end(&mut self, bytes: u64, took_us: u32, now: Timestamp) {
        self.in_flight -= 1;
        self.in_flight_bytes -= bytes;
        self.bytes += bytes;
        let before = if self.latency_us == 0 { took_us } else { self.latency_us };
        self.latency_us = before - before / 8 + took_us / 8;
        let Some(since) = self.busy_since else {
            return;
        };
        let span_ms = now.0.saturating_sub(since.0);
        if span_ms >= SPAN_MS {
            self.measure(self.bytes.saturating_mul(1_000) / span_ms);
            (self.busy_since, self.bytes) = (Some(now), 0);
        } else if self.bytes_per_s == 0 && took_us > 0 && bytes > 0 {
            self.bytes_per_s = bytes.saturating_mul(1_000_000) / u64::from(took_us);
        }
        if self.in_flight == 0 {
            self.busy_since = None;
        }
    }

    /// What to go by until work of its own was measured.
    pub(crate) const fn suppose(&mut self, bytes_per_s: u64) {
        if self.bytes_per_s == 0 {
            self.bytes_per_s = bytes_per_s;
        }
    }

    /// 0 before the first measurement.
    pub(crate) const fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// 0 before the first measurement.
    pub(crate) const fn latency_us(&self) -> u32 {
        self.latency_us
    }

    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Time to move so many bytes, microseconds.
    pub(crate) fn estimate_us(&self, bytes: u64) -> u32 {
        let pace = if self.bytes_per_s == 0 { FIRST_BYTES_PER_S } else { self.bytes_per_s };
        u32::try_from(bytes.saturating_mul(1_000_000) / pace.max(1)).unwrap_or(u32::MAX)
    }

    fn measure(&mut self, bytes_per_s: u64) {
        let before = if self.bytes_per_s == 0 { bytes_per_s } else { self.bytes_per_s };
        self.bytes_per_s = (before / 4 * 3 + bytes_per_s / 4).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use crate::time::Timestamp;

    #[test]
    fn a_busy_device_is_measured_over_its_queue() {
        let mut pace = Pace::default();
        assert_eq!(pace.estimate_us(1 << 30), 1_000_000);
        // Two at a time, 10 ms each, 1 MB each: 200 MB/s.
        pace.begin(1_000_000, Timestamp(0));
        for at in 1..200 {
            pace.begin(1_000_000, Timestamp(at * 5));
            pace.end(1_000_000, 10_000, Timestamp(at * 5));
        }
        let mega = pace.bytes_per_s() / 1_000_000;
        assert!((195..=205).contains(&mega), "{mega}");
        assert_eq!((pace.in_flight(), pace.in_flight_bytes), (1, 1_000_000));
    }

    #[test]
    fn what_is_supposed_counts_until_something_is_measured() {
        let mut pace = Pace::default();
        pace.suppose(20_000_000);
        assert_eq!(pace.estimate_us(1_000_000), 50_000);
        pace.begin(1_000_000, Timestamp(0));
        pace.end(1_000_000, 100_000, Timestamp(100));
        let measured = pace.estimate_us(1_000_000);
        assert!(measured > 50_000, "10 MB/s count for a quarter: {measured}");
        pace.suppose(1 << 40);
        assert_eq!(pace.estimate_us(1_000_000), measured);
    }

    #[test]
    fn a_first_answer_is_better_than_none() {
        let mut pace = Pace::default();
        pace.begin(1_000_000, Timestamp(0));
        pace.end(1_000_000, 2_000, Timestamp(2));
        assert_eq!(pace.estimate_us(1_000_000), 2_000);
    }
}
