//! Runs a program where the kernel refuses some calls, as the filter of a container would:
//! `kvd-test-confined ERRNO CALL… -- PROGRAM [ARGUMENT…]`. The filter is inherited by all that the program starts.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, reason = "a launcher stops at the first surprise")]

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// `SO_PEERPIDFD`, which libc does not name yet.
const SO_PEERPIDFD: u64 = 77;

/// A call, and which argument of it has which value when it is refused.
type Refused = (libc::c_long, Option<(u8, u64)>);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let split = words.iter().position(|word| word == "--").expect("-- before the program");
    let (refused, program) = (&words[..split], &words[split + 1..]);
    let (errno, refused) = refused.split_first().expect("the error number");
    let errno = match errno.as_str() {
        "EPERM" => libc::EPERM,
        "ENOSYS" => libc::ENOSYS,
        other => panic!("{other}: EPERM or ENOSYS"),
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (call, argument) in refused.iter().flat_map(|word| calls_of(word)) {
        let rules = rules.entry(call).or_default();
        if let Some((index, value)) = argument {
            let (width, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
            let condition = SeccompCondition::new(index, width, equal, value).expect("a condition");
            rules.push(SeccompRule::new(vec![condition]).expect("a rule"));
        }
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("an architecture with filters");
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).expect("a filter");
    apply_filter(&BpfProgram::try_from(filter).expect("a program")).expect("setting the filter");
    let (program, arguments) = program.split_first().expect("a program");
    let trouble = Command::new(program).args(arguments).exec();
    panic!("{program}: {trouble}");
}

fn calls_of(word: &str) -> Vec<Refused> {
    let advice = |code: libc::c_int| (libc::SYS_madvise, Some((2, u64::from(code.unsigned_abs()))));
    match word {
        "io_uring" => vec![
            (libc::SYS_io_uring_setup, None),
            (libc::SYS_io_uring_enter, None),
            (libc::SYS_io_uring_register, None),
        ],
        "pidfd_open" => vec![(libc::SYS_pidfd_open, None)],
        "peerpidfd" => vec![(libc::SYS_getsockopt, Some((2, SO_PEERPIDFD)))],
        "collapse" => vec![advice(libc::MADV_COLLAPSE)],
        "populate" => vec![advice(libc::MADV_POPULATE_WRITE)],
        "mbind" => vec![(libc::SYS_mbind, None)],
        "mlock" => vec![(libc::SYS_mlock, None), (libc::SYS_mlock2, None)],
        other => panic!("{other}: no such group of calls"),
    }
}
