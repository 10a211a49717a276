//! The limit of open descriptors: two for each session (its socket and its process), one for each
//! file of the disk tier.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors that are not a session's: arena, listeners, event descriptors, log, admin peers.
const OTHERS: u64 = 64;

/// For a directory of the disk tier: its containers, each open twice while it is made, and what is
/// beside them.
const DIRECTORY: u64 = 512 + BESIDE_CONTAINERS;

/// For a directory of the disk tier, beside its containers.
const BESIDE_CONTAINERS: u64 = 32;

/// Descriptors that so many sessions and directories of the disk tier take at most.
#[must_use]
pub fn needed(sessions_max: u32, directories: usize) -> u64 {
    u64::from(sessions_max) * 2 + directories as u64 * DIRECTORY + OTHERS
}

/// Raises the soft limit to the hard one and says when that is too little for `sessions_max` and so
/// many directories of the disk tier.
pub fn raise_limit(sessions_max: u32, directories: usize) {
    let needed = needed(sessions_max, directories);
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

/// Containers that each of so many directories may hold open: what the limit leaves beside the
/// sessions, which get half of it at least.
#[must_use]
pub fn containers_max(sessions_max: u32, directories: usize) -> u32 {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    share(limit, sessions_max, directories)
}

fn share(limit: u64, sessions_max: u32, directories: usize) -> u32 {
    let others = (u64::from(sessions_max) * 2 + OTHERS).min(limit / 2);
    let each = (limit - others) / (directories as u64).max(1);
    u32::try_from(each.saturating_sub(BESIDE_CONTAINERS)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn sessions_and_directories_share_the_limit() {
        assert_eq!(share(20_000, 1_024, 1), 20_000 - 2 * 1_024 - 64 - 32);
        assert_eq!(share(1_024, 1_024, 2), 256 - 32, "a limit that is too low is halved");
        assert_eq!(share(40, 1_024, 1), 0);
        assert_eq!(share(u64::MAX, 1, 1), u32::MAX);
    }
}
