//! What a daemon must not say, and what it may say instead of an answer.

use kvd_client::{Breach, ClientError, MissReason, Retention};
use kvd_proto::malformed::Malformed;
use kvd_proto::v2::Reply;
use kvd_proto::v2::error::ErrorReply;

use crate::daemon::{
    ARENA_BYTES, PLENTY, SPACE, ScriptedDaemon, arena, attach, fetched, figure, reserved,
};

/// Lets the daemon answer a fetch of two keys with `answer(id)`; returns the client's trouble. The
/// client must leave the connection and be well on the next one.
fn trouble_with(answer: impl FnOnce(u64) -> Vec<u8> + Send + 'static) -> ClientError {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut session = attach(listener, 1, 1, &arena);
        let (id, _) = session.hear_fetch();
        session.send_bytes(&answer(id));
        session.hear_end();
        attach(listener, 1, 2, &arena).answer_stats(77);
    });
    let client = daemon.client();
    let answer = client.fetch(SPACE, &[b"a", b"b"], false, PLENTY);
    assert_eq!(answer.items.len(), 2);
    assert!(answer.items.iter().all(|item| item.as_ref().err() == Some(&MissReason::Shed)));
    assert_eq!(figure(&client), 77);
    daemon.end();
    answer.trouble.unwrap()
}

#[test]
fn garbage_ends_the_connection() {
    let error = trouble_with(|_| b"\0\0\0\x05hello".to_vec());
    assert!(matches!(error, ClientError::Protocol(Breach::Malformed(_))), "{error:?}");
}

#[test]
fn a_huge_length_ends_the_connection() {
    let error = trouble_with(|_| vec![0xff; 4]);
    let ClientError::Protocol(Breach::Malformed(Malformed::FrameTooLarge { len_bytes, .. })) =
        error
    else {
        panic!("{error:?}");
    };
    assert_eq!(len_bytes, u64::from(u32::MAX));
}

#[test]
fn an_answer_to_nothing_ends_the_connection() {
    let error = trouble_with(|id| fetched(id + 1, 1, &[0, 0], 8));
    assert!(matches!(error, ClientError::Protocol(Breach::UnknownId { id: 2 })), "{error:?}");
}

#[test]
fn an_answer_of_another_kind_ends_the_connection() {
    let error = trouble_with(|id| reserved(id, 1, &[0, 4096]));
    assert!(matches!(error, ClientError::Protocol(Breach::WrongKind)), "{error:?}");
}

#[test]
fn an_answer_of_another_length_ends_the_connection() {
    let error = trouble_with(|id| fetched(id, 1, &[0, 8, 16], 8));
    let expected = Breach::WrongCount { asked: 2, answered: 3 }.to_string();
    assert!(matches!(&error, ClientError::Protocol(breach) if breach.to_string() == expected));
}

#[test]
fn places_outside_the_arena_are_never_touched() {
    for offset in [ARENA_BYTES - 7, ARENA_BYTES, u64::MAX] {
        let error = trouble_with(move |id| fetched(id, 1, &[0, offset], 8));
        assert!(matches!(error, ClientError::Protocol(Breach::OutsideArena { .. })), "{error:?}");
    }
}

#[test]
fn a_farewell_is_quoted() {
    let error = trouble_with(|_| {
        let mut frame = Vec::new();
        let (code, message) = ("bad_frame", "frame of 0 bytes");
        Reply::Error(ErrorReply { id: None, code, message }).encode(&mut frame);
        frame
    });
    assert!(matches!(error, ClientError::Protocol(Breach::Farewell { .. })), "{error:?}");
}

#[test]
fn a_second_answer_to_one_request_ends_the_connection() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        let (id, _) = session.hear_fetch();
        session.send_bytes(&fetched(id, 1, &[0], 8));
        session.send_bytes(&fetched(id, 1, &[0], 8));
        session.hear_stats();
        session.hear_end();
    });
    let client = daemon.client();
    let views = client.fetch(SPACE, &[b"k"], false, PLENTY);
    let error = client.stats().unwrap_err();
    assert!(matches!(error, ClientError::Protocol(Breach::UnknownId { id: 1 })), "{error:?}");
    drop(views);
    daemon.end();
}

#[test]
fn refusals_leave_the_session_as_it_is() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        for code in ["busy", "no_arena", "a_word_of_the_future"] {
            let id = Some(session.hear_fetch().0);
            session.send(&Reply::Error(ErrorReply { id, code, message: "for people" }));
        }
        session.answer_stats(4);
    });
    let client = daemon.client();
    for code in ["busy", "no_arena", "a_word_of_the_future"] {
        let answer = client.fetch(SPACE, &[b"k"], false, PLENTY);
        assert_eq!(answer.items[0].as_ref().err(), Some(&MissReason::Shed));
        assert_eq!(answer.trouble.unwrap().code(), code);
    }
    assert_eq!(figure(&client), 4);
    daemon.end();
}

#[test]
fn what_no_daemon_takes_is_not_sent() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        session.answer_stats(6);
    });
    let client = daemon.client();
    let long = vec![b'x'; 257];
    let answer = client.locate(SPACE, &[b"fine", &long], false);
    assert_eq!(answer.items.len(), 2);
    assert_eq!(answer.trouble.unwrap().code(), "argument");
    let name = "x".repeat(1025);
    let space = kvd_client::Namespace { model: &name, compat_key: "" };
    assert_eq!(client.fetch(space, &[b"k"], true, PLENTY).trouble.unwrap().code(), "argument");
    assert!(client.locate(SPACE, &[], false).items.is_empty());
    assert!(client.reserve(&[], Retention::Short, PLENTY).unwrap().is_empty());
    assert!(client.commit(SPACE, Vec::new(), Retention::Short, None).unwrap().is_empty());
    assert_eq!(figure(&client), 6, "nothing else was sent");
    daemon.end();
}
