//! A container that forbids calls, as a seccomp filter on a thread of its own. Part of the tests of
//! `kvd-disk`, too.

use std::collections::BTreeMap;

use nix::errno::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// A call, and which argument of it must have which value for the filter to refuse.
pub(crate) type Forbidden = (libc::c_long, Option<(u8, u64)>);

/// Runs the body on a thread where the calls fail with `errno`.
pub(crate) fn where_forbidden<T: Send>(
    forbidden: &[Forbidden],
    errno: Errno,
    body: impl FnOnce() -> T + Send,
) -> T {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (call, argument) in forbidden {
        let rules = rules.entry(*call).or_default();
        if let Some((index, value)) = *argument {
            let (width, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
            let condition = SeccompCondition::new(index, width, equal, value).unwrap();
            rules.push(SeccompRule::new(vec![condition]).unwrap());
        }
    }
    let refuse = SeccompAction::Errno((errno as i32).unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    let program = BpfProgram::try_from(filter).unwrap();
    std::thread::scope(|scope| {
        let confined = scope.spawn(|| {
            apply_filter(&program).unwrap();
            body()
        });
        confined.join().unwrap()
    })
}
