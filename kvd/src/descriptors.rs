//! The limit of open descriptors: two for each session (its socket and its process), one for each
//! file of the disk tier.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors that are not a session's: arena, listeners, event descriptors, log, admin peers.
const OTHERS: u64 = 64;

/// For a directory of the disk tier: its containers, each open twice while it is made, and what is
/// beside them.
const DIRECTORY: u64 = 512 + 32;

/// Raises the soft limit to the hard one and says when that is too little for `sessions_max` and so
/// many directories of the disk tier.
pub fn raise_limit(sessions_max: u32, directories: usize) {
    let needed = u64::from(sessions_max) * 2 + directories as u64 * DIRECTORY + OTHERS;
    let limit = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        }
        Ok(hard)
    });
    match limit {
        Ok(limit) if limit < needed => tracing::warn!(
            limit,
            needed,
            "the descriptor limit is too low for --sessions-max: raise LimitNOFILE or lower it"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the descriptor limit could not be raised"),
    }
}
