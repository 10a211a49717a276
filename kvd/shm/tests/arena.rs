//! The arena as its clients meet it: sealed, of fixed length, touched ahead of them.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use kvd_shm::arena::{AdoptError, Arena, ArenaConfig, ArenaError, PageKind};
use kvd_shm::mapping::{Access, MapError, Mapping};
use kvd_shm::note::Facility;
use kvd_shm::numa::NumaPolicy;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

const MIB: u64 = 1 << 20;

fn config(bytes: u64) -> ArenaConfig {
    ArenaConfig { bytes, hugetlb: false, numa: NumaPolicy::Interleave, pin: false }
}

fn arena(bytes: u64) -> Arena {
    Arena::create(config(bytes)).unwrap()
}

fn passed(arena: &Arena) -> OwnedFd {
    arena.descriptor().try_clone_to_owned().unwrap()
}

#[test]
fn a_client_can_change_neither_length_nor_seals() {
    let arena = arena(3 * MIB);
    let client = passed(&arena);
    assert_eq!(ftruncate(&client, 4096), Err(Errno::EPERM));
    assert_eq!(ftruncate(&client, 0), Err(Errno::EPERM));
    assert_eq!(ftruncate(&client, 8 << 20), Err(Errno::EPERM));
    let seal = fcntl(&client, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE));
    assert_eq!(seal, Err(Errno::EPERM));
    let file = std::fs::File::from(client);
    let beyond = file.write_at(b"x", 3 * MIB).unwrap_err();
    assert_eq!(beyond.raw_os_error(), Some(libc::EPERM));
    assert_eq!(fstat(&file).unwrap().st_size, 3 << 20);
}

#[test]
fn clients_may_map_it_for_writing() {
    let arena = arena(2 * MIB);
    let client = Mapping::map(passed(&arena), 2 * MIB, Access::ReadWrite).unwrap();
    client.copy_in(12345, b"from the client");
    let mut seen = [0; 15];
    arena.mapping().copy_out(12345, &mut seen);
    assert_eq!(&seen, b"from the client");
}

#[test]
fn its_descriptor_does_not_survive_exec() {
    let arena = arena(4096);
    let flags = fcntl(arena.descriptor(), FcntlArg::F_GETFD).unwrap();
    assert!(FdFlag::from_bits_retain(flags).contains(FdFlag::FD_CLOEXEC));
}

#[test]
fn sizes_are_rounded_up_to_pages() {
    for (asked, got) in [(1, 4096), (4096, 4096), (4097, 8192), (65536, 65536), (3 * MIB, 3 * MIB)]
    {
        let arena = arena(asked);
        assert_eq!(arena.bytes(), got);
        assert_eq!(fstat(arena.descriptor()).unwrap().st_size.unsigned_abs(), got);
        assert_eq!(arena.mapping().bytes(), got);
    }
}

#[test]
fn impossible_sizes_are_refused() {
    for bytes in [0, u64::MAX, u64::MAX - 4095, 1 << 63] {
        let refused = Arena::create(config(bytes));
        assert!(matches!(refused, Err(ArenaError::Size { bytes: named }) if named == bytes));
    }
    let refused = Arena::create(config(1 << 60));
    assert!(matches!(refused, Err(ArenaError::Kernel { .. })));
}

