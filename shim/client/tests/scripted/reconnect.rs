//! Daemons that go away, and what of the old ones means something to the new ones.

use kvd_client::{ClientError, Commit, Retention};
use kvd_proto::ids::{Epoch, SessionId};
use kvd_shm::arena::Arena;

use crate::daemon::{PLENTY, SPACE, ScriptedDaemon, arena, attach, fetched, figure, reserved};

fn arena_of(byte: u8) -> Arena {
    let arena = arena();
    arena.mapping().copy_in(0, &[byte; 64]);
    arena
}

#[test]
fn an_idle_client_does_not_notice_a_restart() {
    let daemon = ScriptedDaemon::run(|listener| {
        for epoch in 1..=3 {
            attach(listener, epoch, 1, &arena()).answer_stats(epoch);
        }
    });
    let client = daemon.client();
    for epoch in 1..=3 {
        assert_eq!(figure(&client), epoch);
    }
    daemon.end();
}

#[test]
fn a_request_that_the_daemon_died_on_is_asked_again() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut session = attach(listener, 1, 1, &arena);
        let (id, _) = session.hear_fetch();
        let frame = fetched(id, 1, &[0], 8);
        session.send_bytes(&frame[..frame.len() / 2]);
        drop(session);
        let mut session = attach(listener, 2, 1, &arena);
        let (id, _) = session.hear_fetch();
        session.send_bytes(&fetched(id, 1, &[0], 8));
        assert_eq!(session.hear_release(), [1]);
    });
    let client = daemon.client();
    let answer = client.fetch(SPACE, &[b"k"], false, PLENTY);
    assert!(answer.trouble.is_none() && answer.items[0].is_ok());
    drop(answer);
    daemon.end();
}

#[test]
fn an_old_view_shows_the_old_arena_and_a_new_one_the_new() {
    let daemon = ScriptedDaemon::run(|listener| {
        for epoch in 1..=2 {
            let arena = arena_of(u8::try_from(epoch).unwrap());
            let mut session = attach(listener, epoch, 1, &arena);
            let (id, _) = session.hear_fetch();
            session.send_bytes(&fetched(id, 10 * epoch, &[0], 4));
            if epoch == 2 {
                session.answer_stats(9);
                assert_eq!(session.hear_release(), [20], "nothing of the old daemon's");
            }
        }
    });
    let client = daemon.client();
    let old = client.fetch(SPACE, &[b"k"], false, PLENTY);
    let new = client.fetch(SPACE, &[b"k"], false, PLENTY);
    assert_eq!(old.items[0].as_ref().unwrap().to_vec(), [1; 4]);
    assert_eq!(new.items[0].as_ref().unwrap().to_vec(), [2; 4]);
    drop(old);
    assert_eq!(figure(&client), 9);
    drop(new);
    daemon.end();
}

/// Commits a ticket after its connection was replaced by `(epoch, session)`.
fn stale_commit(epoch: u64, session: u64) -> ClientError {
    let daemon = ScriptedDaemon::run(move |listener| {
        let arena = arena();
        let mut first = attach(listener, 1, 1, &arena);
        let (id, _) = first.hear_reserve();
        first.send_bytes(&reserved(id, 5, &[0, 64]));
        drop(first);
        let mut second = attach(listener, epoch, session, &arena);
        second.answer_stats(1);
        second.answer_stats(2);
    });
    let client = daemon.client();
    let mut tickets = client.reserve(&[8, 8], Retention::Short, PLENTY).unwrap();
    assert_eq!(figure(&client), 1);
    let ticket = tickets.remove(0).unwrap();
    ticket.write(0, b"safe but in vain".first_chunk::<8>().unwrap()).unwrap();
    let commits = vec![Commit { ticket, key: b"k", len_bytes: 8, lineage: None }];
    let error = client.commit(SPACE, commits, Retention::Short, None).unwrap_err();
    drop(tickets);
    assert_eq!(figure(&client), 2, "neither commit nor cancel reached the new connection");
    daemon.end();
    error
}

#[test]
fn a_ticket_of_another_epoch_is_an_error_with_both_numbers() {
    let error = stale_commit(2, 1);
    let ClientError::StaleEpoch { have, now } = error else { panic!("{error:?}") };
    assert_eq!((have, now), (Epoch(1), Epoch(2)));
}

#[test]
fn a_ticket_of_another_session_is_an_error_too() {
    let error = stale_commit(1, 8);
    let ClientError::StaleSession { have, now } = error else { panic!("{error:?}") };
    assert_eq!((have, now), (SessionId(1), SessionId(8)));
}

#[test]
fn a_commit_is_never_sent_twice() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut session = attach(listener, 1, 1, &arena);
        let (id, _) = session.hear_reserve();
        session.send_bytes(&reserved(id, 5, &[0]));
        session.receive();
        drop(session);
        attach(listener, 2, 1, &arena).answer_stats(3);
    });
    let client = daemon.client();
    let ticket = client.reserve(&[8], Retention::Short, PLENTY).unwrap().remove(0).unwrap();
    let commits = vec![Commit { ticket, key: b"k", len_bytes: 8, lineage: None }];
    let error = client.commit(SPACE, commits, Retention::Short, None).unwrap_err();
    assert!(matches!(error, ClientError::Disconnected { .. }), "{error:?}");
    assert_eq!(figure(&client), 3);
    daemon.end();
}
