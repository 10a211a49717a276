//! What is held when a connection is lost: said to the next daemon that has the same arena, and to no other.

use std::os::fd::AsFd;

use kvd_client::{Commit, MissReason, Retention};
use kvd_proto::v2::hello::HelloAck;
use kvd_proto::v2::{Reply, feature};
use kvd_shm::arena::Arena;
use nix::sys::stat::fstat;

use crate::daemon::{
    MOMENT, PLENTY, SPACE, ScriptedDaemon, ack, arena, attach, attach_able, attach_as, fetched,
    figure, reserved,
};

fn leases(leases: &[u64]) -> [Vec<u64>; 3] {
    [leases.to_vec(), vec![], vec![]]
}

fn tickets(tickets: &[u64]) -> [Vec<u64>; 3] {
    [vec![], tickets.to_vec(), vec![]]
}

fn sessions(sessions: &[u64]) -> [Vec<u64>; 3] {
    [vec![], vec![], sessions.to_vec()]
}

#[test]
fn what_is_held_goes_on_and_goes_back_over_the_next_connection() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut first = attach_able(listener, 1, 4, &arena);
        let (id, _) = first.hear_fetch();
        first.send_bytes(&fetched(id, 10, &[0, 64, 128], 8));
        let (id, _) = first.hear_reserve();
        first.send_bytes(&reserved(id, 20, &[192, 256]));
        drop(first);
        let mut second = attach_able(listener, 2, 9, &arena);
        assert_eq!(second.hear_resume(true), leases(&[10, 12]));
        assert_eq!(second.hear_resume(true), tickets(&[20]));
        assert_eq!(second.hear_resume(true), sessions(&[4]));
        second.answer_stats(7);
        assert_eq!(second.hear_release(), [10, 12]);
        assert_eq!(second.hear_cancel().1, [20]);
        second.answer_stats(8);
    });
    let client = daemon.client();
    let mut views = client.fetch(SPACE, &[b"a", b"b", b"c"], false, PLENTY).items;
    let mut tickets = client.reserve(&[8, 8], Retention::Short, PLENTY).unwrap();
    // Given back in vain: the daemon is gone, or will not read it.
    drop(views.remove(1));
    drop(tickets.pop());
    assert_eq!(figure(&client), 7);
    drop(views);
    drop(tickets);
    assert_eq!(figure(&client), 8);
    daemon.end();
}

#[test]
fn a_client_that_holds_nothing_says_so_in_one_frame() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        attach_able(listener, 1, 4, &arena).answer_stats(1);
        let mut second = attach_able(listener, 2, 9, &arena);
        assert_eq!(second.hear_resume(true), sessions(&[4]));
        second.answer_stats(2);
    });
    let client = daemon.client();
    assert_eq!((figure(&client), figure(&client)), (1, 2));
    daemon.end();
}

#[test]
fn attaching_is_enough_to_say_it() {
    let (tell, died) = std::sync::mpsc::channel();
    let daemon = ScriptedDaemon::run(move |listener| {
        let arena = arena();
        let mut first = attach_able(listener, 1, 4, &arena);
        let (id, _) = first.hear_fetch();
        first.send_bytes(&fetched(id, 10, &[0], 8));
        drop(first);
        tell.send(()).unwrap();
        let mut second = attach_able(listener, 2, 9, &arena);
        assert_eq!(second.hear_resume(true), sessions(&[4]));
    });
    let client = daemon.client();
    let views = client.fetch(SPACE, &[b"k"], false, PLENTY);
    died.recv().unwrap();
    // Notices the loss, and does nothing about it.
    drop(views);
    assert_eq!(client.attach().unwrap().epoch.0, 2);
    daemon.end();
}

#[test]
fn sessions_are_named_again_until_the_daemon_has_answered() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        attach_able(listener, 1, 4, &arena).answer_stats(1);
        for (session, named) in [(5, vec![4]), (6, vec![4, 5])] {
            let mut peer = attach_able(listener, session, session, &arena);
            assert_eq!(peer.hear_resume(session == 6), sessions(&named));
            peer.answer_stats(session);
        }
        let mut peer = attach_able(listener, 7, 7, &arena);
        assert_eq!(peer.hear_resume(true), sessions(&[6]));
        peer.answer_stats(7);
    });
    let client = daemon.client();
    for expected in [1, 5, 6, 7] {
        assert_eq!(figure(&client), expected);
    }
    daemon.end();
}

