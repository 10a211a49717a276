//! What only the ring can show: memory that the kernel holds for long, and threads that may not
//! touch it.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::rig::{FILE, Kind, OTHER, PATIENCE, Rig, bytes_of, owned, pattern};
use kvd_disk::{Completion, Config, Disk, Engine, FileId, Memory, Opened, Operation, open};

/// A file whose reads last until somebody writes to the other end.
fn attach_pipe(disk: &mut dyn Disk) -> File {
    let (reader, writer) = std::io::pipe().unwrap();
    disk.attach(FILE, File::from(OwnedFd::from(reader)));
    File::from(OwnedFd::from(writer))
}

/// Lets the kernel begin.
fn begin(disk: &mut dyn Disk) -> Vec<Completion> {
    let mut done = Vec::new();
    disk.wait(Duration::ZERO, &mut done).unwrap();
    done
}

#[test]
fn memory_stays_while_the_kernel_has_it() {
    let mut rig = Rig::new(Kind::Uring, 4);
    let mut writer = attach_pipe(&mut *rig.disk);
    let before = Arc::strong_count(&rig.arena);
    let memory = rig.arena_memory(0, 4096);
    rig.disk.submit(Operation::read(5, FILE, 0, memory)).unwrap();
    // Interest in the file is gone, and everybody who knew of the operation but the ring.
    rig.disk.detach(FILE);
    for _ in 0..20 {
        assert!(begin(&mut *rig.disk).is_empty());
        assert_eq!(Arc::strong_count(&rig.arena), before + 1, "the ring owns it");
    }
    // In two parts: a short transfer goes on.
    writer.write_all(&pattern(4096, 1)[..1000]).unwrap();
    let mut done = begin(&mut *rig.disk);
    assert!(done.is_empty() && rig.disk.in_flight() == 1);
    writer.write_all(&pattern(4096, 1)[1000..]).unwrap();
    while done.is_empty() {
        rig.disk.wait(PATIENCE, &mut done).unwrap();
    }
    let done = done.pop().unwrap();
    assert_eq!((done.token, done.result), (5, Ok(())));
    assert!(bytes_of(done.memory.unwrap()) == pattern(4096, 1));
    assert_eq!(Arc::strong_count(&rig.arena), before);
}

#[test]
fn dropping_waits_for_the_kernel_however_long() {
    let Opened { mut disk, .. } = opened();
    let mut writer = attach_pipe(&mut *disk);
    let (held, holder) = std::io::pipe().unwrap();
    disk.attach(OTHER, File::from(OwnedFd::from(held)));
    let (begun, has_begun) = std::sync::mpsc::channel();
    let owner = std::thread::Builder::new().spawn(move || {
        disk.submit(Operation::read(1, FILE, 0, owned(&[0; 100]))).unwrap();
        disk.submit(Operation::read(2, OTHER, 0, owned(&[0; 100]))).unwrap();
        assert!(begin(&mut *disk).is_empty());
        begun.send(()).unwrap();
        drop(disk);
    });
    has_begun.recv().unwrap();
    // One after the other: the drop must wait for both.
    writer.write_all(&[1; 100]).unwrap();
    let owner = owner.unwrap();
    assert!(!owner.is_finished(), "the second read still has its memory with the kernel");
    drop(holder);
    owner.join().unwrap();
}

#[test]
fn another_thread_gets_an_error_and_no_memory() {
    let mut rig = Rig::new(Kind::Uring, 4);
    let mut writer = attach_pipe(&mut *rig.disk);
    let memory = rig.arena_memory(0, 4096);
    rig.disk.submit(Operation::read(5, FILE, 0, memory)).unwrap();
    assert!(begin(&mut *rig.disk).is_empty());
    let Rig { mut disk, arena, .. } = rig;
    let features = opened().features;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut done: Vec<Completion> = Vec::new();
            let waited = disk.wait(Duration::from_millis(1), &mut done);
            if features.in_force.contains(&"single_issuer") {
                assert_eq!(waited.unwrap_err().raw_os_error(), Some(libc::EEXIST));
                assert!(done.is_empty());
                drop(disk);
                // The kernel may still write there, so it must stay mapped: leaked, not freed.
                assert!(Arc::strong_count(&arena) > 1);
            }
        });
    });
    writer.write_all(&[1; 4096]).unwrap();
}

fn opened() -> Opened {
    let name = "disk-test".to_owned();
    open(Config { engine: Engine::Auto, depth: 8, arena: None, name }).unwrap()
}

#[test]
fn the_ring_is_taken_where_it_can_be_had() {
    let Opened { disk, features, fallback } = opened();
    assert_eq!((disk.engine(), fallback), ("uring", None));
    assert!(features.in_force.contains(&"fixed_files"), "{features:?}");
    assert!(!features.in_force.contains(&"fixed_buffers"), "there is no arena");
}

#[test]
fn more_files_than_the_table_has_room_for() {
    let mut rig = Rig::new(Kind::Uring, 8);
    std::fs::write(rig.path(FILE), pattern(4096, 1)).unwrap();
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    let files = u32::try_from(limit.0.min(5000) - 200).unwrap();
    for file in 0..files {
        let handle = rig.reopen(FILE, 0);
        rig.disk.attach(FileId(file), handle);
    }
    for file in [0, files / 2, files - 1] {
        assert!(rig.read(FileId(file), 0, 4096) == pattern(4096, 1));
    }
    for file in 0..files {
        rig.disk.detach(FileId(file));
    }
    // The places of the table are free again.
    for round in 0..3 {
        let handle = rig.reopen(FILE, 0);
        rig.disk.attach(FileId(round), handle);
        assert!(rig.read(FileId(round), 0, 4096) == pattern(4096, 1));
    }
}

#[test]
fn registered_memory_is_used_up_to_its_edges() {
    let mut rig = Rig::new(Kind::Uring, 8);
    rig.make(FILE, &pattern(1 << 20, 1), 0);
    assert_eq!(rig.disk.arena_touched(crate::rig::ARENA_BYTES - 1), 0, "no whole piece yet");
    let registered = rig.disk.arena_touched(u64::MAX);
    assert!(registered == 0 || registered == crate::rig::ARENA_BYTES);
    let last = crate::rig::ARENA_BYTES - (1 << 20);
    for (token, offset) in [(1, 0), (2, last)] {
        let memory: Memory = rig.arena_memory(offset, 1 << 20);
        let done = rig.carry_out(Operation::read(token, FILE, 0, memory));
        assert_eq!(done.result, Ok(()));
        assert!(bytes_of(done.memory.unwrap()) == pattern(1 << 20, 1));
    }
}
