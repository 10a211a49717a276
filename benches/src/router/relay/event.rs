//! What the worker's answers are made of: events that tell when they were written, one with the checksum of all before,
//! and the end mark.

use kvd_shm::checksum::Checksum;
use nix::time::{ClockId, clock_gettime};

const BEFORE: &str = "data: {\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\
     \"choices\":[{\"index\":0,\"delta\":{\"content\":\"";
const AFTER: &str = "\"},\"finish_reason\":null}]}\n\n";
const SUM_BEFORE: &str = "data: {\"choices\":[],\"checksum\":\"";
const SUM_AFTER: &str = "\"}\n\n";
const END: &str = "data: [DONE]\n\n";
const HEX_DIGITS: usize = 16;
/// Length of an event.
pub const EVENT_BYTES: usize = BEFORE.len() + HEX_DIGITS + AFTER.len();

/// Nanoseconds of a clock that all processes share.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(std::time::Duration::from);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// An event that is written now.
#[must_use]
pub fn event(now_ns: u64) -> String {
    format!("{BEFORE}{now_ns:016x}{AFTER}")
}

/// When the event was written; `None` if it is none.
#[must_use]
pub fn stamp(event: &[u8]) -> Option<u64> {
    let digits = event.strip_prefix(BEFORE.as_bytes())?.strip_suffix(AFTER.as_bytes())?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// What ends an answer after events with this checksum.
#[must_use]
pub fn ending(events: Checksum) -> String {
    format!("{SUM_BEFORE}{:016x}{SUM_AFTER}{END}", events.value())
}

/// Whether `body` is what the worker wrote: that many events, and nothing in them altered.
#[must_use]
pub fn is_whole(body: &[u8], events: usize) -> bool {
    let Some((all, rest)) = body.split_at_checked(events * EVENT_BYTES) else { return false };
    let mut checksum = Checksum::new();
    checksum.update(all);
    all.chunks(EVENT_BYTES).all(|event| stamp(event).is_some())
        && rest == ending(checksum).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_altered_bit_and_every_lost_byte_is_found() {
        let events: String = [7, 1 << 40].into_iter().map(event).collect();
        let mut checksum = Checksum::new();
        checksum.update(events.as_bytes());
        let body = (events + &ending(checksum)).into_bytes();
        assert!(is_whole(&body, 2));
        assert!(!is_whole(&body, 1) && !is_whole(&body, 3));
        for at in 0..body.len() {
            let mut altered = body.clone();
            altered[at] ^= 1;
            assert!(!is_whole(&altered, 2), "{at}");
            let mut shorter = body.clone();
            shorter.remove(at);
            assert!(!is_whole(&shorter, 2), "{at}");
        }
        let mut swapped = body.clone();
        swapped.rotate_left(EVENT_BYTES);
        assert!(!is_whole(&swapped, 2));
    }

    #[test]
    fn an_event_tells_when_it_was_written() {
        assert_eq!(event(u64::MAX).len(), EVENT_BYTES);
        assert_eq!(stamp(event(12_345).as_bytes()), Some(12_345));
        assert_eq!(stamp(&event(1).as_bytes()[1..]), None);
    }
}