#[test]
fn a_commit_that_the_daemon_died_on_is_not_held() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut first = attach_able(listener, 1, 4, &arena);
        let (id, _) = first.hear_reserve();
        first.send_bytes(&reserved(id, 20, &[0, 64]));
        first.receive();
        drop(first);
        let mut second = attach_able(listener, 2, 9, &arena);
        assert_eq!(second.hear_resume(true), tickets(&[21]));
        assert_eq!(second.hear_resume(true), sessions(&[4]));
        second.answer_stats(3);
    });
    let client = daemon.client();
    let mut tickets = client.reserve(&[8, 8], Retention::Short, PLENTY).unwrap();
    let ticket = tickets.remove(0).unwrap();
    let commits = vec![Commit { ticket, key: b"k", len_bytes: 8, lineage: None }];
    let error = client.commit(SPACE, commits, Retention::Short, None).unwrap_err();
    assert_eq!(error.code(), "disconnected");
    assert_eq!(figure(&client), 3);
    daemon.end();
}

#[test]
fn an_answer_that_never_came_is_not_held() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut first = attach_able(listener, 1, 4, &arena);
        let (id, _) = first.hear_fetch();
        let frame = fetched(id, 10, &[0], 8);
        first.send_bytes(&frame[..frame.len() - 1]);
        drop(first);
        let mut second = attach_able(listener, 2, 9, &arena);
        assert_eq!(second.hear_resume(true), sessions(&[4]));
        let (id, _) = second.hear_fetch();
        second.send_bytes(&fetched(id, 30, &[0], 8));
        drop(second);
        let mut third = attach_able(listener, 3, 10, &arena);
        assert_eq!(third.hear_resume(true), leases(&[30]));
        assert_eq!(third.hear_resume(true), sessions(&[9]));
        third.answer_stats(5);
    });
    let client = daemon.client();
    let views = client.fetch(SPACE, &[b"k"], false, PLENTY);
    assert!(views.items[0].is_ok());
    assert_eq!(figure(&client), 5);
    daemon.end();
}

#[test]
fn nothing_is_said_of_another_arena_nor_to_a_daemon_that_does_not_ask() {
    let daemon = ScriptedDaemon::run(|listener| {
        let (one, other) = (arena(), arena());
        let mut first = attach_able(listener, 1, 4, &one);
        let (id, _) = first.hear_fetch();
        first.send_bytes(&fetched(id, 10, &[0, 64], 8));
        drop(first);
        let mut second = attach(listener, 2, 9, &one);
        second.answer_stats(2);
        second.answer_stats(3);
        drop(second);
        let mut third = attach_able(listener, 3, 9, &one);
        assert_eq!(third.hear_resume(true), leases(&[11]));
        assert_eq!(third.hear_resume(true), sessions(&[4, 9]));
        third.answer_stats(4);
        drop(third);
        let mut fourth = attach_able(listener, 4, 1, &other);
        fourth.answer_stats(5);
        fourth.answer_stats(6);
    });
    let client = daemon.client();
    let mut views = client.fetch(SPACE, &[b"a", b"b"], false, PLENTY).items;
    assert_eq!(figure(&client), 2);
    drop(views.remove(0));
    assert_eq!(figure(&client), 3, "a lease of the first daemon's is not the second one's");
    assert_eq!((figure(&client), figure(&client)), (4, 5));
    drop(views);
    assert_eq!(figure(&client), 6, "nor the fourth one's");
    daemon.end();
}

#[test]
fn what_does_not_fit_into_a_frame_goes_in_several_and_the_sessions_last() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut first = attach_able(listener, 1, 4, &arena);
        let (id, _) = first.hear_fetch();
        first.send_bytes(&fetched(id, 10, &[0, 64, 128, 192, 256], 8));
        drop(first);
        let features = kvd_proto::pack::Array::Slice(&feature::ALL);
        let mut small = HelloAck { features, ..ack(2, 9, Some(arena.bytes())) };
        small.limits.keys_max = 2;
        let mut second = attach_as(listener, &arena, small);
        for held in [vec![10, 11], vec![12, 13], vec![14]] {
            assert_eq!(second.hear_resume(true), leases(&held));
        }
        assert_eq!(second.hear_resume(true), sessions(&[4]));
        second.answer_stats(1);
    });
    let client = daemon.client();
    let views = client.fetch(SPACE, &[b"a", b"b", b"c", b"d", b"e"], false, PLENTY);
    assert!(views.items.iter().all(Result::is_ok));
    assert_eq!(figure(&client), 1);
    daemon.end();
}

