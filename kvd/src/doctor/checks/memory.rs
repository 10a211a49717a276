//! Memory: whether the arena fits, may be locked, and on which pages it comes.

use kvd_shm::arena::PageKind;
use kvd_shm::numa::NumaPolicy;

use super::size;
use crate::config::{Memory, Settings};
use crate::daemon::PrepareError;
use crate::doctor::door::{Door, Place};
use crate::doctor::facts::{Facts, Pool};
use crate::doctor::finding::Finding;
use crate::doctor::trials::Trials;

const HUGE_PAGE_BYTES: u64 = 2 << 20;

pub(super) fn check(
    settings: &Settings,
    facts: &Facts,
    trials: &Trials,
    door: &Door,
    findings: &mut Vec<Finding>,
) {
    let memory = &settings.memory;
    let is_running = matches!(door.place, Place::Served { .. } | Place::Closed);
    findings.push(available(memory, settings.limits.staging_bytes_max, facts, is_running));
    findings.extend(promises(memory, facts, is_running));
    findings.push(lock(memory, facts));
    findings.push(swap(memory, facts));
    if memory.hugetlb {
        findings.push(pool(memory, facts.pool, is_running));
    } else {
        findings.push(transparent(facts, trials));
    }
    findings.push(nodes(memory, facts));
}

fn available(memory: &Memory, staging_bytes: u64, facts: &Facts, is_running: bool) -> Finding {
    const WHAT: &str = "memory";
    let (arena_bytes, available_bytes) = (memory.arena_bytes, facts.available_bytes);
    let host_bytes = facts.host_available_bytes.unwrap_or(u64::MAX);
    let limited_by =
        if available_bytes < host_bytes { "a control group leaves" } else { "the host has" };
    let found = format!(
        "the arena takes {}; {limited_by} {} available",
        size(arena_bytes),
        size(available_bytes)
    );
    if is_running {
        return Finding::ok(WHAT, format!("{found}, without what the running daemon has"));
    }
    if arena_bytes > available_bytes {
        let chosen_by = memory.size_source.clone();
        let refusal = PrepareError::Memory { arena_bytes, available_bytes, chosen_by };
        return Finding::fail(WHAT, found, refusal.to_string());
    }
    if arena_bytes.saturating_add(staging_bytes) > available_bytes {
        let advice = "a smaller --max-bytes, for values that travel through sockets need room too";
        return Finding::warn(WHAT, found, advice);
    }
    Finding::ok(WHAT, found)
}

/// Where the kernel promises no more than it has.
fn promises(memory: &Memory, facts: &Facts, is_running: bool) -> Option<Finding> {
    const WHAT: &str = "overcommit";
    let room = facts.commit_room_bytes?;
    let found = format!("vm.overcommit_memory is 2, {} may still be promised", size(room));
    if memory.arena_bytes <= room || is_running {
        return Some(Finding::ok(WHAT, found));
    }
    let advice = "sysctl vm.overcommit_memory=0, a larger vm.overcommit_ratio, or a smaller arena";
    Some(Finding::fail(WHAT, found, advice))
}

fn lock(memory: &Memory, facts: &Facts) -> Finding {
    const WHAT: &str = "memlock";
    if !memory.pin {
        return Finding::ok(WHAT, "the arena is not to be locked");
    }
    match facts.memlock_bytes {
        None => Finding::ok(WHAT, "no limit"),
        Some(limit) if limit >= memory.arena_bytes => {
            Finding::ok(WHAT, format!("{} may be locked", size(limit)))
        }
        Some(limit) => Finding::warn(
            WHAT,
            format!("{} may be locked, the arena has {}", size(limit), size(memory.arena_bytes)),
            "LimitMEMLOCK=infinity in the unit, ulimit -l unlimited in a shell, CAP_IPC_LOCK in a \
             container; or --no-shared-arena-pin",
        ),
    }
}

fn swap(memory: &Memory, facts: &Facts) -> Finding {
    const WHAT: &str = "swap";
    if facts.swap_bytes == 0 {
        return Finding::ok(WHAT, "none");
    }
    let is_locked =
        memory.pin && facts.memlock_bytes.is_none_or(|limit| limit >= memory.arena_bytes);
    let found = format!("{} of swap space", size(facts.swap_bytes));
    if is_locked || memory.hugetlb {
        return Finding::ok(WHAT, format!("{found}, the arena stays out of it"));
    }
    let advice = "let the arena be locked (memlock): a block that was swapped out comes back slower \
                  than from the disk tier";
    Finding::warn(WHAT, found, advice)
}

fn pool(memory: &Memory, pool: Option<Pool>, is_running: bool) -> Finding {
    const WHAT: &str = "huge pages";
    let needed = memory.arena_bytes.div_ceil(HUGE_PAGE_BYTES);
    let Some(pool) = pool else {
        let found = "the kernel has no pool of 2 MiB pages";
        return Finding::warn(
            WHAT,
            found,
            "--shared-arena-hugetlb=false; transparent pages do too",
        );
    };
    let found =
        format!("the arena needs {needed} of 2 MiB, {} of {} are free", pool.free, pool.total);
    if pool.free >= needed || is_running {
        return Finding::ok(WHAT, found);
    }
    let wanted = pool.total.saturating_add(needed - pool.free);
    let advice =
        format!("sysctl vm.nr_hugepages={wanted}, early after boot; without, other pages are used");
    Finding::warn(WHAT, found, advice)
}

fn transparent(facts: &Facts, trials: &Trials) -> Finding {
    const WHAT: &str = "huge pages";
    let setting = facts.shmem_huge.as_deref().unwrap_or("unknown");
    let Ok(small) = &trials.arena else {
        // The trial has a line of its own.
        return Finding::ok(WHAT, format!("shmem_enabled is {setting}"));
    };
    let found = format!("{} pages come; shmem_enabled is {setting}", small.pages.as_str());
    match small.pages {
        PageKind::HugeTlb | PageKind::Transparent | PageKind::Collapsed => Finding::ok(WHAT, found),
        PageKind::Small => Finding::warn(
            WHAT,
            found,
            "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled; with 4 KiB pages \
             copies and the first touch are slower",
        ),
    }
}

fn nodes(memory: &Memory, facts: &Facts) -> Finding {
    const WHAT: &str = "memory nodes";
    let Some(nodes) = &facts.nodes else {
        return Finding::ok(WHAT, "the kernel does not say");
    };
    match memory.numa {
        NumaPolicy::Bind(node) if !nodes.contains(&node) => Finding::fail(
            WHAT,
            format!("--numa bind:{node}, but there are {nodes:?}"),
            "name one of them, or --numa interleave",
        ),
        NumaPolicy::Bind(node) => Finding::ok(WHAT, format!("all on node {node} of {nodes:?}")),
        NumaPolicy::Interleave => Finding::ok(WHAT, format!("interleaved over {nodes:?}")),
    }
}