#[test]
fn a_node_that_does_not_exist_is_an_error_of_the_operator() {
    let numa = NumaPolicy::Bind(1000);
    match Arena::create(ArenaConfig { numa, ..config(MIB) }) {
        Err(ArenaError::NoSuchNode { node, nodes }) => {
            assert_eq!(node, 1000);
            assert!(!nodes.contains(&1000));
        }
        // A kernel without NUMA does not say which nodes there are, and refuses the policy.
        Ok(arena) => {
            let notes = arena.take_notes();
            assert!(notes.iter().any(|note| note.facility == Facility::NumaPolicy), "{notes:?}");
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn binding_to_the_first_node_works_where_there_are_nodes() {
    if std::fs::read_to_string("/sys/devices/system/node/has_memory").is_err() {
        return;
    }
    let numa = NumaPolicy::Bind(0);
    let arena = Arena::create(ArenaConfig { numa, ..config(2 * MIB) }).unwrap();
    let notes = arena.take_notes();
    // A container may forbid `mbind`; a wrong mask would be EINVAL.
    assert!(
        notes
            .iter()
            .all(|note| note.facility != Facility::NumaPolicy || note.errno == Errno::EPERM),
        "{notes:?}"
    );
}

#[test]
fn touching_gives_every_page_memory_and_changes_no_byte() {
    let bytes = 7 * MIB + 4096;
    let arena = arena(bytes);
    arena.mapping().copy_in(5 * MIB + 77, b"already here");
    let blocks_before = fstat(arena.descriptor()).unwrap().st_blocks;
    assert!(blocks_before.unsigned_abs() * 512 < bytes);
    let report = arena.touch(0..bytes).unwrap();
    assert_eq!(report.bytes, bytes);
    assert!(report.huge_bytes.is_multiple_of(2 * MIB) && report.huge_bytes <= 6 * MIB);
    assert!(!report.locked);
    let blocks = fstat(arena.descriptor()).unwrap().st_blocks;
    assert_eq!(blocks.unsigned_abs() * 512, bytes, "every page, and none beyond the end");
    let mut seen = [0; 12];
    arena.mapping().copy_out(5 * MIB + 77, &mut seen);
    assert_eq!(&seen, b"already here");
    // Again, and in odd pieces: harmless.
    arena.touch(0..bytes).unwrap();
    arena.touch(1..3 * MIB + 5).unwrap();
    arena.touch(bytes..bytes).unwrap();
    arena.mapping().copy_out(5 * MIB + 77, &mut seen);
    assert_eq!(&seen, b"already here");
}

#[test]
fn touch_reports_and_tally_agree() {
    let arena = arena(8 * MIB);
    assert_eq!(arena.page_kind(), PageKind::Small, "nothing is touched yet");
    let report = arena.touch(0..8 * MIB).unwrap();
    match arena.page_kind() {
        PageKind::Small => assert!(report.huge_bytes <= 4 * MIB),
        PageKind::Transparent => assert!(report.huge_bytes >= 4 * MIB),
        PageKind::Collapsed => assert!(report.huge_bytes >= 4 * MIB && report.collapsed),
        PageKind::HugeTlb => panic!("the pool was not asked for"),
    }
}

#[test]
fn pieces_can_be_touched_in_parallel() {
    let arena = arena(32 * MIB);
    std::thread::scope(|scope| {
        for piece in 0..4 {
            let arena = &arena;
            scope.spawn(move || arena.touch(piece * 8 * MIB..(piece + 1) * 8 * MIB).unwrap());
        }
    });
    assert_eq!(fstat(arena.descriptor()).unwrap().st_blocks.unsigned_abs() * 512, 32 * MIB);
}

#[test]
#[should_panic(expected = "leaves the arena")]
fn touching_beyond_the_end_is_a_bug() {
    let arena = arena(MIB);
    drop(arena.touch(0..MIB + 1));
}

#[test]
fn pages_of_the_pool_or_a_note_and_others() {
    let arena = Arena::create(ArenaConfig { hugetlb: true, ..config(3 * MIB) }).unwrap();
    let notes = arena.take_notes();
    let refused = notes.iter().any(|note| note.facility == Facility::HugeTlb);
    if refused {
        assert_eq!(arena.bytes(), 3 * MIB);
        assert_ne!(arena.page_kind(), PageKind::HugeTlb);
    } else {
        assert_eq!(arena.bytes(), 4 * MIB, "whole pages of the pool");
        assert_eq!(arena.page_kind(), PageKind::HugeTlb);
    }
    assert!(arena.take_notes().is_empty(), "told once");
    arena.touch(0..arena.bytes()).unwrap();
    arena.mapping().copy_in(arena.bytes() - 3, b"end");
    let client = Mapping::map(passed(&arena), arena.bytes(), Access::Read).unwrap();
    let mut seen = [0; 3];
    client.copy_out(arena.bytes() - 3, &mut seen);
    assert_eq!(&seen, b"end");
}

#[test]
fn pinning_locks_what_was_touched_or_says_why_not() {
    let arena = Arena::create(ArenaConfig { pin: true, ..config(16 * MIB) }).unwrap();
    let report = arena.touch(0..16 * MIB).unwrap();
    let notes = arena.take_notes();
    let refused = notes.iter().any(|note| note.facility == Facility::Lock);
    assert_eq!(report.locked, !refused);
    assert_eq!(arena.is_pinned(), !refused);
}

#[test]
fn only_files_that_cannot_shrink_are_mapped() {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let open = memfd_create("unsealed", flags).unwrap();
    ftruncate(&open, 8192).unwrap();
    let copy = open.as_fd().try_clone_to_owned().unwrap();
    assert!(matches!(Mapping::map(copy, 8192, Access::Read), Err(MapError::NotSealed)));
    let grow_only = FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW);
    fcntl(&open, grow_only).unwrap();
    let copy = open.as_fd().try_clone_to_owned().unwrap();
    assert!(matches!(Mapping::map(copy, 8192, Access::Read), Err(MapError::NotSealed)));
    fcntl(&open, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    assert!(Mapping::map(open, 8192, Access::Read).is_ok());
    let ordinary = OwnedFd::from(tempfile::tempfile().unwrap());
    ftruncate(&ordinary, 8192).unwrap();
    assert!(matches!(Mapping::map(ordinary, 8192, Access::Read), Err(MapError::NotSealed)));
}

#[test]
fn an_arena_longer_than_its_file_is_not_mapped() {
    let arena = arena(MIB);
    let refused = Mapping::map(passed(&arena), MIB + 1, Access::Read);
    assert!(matches!(
        refused,
        Err(MapError::TooShort { announced, found }) if announced == MIB + 1 && found == MIB
    ));
    for bytes in [0, u64::MAX] {
        let refused = Mapping::map(passed(&arena), bytes, Access::Read);
        assert!(matches!(refused, Err(MapError::Size { .. })), "{bytes}");
    }
    assert_eq!(Mapping::map(passed(&arena), 4096, Access::Read).unwrap().bytes(), 4096);
}

#[test]
fn mappings_start_on_huge_page_boundaries_and_stay_out_of_dumps() {
    let arena = arena(3 * MIB);
    let client = std::sync::Arc::new(Mapping::map(passed(&arena), 3 * MIB, Access::Read).unwrap());
    let start = client.slice(0, 1).as_ptr().addr();
    assert_eq!(start % (2 << 20), 0);
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let ours = maps.split_once(&format!("\n{start:x}-")).unwrap().1;
    let flags = ours.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
    assert!(flags.contains(" dd"), "{flags}");
}

#[test]
fn a_successor_finds_every_byte_and_knows_the_file_again() {
    let first = arena(5 * MIB);
    first.touch(0..2 * MIB).unwrap();
    first.mapping().copy_in(MIB, b"from the life before");
    let (passed, id) = (passed(&first), first.id().unwrap());
    drop(first);
    let second = Arena::adopt(passed, config(5 * MIB)).unwrap();
    assert_eq!((second.bytes(), second.id().unwrap()), (5 * MIB, id));
    second.touch(0..5 * MIB).unwrap();
    let mut seen = [0; 20];
    second.mapping().copy_out(MIB, &mut seen);
    assert_eq!(&seen, b"from the life before");
    assert_ne!(arena(5 * MIB).id().unwrap(), id);
}

#[test]
fn nothing_but_an_arena_of_the_wanted_size_is_adopted() {
    let of = |file| Arena::adopt(file, config(MIB)).unwrap_err();
    let other = of(passed(&arena(2 * MIB)));
    assert!(
        matches!(other, AdoptError::Size { found, wanted } if (found, wanted) == (2 * MIB, MIB))
    );
    let open = memfd_create("open", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&open, 1 << 20).unwrap();
    assert!(matches!(of(open.try_clone().unwrap()), AdoptError::NotSealed));
    // Somebody could still make it longer, and add a seal that forbids to write.
    fcntl(&open, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    assert!(matches!(of(open), AdoptError::NotSealed));
    assert!(matches!(of(tempfile::tempfile().unwrap().into()), AdoptError::NotSealed));
    let (read, _write) = std::io::pipe().unwrap();
    assert!(matches!(of(read.into()), AdoptError::NotSealed));
}
