//! How long this tool waits.

use std::time::Duration;

/// How long a daemon may take for one answer before it counts as not reachable.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);
