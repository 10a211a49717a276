//! Waiting for something to become true: asked again and again, up to a deadline, never slept for.

use std::time::{Duration, Instant};

/// Pause between two questions. Short against every deadline, long against the cost of a question.
const PAUSE: Duration = Duration::from_millis(2);

/// Asks until there is an answer; `None` if there is none within `limit`.
pub fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        // Asked once more after the deadline: a busy machine may have kept us from asking before.
        let is_last = Instant::now() >= deadline;
        let answer = ask();
        if answer.is_some() || is_last {
            return answer;
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// As [`within`]; `what` is how the message calls what did not happen.
///
/// # Panics
/// If there is no answer within `limit`.
pub fn until<T>(what: &str, limit: Duration, ask: impl FnMut() -> Option<T>) -> T {
    within(limit, ask).unwrap_or_else(|| panic!("not within {limit:?}: {what}"))
}

/// As [`until`], for a plain condition and [`crate::PATIENCE`].
///
/// # Panics
/// If it does not become true.
pub fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, crate::PATIENCE, || holds().then_some(()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_comes_when_it_is_there() {
        let mut asked = 0;
        let answer = until("the third time", crate::PATIENCE, || {
            asked += 1;
            (asked == 3).then_some("yes")
        });
        assert_eq!((answer, asked), ("yes", 3));
    }

    #[test]
    #[should_panic(expected = "not within 0ns: pigs fly")]
    fn what_never_comes_is_named() {
        until("pigs fly", Duration::ZERO, || None::<()>);
    }
}
