//! How long anything may take before it counts as a hang.

use std::time::Duration;

/// Nothing measured here comes near it; whoever waits this long has found a hang.
pub const PATIENCE: Duration = Duration::from_secs(30);
