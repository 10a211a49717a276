//! Descriptors over a socket: in exact numbers, close-on-exec, nothing left open. One test, so that
//! nothing else opens or closes descriptors while it counts.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use kvd_shm::arena::{Arena, ArenaConfig};
use kvd_shm::descriptor::{
    DESCRIPTORS_MAX, ReceiveError, receive_with_descriptors, send_with_descriptor,
};
use kvd_shm::mapping::{Access, Mapping};
use kvd_shm::numa::NumaPolicy;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::sys::stat::fstat;

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Sends one byte with any number of descriptors.
fn send_many(socket: &UnixStream, descriptors: &[RawFd]) {
    let attached = [ControlMessage::ScmRights(descriptors)];
    let byte = [std::io::IoSlice::new(b"x")];
    let sent = sendmsg::<()>(socket.as_raw_fd(), &byte, &attached, MsgFlags::empty(), None);
    assert_eq!(sent, Ok(1));
}

fn same_file(one: &OwnedFd, other: impl AsFd) -> bool {
    let (one, other) = (fstat(one).unwrap(), fstat(other).unwrap());
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

#[test]
fn descriptors_travel_in_exact_numbers() {
    let before = open_descriptors();
    one_descriptor_with_a_frame();
    assert_eq!(open_descriptors(), before);
    every_number_up_to_the_limit();
    assert_eq!(open_descriptors(), before);
    more_than_accepted();
    assert_eq!(open_descriptors(), before);
    ends_and_timeouts();
    assert_eq!(open_descriptors(), before);
    attach_and_detach();
    assert_eq!(open_descriptors(), before);
}

fn one_descriptor_with_a_frame() {
    let (mut sender, receiver) = UnixStream::pair().unwrap();
    let file = tempfile::tempfile().unwrap();
    sender.write_all(b"before").unwrap();
    assert_eq!(send_with_descriptor(sender.as_fd(), b"frame", file.as_fd()).unwrap(), 5);
    sender.write_all(b"after").unwrap();
    let mut buffer = [0; 64];
    // What was sent before is not joined with the bytes that carry the descriptor.
    let mut got = Vec::new();
    let mut descriptors = Vec::new();
    while descriptors.is_empty() {
        let (count, some) = receive_with_descriptors(receiver.as_fd(), &mut buffer, 1).unwrap();
        got.extend(&buffer[..count]);
        descriptors = some;
    }
    assert!(got.starts_with(b"beforeframe"), "{got:?}");
    let [received] = descriptors.try_into().unwrap();
    assert!(same_file(&received, &file));
    assert_ne!(received.as_raw_fd(), file.as_raw_fd());
    let flags = fcntl(&received, FcntlArg::F_GETFD).unwrap();
    assert!(FdFlag::from_bits_retain(flags).contains(FdFlag::FD_CLOEXEC));
}

fn every_number_up_to_the_limit() {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let files: Vec<_> = (0..DESCRIPTORS_MAX).map(|_| tempfile::tempfile().unwrap()).collect();
    let raw: Vec<_> = files.iter().map(AsRawFd::as_raw_fd).collect();
    for max in 0..=DESCRIPTORS_MAX {
        for sent in 0..=max {
            send_many(&sender, &raw[..sent]);
            let mut byte = [0];
            let (count, received) =
                receive_with_descriptors(receiver.as_fd(), &mut byte, max).unwrap();
            assert_eq!((count, received.len()), (1, sent));
            for (received, file) in received.iter().zip(&files) {
                assert!(same_file(received, file), "in order");
            }
        }
    }
}

fn more_than_accepted() {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let file = tempfile::tempfile().unwrap();
    let before = open_descriptors();
    for max in 0..=DESCRIPTORS_MAX {
        // One too many is the case that rounding would let through.
        for surplus in [1, 2, 100] {
            send_many(&sender, &vec![file.as_raw_fd(); max + surplus]);
            let refused = receive_with_descriptors(receiver.as_fd(), &mut [0], max).unwrap_err();
            assert!(matches!(refused, ReceiveError::TooMany { max: named } if named == max));
            assert_eq!(open_descriptors(), before, "{surplus} more than {max}");
        }
    }
    // The connection itself is not hurt.
    send_many(&sender, &[file.as_raw_fd()]);
    let (_, received) = receive_with_descriptors(receiver.as_fd(), &mut [0], 1).unwrap();
    assert_eq!(received.len(), 1);
}

fn ends_and_timeouts() {
    let (sender, receiver) = UnixStream::pair().unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let late = receive_with_descriptors(receiver.as_fd(), &mut [0], 1).unwrap_err();
    assert!(matches!(late, ReceiveError::Socket(error) if error.kind() == ErrorKind::WouldBlock));
    drop(sender);
    let (count, none) = receive_with_descriptors(receiver.as_fd(), &mut [0], 1).unwrap();
    assert_eq!((count, none.len()), (0, 0));
    let file = tempfile::tempfile().unwrap();
    let refused = send_with_descriptor(receiver.as_fd(), b"F", file.as_fd()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
}

/// The handshake of protocol 1: acknowledgement, then the arena with a byte of its own.
fn attach_and_detach() {
    let numa = NumaPolicy::Interleave;
    let config = ArenaConfig { bytes: 1 << 20, hugetlb: false, numa, pin: false };
    let arena = Arena::create(config).unwrap();
    let (mut daemon, mut client) = UnixStream::pair().unwrap();
    daemon.write_all(b"ack").unwrap();
    assert_eq!(send_with_descriptor(daemon.as_fd(), b"F", arena.descriptor()).unwrap(), 1);
    let mut ack = [0; 3];
    client.read_exact(&mut ack).unwrap();
    let mut marker = [0];
    let (count, received) = receive_with_descriptors(client.as_fd(), &mut marker, 1).unwrap();
    assert_eq!((count, marker), (1, *b"F"));
    let [file] = received.try_into().unwrap();
    let mapping = Mapping::map(file, arena.bytes(), Access::ReadWrite).unwrap();
    mapping.copy_in(0, b"hello");
    let mut seen = [0; 5];
    arena.mapping().copy_out(0, &mut seen);
    assert_eq!(&seen, b"hello");
}
