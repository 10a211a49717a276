//! Which cores a thread, and the processes it starts, may run on.
//!
//! On a virtual machine, waking the other core costs several times as much as the work of a round trip. A comparison
//! of round trips therefore says on which cores both ends ran.

use anyhow::Context as _;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// This thread.
const SELF: Pid = Pid::from_raw(0);

/// The cores that this thread may run on.
///
/// # Errors
/// If the kernel does not say.
pub fn cores() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(SELF).context("asking for the cores of this thread")?;
    Ok((0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect())
}

/// Confinement of the thread that made it, until it is dropped. Threads and processes that are started meanwhile
/// inherit it and keep it.
#[derive(Debug)]
#[must_use = "the confinement ends when this is dropped"]
pub struct Pinned {
    before: CpuSet,
}

/// Confines this thread to one core.
///
/// # Errors
/// If the kernel refuses.
pub fn pin(core: usize) -> anyhow::Result<Pinned> {
    let before = sched_getaffinity(SELF).context("asking for the cores of this thread")?;
    let mut only = CpuSet::new();
    only.set(core).context("naming a core")?;
    sched_setaffinity(SELF, &only)
        .with_context(|| format!("confining this thread to core {core}"))?;
    Ok(Pinned { before })
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The cores were allowed before, so the kernel has no reason to refuse; if it does, the thread stays where it
        // is, which costs speed and nothing else.
        let _refused = sched_setaffinity(SELF, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_core_until_the_guard_goes() {
        let before = cores().unwrap();
        let last = *before.last().unwrap();
        let pinned = pin(last).unwrap();
        assert_eq!(cores().unwrap(), [last]);
        drop(pinned);
        assert_eq!(cores().unwrap(), before);
    }
}
