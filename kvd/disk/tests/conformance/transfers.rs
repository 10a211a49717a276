//! Bytes go where they should, out of any kind of memory.

use kvd_disk::{AlignedBuffer, Fault, Memory, Operation};

use crate::rig::{FILE, Kind, OTHER, PATIENCE, Rig, bytes_of, owned, pattern};

pub(crate) fn what_is_written_is_read(kind: Kind) {
    let mut rig = Rig::new(kind, 8);
    rig.make(FILE, &[], 0);
    rig.make(OTHER, &pattern(5000, 9), 0);
    let mut offset = 0;
    for len in [1, 511, 4096, 70_000, 3 << 20] {
        let bytes = pattern(len, offset);
        let done = rig.carry_out(Operation::write(offset, FILE, offset, owned(&bytes)));
        assert_eq!(done.result, Ok(()));
        assert!(bytes_of(done.memory.unwrap()) == bytes, "memory of a write comes back as it was");
        assert!(rig.read(FILE, offset, len) == bytes);
        offset += len as u64;
    }
    assert_eq!(rig.contents(FILE).len() as u64, offset);
    assert!(rig.read(OTHER, 1000, 4000) == pattern(5000, 9)[1000..], "files are not mixed up");
}

pub(crate) fn direct_files_take_aligned_memory(kind: Kind) {
    let mut rig = Rig::new(kind, 8);
    rig.make(FILE, &pattern(1 << 20, 1), libc::O_DIRECT);
    let bytes = pattern(64 << 10, 2);
    let done = rig.carry_out(Operation::write(1, FILE, 128 << 10, owned(&bytes)));
    assert_eq!(done.result, Ok(()));
    assert!(rig.read(FILE, 128 << 10, 64 << 10) == bytes);
    let mut expected = pattern(1 << 20, 1);
    expected[128 << 10..192 << 10].copy_from_slice(&bytes);
    assert!(rig.contents(FILE) == expected);
}

pub(crate) fn direct_files_refuse_odd_memory_or_carry_on(kind: Kind) {
    let mut rig = Rig::new(kind, 8);
    rig.make(FILE, &pattern(1 << 16, 1), libc::O_DIRECT);
    for (offset, len) in [(100, 4096), (4096, 100), (0, 1001)] {
        let memory = Memory::Owned(AlignedBuffer::zeroed(len));
        let done = rig.carry_out(Operation::read(1, FILE, offset, memory));
        let at = usize::try_from(offset).unwrap();
        match done.result {
            // Some file systems quietly take the page cache then.
            Ok(()) => assert!(bytes_of(done.memory.unwrap()) == pattern(1 << 16, 1)[at..at + len]),
            Err(fault) => {
                assert_eq!(fault, Fault::Errno(libc::EINVAL));
                assert!(done.memory.is_some());
            }
        }
    }
}

pub(crate) fn the_arena_is_read_and_written_in_place(kind: Kind) {
    for flags in [0, libc::O_DIRECT] {
        let mut rig = Rig::new(kind, 8);
        rig.make(FILE, &vec![0; 2 << 20], flags);
        let bytes = pattern(1 << 20, 5);
        rig.arena.copy_in(1 << 20, &bytes);
        for round in 0..2_u64 {
            // The second round with as much of the arena registered as the engine can have.
            if round == 1 {
                let registered = rig.disk.arena_touched(crate::rig::ARENA_BYTES);
                assert!(registered == 0 || registered == crate::rig::ARENA_BYTES);
            }
            let from = rig.arena_memory(1 << 20, 1 << 20);
            let done = rig.carry_out(Operation::write(1, FILE, 4096 * round, from));
            assert_eq!(done.result, Ok(()));
            let to = rig.arena_memory(4 << 20, 1 << 20);
            let done = rig.carry_out(Operation::read(2, FILE, 4096 * round, to));
            assert_eq!(done.result, Ok(()));
            assert!(rig.arena.slice(4 << 20, 1 << 20).to_vec() == bytes);
            rig.arena.copy_in(4 << 20, &vec![0; 1 << 20]);
        }
        assert!(rig.arena.slice((4 << 20) - 4096, 4096).to_vec() == [0; 4096], "nothing beside it");
        assert!(rig.arena.slice(5 << 20, 4096).to_vec() == [0; 4096]);
    }
}

pub(crate) fn syncs_end(kind: Kind) {
    let mut rig = Rig::new(kind, 8);
    rig.make(FILE, &[], 0);
    for token in 0..4 {
        let bytes = pattern(9000, token);
        rig.disk.submit(Operation::write(token, FILE, token * 9000, owned(&bytes))).unwrap();
        rig.disk.submit(Operation::sync(100 + token, FILE)).unwrap();
    }
    let done = rig.finish();
    assert_eq!(done.len(), 8);
    assert!(done.values().all(|done| done.result == Ok(())));
    assert!(done.values().all(|done| done.memory.is_some() == (done.token < 100)));
}

pub(crate) fn nothing_to_move_ends_at_once(kind: Kind) {
    let mut rig = Rig::new(kind, 8);
    rig.make(FILE, &[], 0);
    let done = rig.carry_out(Operation::read(1, FILE, 1 << 40, owned(&[])));
    assert_eq!((done.result, bytes_of(done.memory.unwrap())), (Ok(()), vec![]));
    let done = rig.carry_out(Operation::write(1, FILE, 1 << 40, owned(&[])));
    assert_eq!(done.result, Ok(()));
    assert!(rig.contents(FILE).is_empty());
}

pub(crate) fn many_operations_each_end_once(kind: Kind) {
    const OPERATIONS: u64 = 2000;
    let mut rig = Rig::new(kind, 64);
    let bytes = pattern(1 << 20, 1);
    rig.make(FILE, &bytes, 0);
    let mut submitted = 0;
    let mut done = Vec::new();
    while submitted < OPERATIONS || rig.disk.in_flight() > 0 {
        while submitted < OPERATIONS {
            let offset = submitted * 7919 % ((1 << 20) - 4096);
            let memory = Memory::Owned(AlignedBuffer::zeroed(4096));
            let read = Operation::read(submitted, FILE, offset, memory);
            if rig.disk.submit(read).is_err() {
                break;
            }
            submitted += 1;
        }
        rig.disk.wait(PATIENCE, &mut done).unwrap();
    }
    done.sort_by_key(|done| done.token);
    assert_eq!(done.len() as u64, OPERATIONS);
    for (token, done) in done.into_iter().enumerate() {
        assert_eq!((done.token, done.result), (token as u64, Ok(())));
        let offset = token * 7919 % ((1 << 20) - 4096);
        assert!(bytes_of(done.memory.unwrap()) == bytes[offset..offset + 4096]);
    }
}
