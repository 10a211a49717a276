//! What cannot be done ends as a fault, and never hangs.

use kvd_disk::{AlignedBuffer, Fault, Memory, Operation};

use crate::rig::{FILE, Kind, OTHER, Rig, bytes_of, owned, pattern};

pub(crate) fn the_end_of_a_file_is_a_fault(kind: Kind) {
    for (flags, file_len) in [(0, 10_000), (libc::O_DIRECT, 10_000), (libc::O_DIRECT, 8192)] {
        let mut rig = Rig::new(kind, 8);
        rig.make(FILE, &pattern(file_len, 1), flags);
        for (offset, len) in [(4096, 8192), (8192, 4096), (16_384, 4096)] {
            let memory = Memory::Owned(AlignedBuffer::zeroed(len));
            let done = rig.carry_out(Operation::read(1, FILE, offset, memory));
            let transferred = (file_len as u64).saturating_sub(offset);
            let asked = len as u64;
            assert_eq!(done.result, Err(Fault::EndOfFile { offset, transferred, asked }));
            assert_eq!(done.memory.unwrap().len(), len);
        }
    }
}

pub(crate) fn a_file_cut_underneath_is_a_fault(kind: Kind) {
    let mut rig = Rig::new(kind, 32);
    rig.make(FILE, &pattern(1 << 20, 1), 0);
    for token in 0..16 {
        let memory = Memory::Owned(AlignedBuffer::zeroed(64 << 10));
        rig.disk.submit(Operation::read(token, FILE, token * (64 << 10), memory)).unwrap();
    }
    rig.truncate(FILE, 100_000);
    // Whether the reads came before or after the cut: they end.
    let done = rig.finish();
    assert_eq!(done.len(), 16);
    let memory = Memory::Owned(AlignedBuffer::zeroed(64 << 10));
    let done = rig.carry_out(Operation::read(1, FILE, 64 << 10, memory));
    let (offset, transferred, asked) = (64 << 10, 100_000 - (64 << 10), 64 << 10);
    assert_eq!(done.result, Err(Fault::EndOfFile { offset, transferred, asked }));
}

pub(crate) fn places_beyond_every_file_are_faults(kind: Kind) {
    let mut rig = Rig::new(kind, 8);
    rig.make(FILE, &[0; 100], 0);
    for offset in [u64::MAX, u64::MAX - 4096, 1 << 63] {
        let done = rig.carry_out(Operation::read(1, FILE, offset, owned(&[0; 4096])));
        assert_eq!(done.result, Err(Fault::Errno(libc::EINVAL)));
        let done = rig.carry_out(Operation::write(1, FILE, offset, owned(&[0; 4096])));
        assert_eq!(done.result, Err(Fault::Errno(libc::EINVAL)));
        assert!(done.memory.is_some());
    }
    assert_eq!(rig.contents(FILE), [0; 100]);
}

pub(crate) fn a_file_open_for_reading_takes_no_write(kind: Kind) {
    let mut rig = Rig::new(kind, 8);
    std::fs::write(rig.path(FILE), [7; 100]).unwrap();
    let handle = std::fs::File::open(rig.path(FILE)).unwrap();
    rig.disk.attach(FILE, handle);
    let done = rig.carry_out(Operation::write(5, FILE, 0, owned(&[1; 10])));
    assert_eq!(done.result, Err(Fault::Errno(libc::EBADF)));
    assert_eq!(bytes_of(done.memory.unwrap()), [1; 10]);
    assert_eq!(rig.read(FILE, 0, 100), [7; 100]);
}

pub(crate) fn a_file_that_is_not_attached_is_a_fault(kind: Kind) {
    let mut rig = Rig::new(kind, 4);
    for operation in [
        Operation::read(1, OTHER, 0, owned(&[0; 10])),
        Operation::write(2, OTHER, 0, owned(&[0; 10])),
        Operation::sync(3, OTHER),
    ] {
        rig.disk.submit(operation).unwrap();
    }
    assert_eq!(rig.disk.in_flight(), 3);
    let done = rig.finish();
    for token in 1..=3 {
        assert_eq!(done[&token].result, Err(Fault::NotAttached { file: OTHER }));
        assert_eq!(done[&token].memory.is_some(), token != 3);
    }
    rig.disk.detach(OTHER);
}

pub(crate) fn attaching_twice_is_a_bug(kind: Kind) {
    let mut rig = Rig::new(kind, 4);
    rig.make(FILE, &[0; 100], 0);
    let handle = rig.reopen(FILE, 0);
    let attached = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rig.disk.attach(FILE, handle);
    }));
    assert!(attached.is_err());
}

pub(crate) fn a_full_queue_gives_the_operation_back(kind: Kind) {
    let mut rig = Rig::new(kind, 3);
    rig.make(FILE, &[0; 8192], 0);
    assert_eq!(rig.disk.depth(), 3);
    for round in 0..5 {
        for token in 0..3 {
            rig.disk.submit(Operation::read(token, FILE, 0, owned(&[0; 4096]))).unwrap();
        }
        assert_eq!(rig.disk.in_flight(), 3);
        let refused = rig.disk.submit(Operation::write(9, FILE, 4096, owned(&[round; 7])));
        let refused = refused.unwrap_err();
        assert_eq!((refused.token(), refused.file(), refused.offset()), (9, FILE, 4096));
        assert_eq!(bytes_of(refused.into_memory().unwrap()), [round; 7]);
        assert_eq!(rig.finish().len(), 3);
        assert_eq!(rig.disk.in_flight(), 0);
    }
}
