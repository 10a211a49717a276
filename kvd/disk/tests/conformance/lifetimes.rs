//! Files and memory stay as long as they are needed, and no longer.

use std::sync::Arc;
use std::time::Duration;

use kvd_disk::{Fault, Operation};

use crate::rig::{FILE, Kind, PATIENCE, Rig, bytes_of, owned, pattern};

/// Whether any descriptor of this process is on the path.
fn is_open(path: &std::path::Path) -> bool {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).any(|at| at == path)
}

pub(crate) fn detached_files_finish_and_are_closed(kind: Kind) {
    let mut rig = Rig::new(kind, 16);
    rig.make(FILE, &pattern(1 << 20, 1), 0);
    for round in 0..3_u64 {
        for token in 0..16 {
            let bytes = pattern(1 << 16, 100 * round + token);
            rig.disk.submit(Operation::write(token, FILE, token << 16, owned(&bytes))).unwrap();
        }
        rig.disk.detach(FILE);
        if kind != Kind::Sim {
            let done = rig.finish();
            assert!(done.values().all(|done| done.result == Ok(())), "those in flight go on");
            assert!(!is_open(&rig.path(FILE)), "closed with the last of them");
        }
        rig.finish();
        let done = rig.carry_out(Operation::read(1, FILE, 0, owned(&[0; 10])));
        assert_eq!(done.result, Err(Fault::NotAttached { file: FILE }));
        // The same id may mean another file from now on.
        let handle = rig.reopen(FILE, 0);
        rig.disk.attach(FILE, handle);
        assert!(rig.read(FILE, 5 << 16, 1 << 16) == pattern(1 << 16, 100 * round + 5));
    }
}

pub(crate) fn the_thread_that_waits_first_owns_the_disk(kind: Kind) {
    let mut rig = Rig::new(kind, 8);
    rig.make(FILE, &pattern(10_000, 3), 0);
    rig.disk.submit(Operation::read(1, FILE, 5000, owned(&[0; 5000]))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let done = rig.finish().remove(&1).unwrap();
            assert!(bytes_of(done.memory.unwrap()) == pattern(10_000, 3)[5000..]);
            rig.disk.detach(FILE);
            let handle = rig.reopen(FILE, libc::O_DIRECT);
            rig.disk.attach(FILE, handle);
            assert_eq!(rig.read(FILE, 0, 4096).len(), 4096);
            // The ring must end where it lived.
            drop(rig);
        });
    });
}

/// Puts 32 writes from the arena in flight; the queue has room for all.
fn with_writes_in_flight(kind: Kind, waits: bool) -> Rig {
    let mut rig = Rig::new(kind, 32);
    rig.make(FILE, &vec![0; 8 << 20], 0);
    for token in 0..32 {
        rig.arena.copy_in(token << 18, &pattern(1 << 18, token));
        let memory = rig.arena_memory(token << 18, 1 << 18);
        rig.disk.submit(Operation::write(token, FILE, token << 18, memory)).unwrap();
    }
    if waits {
        let mut done = Vec::new();
        rig.disk.wait(Duration::ZERO, &mut done).unwrap();
    }
    rig
}

pub(crate) fn dropping_waits_for_what_is_in_flight(kind: Kind) {
    for waits in [false, true] {
        let rig = with_writes_in_flight(kind, waits);
        let Rig { disk, arena, control, .. } = &rig;
        let (arena, control) = (Arc::clone(arena), control.clone());
        assert!(disk.in_flight() > 0 || waits);
        let path = rig.path(FILE);
        let kept = std::fs::OpenOptions::new().read(true).open(&path).unwrap();
        drop(rig);
        assert_eq!(Arc::strong_count(&arena), 1, "nobody holds memory of the arena any more");
        let contents = match control {
            Some(control) => control.contents(FILE).unwrap(),
            None => {
                use std::io::Read as _;
                let mut bytes = Vec::new();
                (&kept).read_to_end(&mut bytes).unwrap();
                bytes
            }
        };
        for (token, written) in contents.chunks(1 << 18).enumerate() {
            assert!(written == pattern(1 << 18, token as u64), "write {token} is missing");
        }
    }
}

pub(crate) fn shutting_down_waits_for_what_is_in_flight(kind: Kind) {
    let rig = with_writes_in_flight(kind, false);
    let Rig { disk, arena, .. } = rig;
    assert!(Arc::strong_count(&arena) > 1);
    disk.shut_down();
    assert_eq!(Arc::strong_count(&arena), 1);
}

pub(crate) fn memory_comes_back_with_its_completion_only(kind: Kind) {
    let mut rig = with_writes_in_flight(kind, false);
    let mut done = Vec::new();
    // What the rig itself and the engine hold besides operations.
    let idle = Arc::strong_count(&rig.arena) - 32;
    while rig.disk.in_flight() > 0 {
        rig.disk.wait(PATIENCE, &mut done).unwrap();
        let held = Arc::strong_count(&rig.arena) - idle;
        assert_eq!(held, 32, "in flight or in a completion, never gone");
        assert!(done.iter().all(|done| done.memory.is_some()));
    }
    drop(done);
    assert_eq!(Arc::strong_count(&rig.arena), idle);
}
