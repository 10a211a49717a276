//! What happens when a container forbids the calls that only make things better: everything works,
//! and each refusal is told once. The filters are real (seccomp), each on a thread of its own.

#![expect(clippy::unwrap_used, reason = "test code")]

mod forbidden;

use std::os::unix::net::UnixStream;

use kvd_shm::arena::{Arena, ArenaConfig, PageKind};
use kvd_shm::note::{Facility, Note};
use kvd_shm::numa::NumaPolicy;
use kvd_shm::peer::{self, NoPidfd};
use nix::errno::Errno;
use nix::sys::stat::fstat;

use forbidden::{Forbidden, where_forbidden};

const MIB: u64 = 1 << 20;

fn advice(code: libc::c_int) -> Forbidden {
    (libc::SYS_madvise, Some((2, u64::from(code.unsigned_abs()))))
}

/// An arena that was touched, with all notes, its contents and size checked.
fn touched(bytes: u64) -> (Arena, Vec<Note>) {
    let config = ArenaConfig { bytes, hugetlb: false, numa: NumaPolicy::Bind(0), pin: true };
    let arena = Arena::create(config).unwrap();
    arena.mapping().copy_in(3 * MIB, b"before the touch");
    for start in (0..bytes).step_by(4 << 20) {
        arena.touch(start..(start + (4 << 20)).min(bytes)).unwrap();
    }
    let mut seen = [0; 16];
    arena.mapping().copy_out(3 * MIB, &mut seen);
    assert_eq!(&seen, b"before the touch");
    let backed = fstat(arena.descriptor()).unwrap().st_blocks.unsigned_abs() * 512;
    assert_eq!(backed, bytes, "every page has memory");
    let notes = arena.take_notes();
    assert!(arena.take_notes().is_empty(), "told once");
    (arena, notes)
}

fn refusals(notes: &[Note], facility: Facility) -> Vec<Errno> {
    notes.iter().filter(|note| note.facility == facility).map(|note| note.errno).collect()
}

#[test]
fn without_collapse() {
    for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL] {
        let forbidden = [advice(libc::MADV_COLLAPSE)];
        let (arena, notes) = where_forbidden(&forbidden, errno, || touched(12 * MIB));
        let told = refusals(&notes, Facility::Collapse);
        match arena.page_kind() {
            // The first touch gave huge pages; only the piece that was written before it is asked for.
            PageKind::Transparent => assert!(told.is_empty() || told == [errno]),
            PageKind::Small => assert_eq!(told, [errno]),
            kind @ (PageKind::Collapsed | PageKind::HugeTlb) => panic!("{kind:?} is impossible"),
        }
    }
}

#[test]
fn without_a_huge_page_to_be_found() {
    // Too few pieces to give up on: small pages, and nothing to tell yet.
    let forbidden = [advice(libc::MADV_COLLAPSE)];
    let (arena, notes) = where_forbidden(&forbidden, Errno::ENOMEM, || touched(8 * MIB));
    assert_ne!(arena.page_kind(), PageKind::Collapsed);
    assert!(refusals(&notes, Facility::Collapse).is_empty());
    // Many in a row: told once.
    let (arena, notes) = where_forbidden(&forbidden, Errno::ENOMEM, || touched(40 * MIB));
    if arena.page_kind() == PageKind::Small {
        assert_eq!(refusals(&notes, Facility::Collapse), [Errno::ENOMEM]);
    }
}

#[test]
fn without_populate() {
    for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL] {
        let forbidden = [advice(libc::MADV_POPULATE_WRITE), advice(libc::MADV_COLLAPSE)];
        let (_arena, notes) = where_forbidden(&forbidden, errno, || touched(6 * MIB));
        assert_eq!(refusals(&notes, Facility::Populate), [errno]);
    }
}

#[test]
fn without_any_of_it() {
    let forbidden = [
        (libc::SYS_madvise, None),
        (libc::SYS_mincore, None),
        (libc::SYS_mlock, None),
        (libc::SYS_mbind, None),
    ];
    let (arena, notes) = where_forbidden(&forbidden, Errno::EPERM, || touched(6 * MIB));
    assert_eq!(arena.page_kind(), PageKind::Small);
    assert!(!arena.is_pinned());
    for facility in [
        Facility::DontDump,
        Facility::HugePageAdvice,
        Facility::Populate,
        Facility::Collapse,
        Facility::Lock,
        Facility::NumaPolicy,
    ] {
        assert_eq!(refusals(&notes, facility), [Errno::EPERM], "{facility:?}");
    }
}

#[test]
fn without_the_memory_to_lock() {
    let forbidden = [(libc::SYS_mlock, None)];
    let (arena, notes) = where_forbidden(&forbidden, Errno::ENOMEM, || touched(8 * MIB));
    assert_eq!(refusals(&notes, Facility::Lock), [Errno::ENOMEM]);
    assert!(!arena.is_pinned());
}

#[test]
fn without_the_seal_against_execution() {
    // Only the flag's exact sets that this crate uses: with it, and not without.
    let with_flag = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | libc::MFD_NOEXEC_SEAL;
    let forbidden = [(libc::SYS_memfd_create, Some((1, u64::from(with_flag))))];
    let (_arena, notes) = where_forbidden(&forbidden, Errno::EINVAL, || touched(4 * MIB));
    assert_eq!(refusals(&notes, Facility::NoexecSeal), [Errno::EINVAL]);
}

#[test]
fn without_process_descriptors() {
    let peer_pidfd = 77;
    let forbidden = [(libc::SYS_pidfd_open, None), (libc::SYS_getsockopt, Some((2, peer_pidfd)))];
    where_forbidden(&forbidden, Errno::EPERM, || {
        let (socket, _peer) = UnixStream::pair().unwrap();
        let refused = peer::pidfd(&socket).unwrap_err();
        assert_eq!(refused, NoPidfd::Unavailable(Errno::EPERM));
        let refused = peer::own_pidfd().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        assert!(peer::credentials(&socket).is_ok());
    });
}
