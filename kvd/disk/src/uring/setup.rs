//! Asks the kernel for a ring, with as many of its favours as it grants.
//!
//! Kernels refuse unknown flags all together, so flags are taken away one by one, newest first.
//! Containers often refuse the calls themselves; a small ring of its own finds that out before
//! anything depends on it.

use std::io;

use io_uring::{Builder, IoUring, Probe, opcode, squeue};

use crate::open::Features;

/// A ring, not yet used by anybody.
pub(super) struct Ring {
    pub(super) uring: IoUring,
    /// It must be enabled, by the thread that will use it.
    pub(super) is_disabled: bool,
}

/// A step and the kernel's reason.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct Refused {
    step: &'static str,
    source: io::Error,
}

pub(super) fn refused(step: &'static str) -> impl Fn(io::Error) -> Refused {
    move |source| Refused { step, source }
}

/// Asks for a flag.
type Set = fn(&mut Builder);

/// Flags in the order in which kernels learnt them; each set contains those before it.
const FLAGS: [(&str, Set); 4] = [
    ("submit_all", |builder| {
        builder.setup_submit_all();
    }),
    ("coop_taskrun", |builder| {
        builder.setup_coop_taskrun();
    }),
    // Disabled until its user enables it: the kernel takes that thread for the single issuer.
    ("single_issuer", |builder| {
        builder.setup_single_issuer().setup_r_disabled();
    }),
    ("defer_taskrun", |builder| {
        builder.setup_defer_taskrun();
    }),
];

/// Makes a ring for `entries` submissions.
///
/// # Errors
/// If there can be none, with the step that failed.
pub(super) fn ring(entries: u32, features: &mut Features) -> Result<Ring, Refused> {
    try_out()?;
    let uring = with_flags(features, |builder| builder.build(entries));
    let uring = uring.map_err(refused("io_uring_setup"))?;
    let is_disabled = uring.params().is_setup_single_issuer();
    Ok(Ring { uring, is_disabled })
}

/// Builds with as many flags as are known.
fn with_flags<T>(
    features: &mut Features,
    build: impl Fn(&Builder) -> io::Result<T>,
) -> io::Result<T> {
    for granted in (0..=FLAGS.len()).rev() {
        let mut builder = IoUring::builder();
        let flags = || FLAGS.iter().take(granted);
        for (_, set) in flags() {
            set(&mut builder);
        }
        match build(&builder) {
            Ok(built) => {
                features.in_force.extend(flags().map(|(name, _)| *name));
                let missing = FLAGS.iter().skip(granted);
                features.refused.extend(missing.map(|(name, _)| format!("{name}: unknown")));
                return Ok(built);
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && granted > 0 => {}
            Err(error) => return Err(error),
        }
    }
    unreachable!("the set without flags returns")
}

/// Sets up, registers and enters once: a filter may refuse any of the three.
fn try_out() -> Result<(), Refused> {
    let mut uring: IoUring<squeue::Entry> = IoUring::new(2).map_err(refused("io_uring_setup"))?;
    if !uring.params().is_feature_ext_arg() {
        let too_old = io::Error::from(io::ErrorKind::Unsupported);
        return Err(refused("waiting with a time")(too_old));
    }
    let mut probe = Probe::new();
    uring.submitter().register_probe(&mut probe).map_err(refused("io_uring_register"))?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::ReadFixed::CODE,
        opcode::WriteFixed::CODE,
        opcode::Fsync::CODE,
    ];
    if !needed.iter().all(|code| probe.is_supported(*code)) {
        let too_old = io::Error::from(io::ErrorKind::Unsupported);
        return Err(refused("reads, writes and syncs")(too_old));
    }
    super::push(&mut uring, &opcode::Nop::new().build());
    uring.submit_and_wait(1).map_err(refused("io_uring_enter"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Refuses the first `refusals` attempts as an old kernel does.
    fn built_after(refusals: usize, errno: i32) -> (io::Result<usize>, Features) {
        let (attempts, mut features) = (Cell::new(0), Features::default());
        let built = with_flags(&mut features, |_builder| {
            attempts.set(attempts.get() + 1);
            if attempts.get() > refusals {
                return Ok(attempts.get());
            }
            Err(io::Error::from_raw_os_error(errno))
        });
        (built, features)
    }

    #[test]
    fn flags_are_given_up_newest_first() {
        let (_, features) = built_after(0, libc::EINVAL);
        let all = ["submit_all", "coop_taskrun", "single_issuer", "defer_taskrun"];
        assert_eq!((features.in_force, features.refused.len()), (all.to_vec(), 0));
        let (built, features) = built_after(2, libc::EINVAL);
        assert_eq!(built.unwrap(), 3);
        assert_eq!(features.in_force, all[..2]);
        assert_eq!(features.refused, ["single_issuer: unknown", "defer_taskrun: unknown"]);
        let (built, features) = built_after(4, libc::EINVAL);
        assert_eq!((built.unwrap(), features.in_force.len()), (5, 0));
    }

    #[test]
    fn other_refusals_end_it() {
        let (built, _) = built_after(1, libc::EPERM);
        assert_eq!(built.unwrap_err().raw_os_error(), Some(libc::EPERM));
        let (built, _) = built_after(5, libc::EINVAL);
        assert_eq!(built.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
