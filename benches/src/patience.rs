//! How long anything may take before it counts as a hang.

use std::time::Duration;

/// Nothing measured here comes near it; whoever waits this long has found a hang.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Lets time pass for a measurement: between two looks at a daemon, or until a kill.
#[expect(clippy::disallowed_methods, reason = "nothing wakes whoever watches from outside")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
