//! Values between a socket and the arena: in pieces, cut short, late, and to a peer that is gone.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use kvd_shm::arena::{Arena, ArenaConfig};
use kvd_shm::mapping::{Access, Mapping, Piece};
use kvd_shm::numa::NumaPolicy;
use nix::sys::socket::{setsockopt, sockopt};

const BYTES: u64 = 8 << 20;

fn arena() -> Arena {
    let numa = NumaPolicy::Interleave;
    Arena::create(ArenaConfig { bytes: BYTES, hugetlb: false, numa, pin: false }).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 249).to_le_bytes()[0] ^ (index >> 8).to_le_bytes()[0]).collect()
}

#[test]
fn a_value_arrives_in_many_small_writes() {
    let arena = arena();
    let (mut peer, socket) = UnixStream::pair().unwrap();
    let value = pattern(300_001);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for piece in value.chunks(997) {
                peer.write_all(piece).unwrap();
            }
            peer.write_all(b"next frame").unwrap();
        });
        arena.mapping().receive_into(socket.as_fd(), 4096 + 3, value.len()).unwrap();
    });
    assert!(arena.mapping().slice(4096 + 3, value.len()).to_vec() == value);
    // Not a byte too many: neither taken from the socket nor written behind the value.
    let mut rest = [0; 10];
    (&socket).read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"next frame");
    assert_eq!(arena.mapping().slice(4096 + 3 + 300_001, 100).to_vec(), [0; 100]);
    assert_eq!(arena.mapping().slice(4096, 3).to_vec(), [0; 3]);
}

#[test]
fn a_stream_that_ends_early_says_how_far_it_got() {
    let arena = arena();
    let (mut peer, socket) = UnixStream::pair().unwrap();
    peer.write_all(b"only this").unwrap();
    drop(peer);
    let stopped = arena.mapping().receive_into(socket.as_fd(), 64, 4000).unwrap_err();
    assert_eq!((stopped.done, stopped.source.kind()), (9, ErrorKind::UnexpectedEof));
    assert_eq!(arena.mapping().slice(64, 10).to_vec(), b"only this\0");
}

#[test]
fn a_late_value_times_out_and_can_be_resumed() {
    let arena = arena();
    let (mut peer, socket) = UnixStream::pair().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    peer.write_all(b"first ").unwrap();
    let stopped = arena.mapping().receive_into(socket.as_fd(), 0, 12).unwrap_err();
    assert_eq!((stopped.done, stopped.source.kind()), (6, ErrorKind::WouldBlock));
    peer.write_all(b"second").unwrap();
    arena.mapping().receive_into(socket.as_fd(), 6, 6).unwrap();
    assert_eq!(arena.mapping().slice(0, 12).to_vec(), b"first second");
}

#[test]
fn a_socket_that_does_not_block_answers_at_once() {
    let arena = arena();
    let (_peer, socket) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    let stopped = arena.mapping().receive_into(socket.as_fd(), 0, 1).unwrap_err();
    assert_eq!((stopped.done, stopped.source.kind()), (0, ErrorKind::WouldBlock));
    arena.mapping().receive_into(socket.as_fd(), 0, 0).unwrap();
}

#[test]
fn a_large_value_leaves_through_a_small_socket() {
    let arena = arena();
    let value = pattern(3_000_003);
    arena.mapping().copy_in(65, &value);
    let (socket, mut peer) = UnixStream::pair().unwrap();
    setsockopt(&socket, sockopt::SndBuf, &4096).unwrap();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            let all = [Piece::Arena { offset: 65, len: value.len() }];
            arena.mapping().send_pieces(socket.as_fd(), &all).unwrap();
            socket.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == value);
}

#[test]
fn pieces_of_both_kinds_leave_in_order() {
    let arena = arena();
    let value = pattern(50_000);
    arena.mapping().copy_in(0, &value);
    // More pieces than one call takes, empty ones at every bad place.
    let mut pieces = vec![Piece::Bytes(b""), Piece::Bytes(b"head")];
    let mut expected = b"head".to_vec();
    for index in 0..150_usize {
        let (offset, len) = (index * 300, index * 7 % 301);
        pieces.push(Piece::Arena { offset: offset as u64, len });
        expected.extend(&value[offset..offset + len]);
        pieces.push(Piece::Bytes(b"|"));
        expected.push(b'|');
    }
    pieces.push(Piece::Arena { offset: BYTES, len: 0 });
    let (socket, mut peer) = UnixStream::pair().unwrap();
    setsockopt(&socket, sockopt::SndBuf, &4096).unwrap();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            arena.mapping().send_pieces(socket.as_fd(), &pieces).unwrap();
            arena.mapping().send_pieces(socket.as_fd(), &[]).unwrap();
            socket.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == expected);
}

#[test]
fn sending_to_nobody_is_an_error_and_no_signal() {
    let arena = arena();
    let (socket, peer) = UnixStream::pair().unwrap();
    drop(peer);
    let all = [Piece::Arena { offset: 0, len: 100 }];
    let stopped = arena.mapping().send_pieces(socket.as_fd(), &all).unwrap_err();
    assert_eq!((stopped.done, stopped.source.kind()), (0, ErrorKind::BrokenPipe));
}

#[test]
fn a_peer_that_does_not_read_stops_the_sender_with_its_progress() {
    let arena = arena();
    arena.mapping().copy_in(0, &pattern(1 << 20));
    let (socket, mut peer) = UnixStream::pair().unwrap();
    socket.set_write_timeout(Some(Duration::from_millis(1))).unwrap();
    let len = usize::try_from(BYTES).unwrap();
    let stopped = arena
        .mapping()
        .send_pieces(socket.as_fd(), &[Piece::Arena { offset: 0, len }])
        .unwrap_err();
    assert_eq!(stopped.source.kind(), ErrorKind::WouldBlock);
    assert!(stopped.done < len);
    drop(socket);
    let mut received = Vec::new();
    peer.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), stopped.done);
}

#[test]
#[should_panic(expected = "read-only")]
fn receiving_into_a_read_only_mapping_is_a_bug() {
    let arena = arena();
    let file = arena.descriptor().try_clone_to_owned().unwrap();
    let client = Mapping::map(file, BYTES, Access::Read).unwrap();
    let (socket, _peer) = UnixStream::pair().unwrap();
    drop(client.receive_into(socket.as_fd(), 0, 1));
}
