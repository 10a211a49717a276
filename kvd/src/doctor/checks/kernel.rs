//! The kernel: limits, and what it or a filter refuses.

use kvd_shm::note::{Facility, Note};

use crate::config::Settings;
use crate::descriptors;
use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;
use crate::doctor::trials::Trials;

pub(super) fn check(
    settings: &Settings,
    facts: &Facts,
    trials: &Trials,
    findings: &mut Vec<Finding>,
) {
    findings.push(Finding::ok("kernel", facts.kernel.as_deref().unwrap_or("unknown release")));
    findings.push(files(settings, facts));
    arena(trials, findings);
    findings.push(pidfd(trials));
    findings.push(ring(settings, facts, trials));
}

fn files(settings: &Settings, facts: &Facts) -> Finding {
    const WHAT: &str = "nofile";
    let needed = descriptors::needed(settings.limits.sessions_max, settings.disk.paths.len());
    match facts.descriptors {
        Some(limit) if limit < needed => Finding::warn(
            WHAT,
            format!("{limit} descriptors, at most {needed} are needed"),
            format!("LimitNOFILE={needed} or more in the unit, or a smaller --sessions-max"),
        ),
        Some(limit) => Finding::ok(WHAT, format!("{limit} descriptors, {needed} are enough")),
        None => Finding::ok(WHAT, "no limit"),
    }
}

fn arena(trials: &Trials, findings: &mut Vec<Finding>) {
    const WHAT: &str = "arena";
    match &trials.arena {
        Err(refusal) => findings.push(Finding::fail(
            WHAT,
            format!("a small one can't be made: {refusal}"),
            "memfd_create, its seals and mmap must be allowed: see the container's seccomp profile",
        )),
        Ok(small) if small.notes.is_empty() => {
            findings
                .push(Finding::ok(WHAT, "a small one was made, with all that the kernel offers"));
        }
        Ok(small) => {
            let told = small.notes.iter();
            findings.extend(told.map(|note| Finding::warn(WHAT, note.to_string(), way_out(note))));
        }
    }
}

/// What to do about a refusal of the kernel.
fn way_out(note: &Note) -> &'static str {
    match note.facility {
        Facility::HugeTlb => "reserve pages: see huge pages above",
        Facility::NoexecSeal => "Linux 6.3 or newer has it; nothing else depends on it",
        Facility::DontDump => "keep core dumps of the daemon where only its operator reads them",
        Facility::HugePageAdvice => "a kernel with transparent huge pages, for speed",
        Facility::Collapse => "Linux 6.1 or newer, and shmem_enabled other than deny, for speed",
        Facility::Populate => "Linux 5.14 or newer, for a faster start",
        Facility::Lock => "raise the limit: see memlock above",
        Facility::NumaPolicy => "allow mbind: see the container's seccomp profile",
    }
}

/// Rights end with processes, and the kernel tells when those end.
fn pidfd(trials: &Trials) -> Finding {
    const WHAT: &str = "processes";
    match (&trials.pidfd, &trials.peer_pidfd) {
        (Err(refusal), _) => Finding::warn(
            WHAT,
            format!("no descriptors of processes (pidfd_open): {refusal}"),
            "Linux 5.3 or newer, and a filter that allows it: what a killed engine held stays in \
             quarantine without it",
        ),
        (Ok(()), Err(refusal)) => Finding::warn(
            WHAT,
            format!("sockets don't tell the process (SO_PEERPIDFD): {refusal}"),
            "Linux 6.5 or newer; before, only clients that pass their own descriptor are watched \
             from other containers",
        ),
        (Ok(()), Ok(())) => Finding::ok(WHAT, "their ends are seen, from other containers too"),
    }
}

fn ring(settings: &Settings, facts: &Facts, trials: &Trials) -> Finding {
    const WHAT: &str = "io_uring";
    let Err(refusal) = &trials.ring else {
        return Finding::ok(WHAT, "allowed");
    };
    if !settings.disk.is_on() {
        return Finding::ok(WHAT, "refused, and not needed without a disk tier");
    }
    let advice = match facts.io_uring_disabled {
        Some(2) => "sysctl kernel.io_uring_disabled=0",
        Some(1) => {
            "sysctl kernel.io_uring_disabled=0, or the daemon's group in kernel.io_uring_group"
        }
        _ if facts.is_filtered => {
            "a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register"
        }
        _ => "Linux 5.6 or newer",
    };
    let advice = format!("{advice}; without it threads do the I/O, slower for small blocks");
    Finding::warn(WHAT, refusal, advice)
}