/// How often this process has mapped an arena.
fn mappings(inode: u64) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_of_it = |line: &&str| line.split_whitespace().nth(4) == Some(&inode.to_string());
    maps.lines().filter(is_of_it).count()
}

/// A client loses a daemon and finds the next one with the same arena: how often the arena is mapped in between, and where
/// a block is before and after. The daemon has it mapped, too.
fn over_a_restart(able: bool) -> (usize, [*const u8; 2]) {
    let (tell, inode) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let daemon = ScriptedDaemon::run(move |listener| {
        let arena: Arena = arena();
        tell.send(fstat(arena.descriptor().as_fd()).unwrap().st_ino).unwrap();
        let attach = if able { attach_able } else { attach };
        for session in [4, 9] {
            let mut peer = attach(listener, session, session, &arena);
            if able && session == 9 {
                assert_eq!(peer.hear_resume(true), sessions(&[4]));
            }
            let (id, _) = peer.hear_fetch();
            peer.send_bytes(&fetched(id, 10, &[64], 8));
            assert_eq!(peer.hear_release(), [10]);
            drop(peer);
            if session == 4 {
                gone.recv().unwrap();
            }
        }
    });
    let client = daemon.client();
    let place = || client.fetch(SPACE, &[b"k"], false, PLENTY).items[0].as_ref().unwrap().as_ptr();
    let inode = inode.recv().unwrap();
    let before = place();
    // Notices the loss, and gets no answer to its next greeting.
    let late = client.fetch(SPACE, &[b"k"], false, MOMENT);
    assert_eq!(late.items[0].as_ref().err(), Some(&MissReason::Deadline));
    let between = mappings(inode);
    go.send(()).unwrap();
    let after = place();
    daemon.end();
    (between, [before, after])
}

#[test]
fn the_mapping_waits_for_a_daemon_that_may_come_back() {
    let (between, [before, after]) = over_a_restart(true);
    assert_eq!((between, before), (2, after));
    // Of another daemon nothing comes back: its memory is let go of.
    let (between, _) = over_a_restart(false);
    assert_eq!(between, 1);
}

#[test]
fn the_same_arena_is_mapped_once_and_another_one_apart() {
    let (tell, inodes) = std::sync::mpsc::channel();
    let daemon = ScriptedDaemon::run(move |listener| {
        let (one, other) = (arena(), arena());
        for (session, arena) in [(4, &one), (5, &one), (6, &other)] {
            let inode = fstat(arena.descriptor().as_fd()).unwrap().st_ino;
            let mut peer = attach(listener, session, session, arena);
            let (id, _) = peer.hear_fetch();
            peer.send_bytes(&fetched(id, session, &[64], 8));
            drop(peer);
            tell.send((inode, mappings(inode))).unwrap();
        }
    });
    let client = daemon.client();
    let views: Vec<_> =
        (0..3).map(|_| client.fetch(SPACE, &[b"k"], false, PLENTY).items.remove(0)).collect();
    let place = |index: usize| views[index].as_ref().unwrap().as_ptr();
    let seen: Vec<_> = inodes.iter().collect();
    assert!(seen.iter().all(|&(_, mapped)| mapped == 2), "{seen:?}");
    assert_eq!(place(0), place(1));
    assert_ne!(place(1), place(2));
    daemon.end();
}

#[test]
fn a_session_without_an_answer_to_its_name_goes_on() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        attach_able(listener, 1, 4, &arena).answer_stats(1);
        let mut second = attach_able(listener, 2, 9, &arena);
        assert_eq!(second.hear_resume(false), sessions(&[4]));
        second.answer_stats(2);
        let unasked = kvd_proto::v2::error::ErrorReply {
            id: Some(1),
            code: "unknown_op",
            message: "it was an older one",
        };
        second.send(&Reply::Error(unasked));
        second.answer_stats(3);
    });
    let client = daemon.client();
    assert_eq!([figure(&client), figure(&client), figure(&client)], [1, 2, 3]);
    daemon.end();
}
