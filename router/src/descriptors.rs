//! Open files: each request takes two, the client's connection and the worker's.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Fewer descriptors than this are too few for a thousand streams.
const WANTED: u64 = 4_096;

/// Raises the limit as far as the system allows without privileges.
pub fn raise_limit() {
    let (soft, hard) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files is not known");
            return;
        }
    };
    let is_raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    let limit = if is_raised { hard } else { soft };
    if limit < WANTED {
        tracing::warn!(limit, "few files may be open at once; each request takes two");
    }
}
