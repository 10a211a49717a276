//! What may go wrong before a session exists.

use kvd_client::{Breach, ClientError, MissReason, Options};
use kvd_proto::v2::Reply;
use kvd_proto::v2::error::ErrorReply;
use kvd_shm::arena::Arena;
use kvd_shm::mapping::MapError;

use crate::daemon::{
    ARENA_BYTES, MOMENT, PLENTY, SPACE, ScriptedDaemon, Session, accept, ack, arena, attach,
    encoded, figure, socket_in,
};

/// Runs `script` on one connection after its hello, and returns why the client could not attach.
fn refusal(script: impl FnOnce(&mut Session) + Send + 'static) -> ClientError {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = accept(listener);
        session.hear_hello();
        script(&mut session);
        session.hear_end();
    });
    let client = daemon.client();
    let error = client.attach().unwrap_err();
    daemon.end();
    error
}

#[test]
fn attaching_tells_what_the_daemon_said() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut session = accept(listener);
        assert!(session.hear_hello(), "the client passes a descriptor of its process");
        // Byte by byte, so that nothing may depend on how frames are cut.
        for byte in encoded(&Reply::HelloAck(ack(7, 3, Some(arena.bytes())))) {
            session.send_bytes(&[byte]);
        }
        session.pass(arena.descriptor());
        session.hear_end();
    });
    let client = daemon.client();
    let attached = client.attach().unwrap();
    assert_eq!((attached.epoch.0, attached.session.0), (7, 3));
    assert_eq!(attached.server_id, "kvd-00000001");
    assert_eq!(attached.arena_bytes, ARENA_BYTES);
    assert_eq!(attached.limits.tickets_max, 4096);
    drop(client);
    daemon.end();
}

#[test]
fn an_older_daemon_is_named_as_such() {
    let error = refusal(|session| {
        let ack = kvd_proto_v1_ack();
        session.send_bytes(&ack);
    });
    assert!(matches!(error, ClientError::Protocol(Breach::Version { version: 1 })), "{error:?}");
}

/// An ack as protocol 1 sends it: fewer fields.
fn kvd_proto_v1_ack() -> Vec<u8> {
    let mut frame = Vec::new();
    kvd_proto::pack::FrameWriter::begin(&mut frame, "hello_ack", 3)
        .field("server_id", "kvd-old")
        .field("protocol_version", 1_u32)
        .field("shared_arena", None::<u32>)
        .finish();
    frame
}

#[test]
fn a_busy_daemon_is_quoted() {
    let error = refusal(|session| {
        let (code, message) = ("busy", "1024 sessions are open");
        session.send(&Reply::Error(ErrorReply { id: None, code, message }));
        session.stream.shutdown(std::net::Shutdown::Both).unwrap();
    });
    assert_eq!(error.code(), "busy");
    assert!(error.to_string().contains("1024 sessions"));
}

#[test]
fn an_arena_file_that_is_too_short_is_not_mapped() {
    let error = refusal(|session| {
        let arena: Arena = arena();
        session.send(&Reply::HelloAck(ack(1, 1, Some(ARENA_BYTES + 1))));
        session.pass(arena.descriptor());
    });
    assert!(matches!(error, ClientError::Mapping(MapError::TooShort { .. })), "{error:?}");
}

#[test]
fn an_arena_file_that_could_shrink_is_not_mapped() {
    let error = refusal(|session| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(ARENA_BYTES).unwrap();
        session.send(&Reply::HelloAck(ack(1, 1, Some(ARENA_BYTES))));
        session.pass(std::os::fd::AsFd::as_fd(&file));
    });
    assert!(matches!(error, ClientError::Mapping(MapError::NotSealed)), "{error:?}");
}

#[test]
fn a_marker_without_a_descriptor_is_a_breach() {
    let error = refusal(|session| {
        session.send(&Reply::HelloAck(ack(1, 1, Some(ARENA_BYTES))));
        session.send_bytes(b"F");
    });
    assert!(matches!(error, ClientError::Protocol(Breach::NoDescriptor)), "{error:?}");
}

#[test]
fn a_greeting_outlives_the_call_that_began_it() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut session = accept(listener);
        session.hear_hello();
        // The first call has given up when this second connection arrives.
        let second = accept(listener);
        let ack = encoded(&Reply::HelloAck(ack(1, 1, Some(arena.bytes()))));
        session.send_bytes(&ack);
        session.pass(arena.descriptor());
        session.answer_stats(5);
        drop(second);
    });
    let client = daemon.client();
    let answer = client.fetch(SPACE, &[b"k"], false, MOMENT);
    assert_eq!(answer.items[0].as_ref().err(), Some(&MissReason::Deadline));
    // Another client only to tell the script that the call is over.
    let other = daemon.client();
    drop(other.fetch(SPACE, &[b"k"], false, MOMENT));
    assert_eq!(figure(&client), 5);
    daemon.end();
}

#[test]
fn without_a_daemon_look_ups_are_misses() {
    let folder = tempfile::tempdir().unwrap();
    let client = kvd_client::Client::new(Options::new(socket_in(folder.path()), "alone"));
    for _ in 0..20 {
        let answer = client.fetch(SPACE, &[b"a", b"b"], false, PLENTY);
        assert_eq!(answer.items.len(), 2);
        assert!(answer.items.iter().all(|item| item.as_ref().err() == Some(&MissReason::Shed)));
        assert_eq!(answer.trouble.unwrap().code(), "not_connected");
        assert_eq!(client.locate(SPACE, &[b"a", b"b"], true).items, [Err(MissReason::Shed)]);
    }
    assert_eq!(client.stats().unwrap_err().code(), "not_connected");
    assert_eq!(client.attach().unwrap_err().code(), "not_connected");
}

#[test]
fn attaching_does_not_wait_for_the_next_attempt_to_be_due() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket_in(folder.path());
    let mut options = Options::new(&path, "early");
    options.deadline = PLENTY;
    let client = kvd_client::Client::new(options);
    for _ in 0..12 {
        assert!(client.attach().is_err());
    }
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || attach(&listener, 1, 1, &arena()).hear_end());
        assert!(client.attach().is_ok());
        drop(client);
    });
}
