//! Disks in containers that forbid the ring, or parts of it. The filters are real (seccomp), each on
//! a thread of its own.

use std::sync::Arc;

use crate::rig::{FILE, Kind, Rig, bytes_of, finish, pattern};
use kvd_disk::{Config, Engine, Memory, OpenError, Opened, Operation, open};
use kvd_shm::mapping::Mapping;
use nix::errno::Errno;

use crate::forbidden::where_forbidden;

/// Codes of `io_uring_register`.
const REGISTER_BUFFERS: u64 = 0;
const REGISTER_FILES: u64 = 2;
const REGISTER_FILES_UPDATE: u64 = 6;
const REGISTER_BUFFERS_UPDATE: u64 = 16;

fn config(engine: Engine, arena: Option<Arc<Mapping>>) -> Config {
    Config { engine, depth: 8, arena, name: "disk-test".to_owned() }
}

/// Writes from the arena and reads back into it, then again with what can be registered.
fn works(opened: Opened, rig: &mut Rig) {
    std::fs::write(rig.path(FILE), []).unwrap();
    rig.disk = opened.disk;
    let handle = rig.reopen(FILE, 0);
    rig.disk.attach(FILE, handle);
    let bytes = pattern(100_000, 4);
    for round in 0..2 {
        rig.arena.copy_in(0, &bytes);
        let from = Memory::Arena(rig.arena.slice(0, bytes.len()));
        rig.disk.submit(Operation::write(1, FILE, round, from)).unwrap();
        assert_eq!(finish(&mut *rig.disk)[&1].result, Ok(()));
        let to = Memory::Arena(rig.arena.slice(1 << 20, bytes.len()));
        rig.disk.submit(Operation::read(2, FILE, round, to)).unwrap();
        let done = finish(&mut *rig.disk).remove(&2).unwrap();
        assert_eq!(done.result, Ok(()));
        assert!(bytes_of(done.memory.unwrap()) == bytes);
        rig.disk.arena_touched(crate::rig::ARENA_BYTES);
    }
}

#[test]
fn without_the_ring_there_is_the_pool_and_a_reason() {
    for (call, step) in [
        (libc::SYS_io_uring_setup, "io_uring_setup"),
        (libc::SYS_io_uring_register, "io_uring_register"),
        (libc::SYS_io_uring_enter, "io_uring_enter"),
    ] {
        for errno in [Errno::EPERM, Errno::ENOSYS] {
            where_forbidden(&[(call, None)], errno, || {
                let opened = open(config(Engine::Auto, None)).unwrap();
                assert_eq!(opened.disk.engine(), "blocking");
                let reason = opened.fallback.clone().unwrap();
                assert!(reason.starts_with(step), "{reason}");
                assert!(reason.contains(&format!("os error {}", errno as i32)), "{reason}");
                works(opened, &mut Rig::new(Kind::Blocking, 8));
                let demanded = open(config(Engine::Uring, None));
                assert!(matches!(demanded, Err(OpenError::NoRing { .. })), "{demanded:?}");
            });
        }
    }
}

#[test]
fn without_registered_memory_the_ring_works_the_plain_way() {
    for code in [REGISTER_BUFFERS, REGISTER_BUFFERS_UPDATE] {
        let forbidden = [(libc::SYS_io_uring_register, Some((1, code)))];
        where_forbidden(&forbidden, Errno::ENOMEM, || {
            let mut rig = Rig::new(Kind::Blocking, 8);
            let mut opened = open(config(Engine::Auto, Some(Arc::clone(&rig.arena)))).unwrap();
            assert_eq!(opened.disk.engine(), "uring");
            let refused = opened.features.refused.iter().any(|note| note.contains("fixed_buffers"));
            assert_eq!(refused, code == REGISTER_BUFFERS, "known at once only for the table");
            assert_eq!(opened.disk.arena_touched(crate::rig::ARENA_BYTES), 0);
            works(opened, &mut rig);
        });
    }
}

#[test]
fn without_a_table_of_files_the_ring_works_the_plain_way() {
    for code in [REGISTER_FILES, REGISTER_FILES_UPDATE] {
        let forbidden = [(libc::SYS_io_uring_register, Some((1, code)))];
        where_forbidden(&forbidden, Errno::EMFILE, || {
            let opened = open(config(Engine::Uring, None)).unwrap();
            let fixed = opened.features.in_force.contains(&"fixed_files");
            assert_eq!(fixed, code == REGISTER_FILES_UPDATE);
            works(opened, &mut Rig::new(Kind::Blocking, 8));
        });
    }
}

#[test]
fn the_pool_can_be_had_without_being_refused_the_ring() {
    let opened = open(config(Engine::Blocking, None)).unwrap();
    assert_eq!((opened.disk.engine(), opened.fallback.as_deref()), ("blocking", None));
    works(opened, &mut Rig::new(Kind::Blocking, 8));
}
