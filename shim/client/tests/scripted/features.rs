//! Optional abilities: what is sent only to a daemon that announces them.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use kvd_client::{Client, Commit, Foreign, Options, Retention, Ticket};
use kvd_proto::v2::commit::CommittedRows;
use kvd_proto::v2::{Reply, Request, feature};
use kvd_shm::checksum::of_block;

use crate::daemon::{
    PLENTY, SPACE, ScriptedDaemon, Session, accept, ack, arena, attach, attach_able, figure,
    reserved, socket_in,
};

/// Reads a commit and answers that all is stored; returns its checksums.
fn hear_checksums(session: &mut Session) -> Option<Vec<u64>> {
    let body = session.receive();
    let Ok(Request::Commit(commit)) = Request::decode(&body) else { panic!("not a commit") };
    let mut rows = CommittedRows::default();
    commit.tickets.iter().for_each(|_| rows.push(Ok(())));
    session.send(&Reply::Committed(rows.reply(commit.id)));
    commit.checksums.map(|checksums| checksums.iter().collect())
}

/// Reserves nine bytes for each of `fills` and commits what it puts there, under the keys 0, 1, ….
fn store(client: &Client, fills: &[fn(&Ticket)], len_bytes: u64) {
    let lens = vec![9; fills.len()];
    let tickets = client.reserve(&lens, Retention::Long, PLENTY).unwrap();
    let keys: Vec<[u8; 1]> = (0..10).map(|key| [key]).collect();
    let commits = tickets.into_iter().zip(fills).zip(&keys).map(|((ticket, fill), key)| {
        let ticket = ticket.unwrap();
        fill(&ticket);
        Commit { ticket, key, len_bytes, lineage: None }
    });
    let outcomes = client.commit(SPACE, commits.collect(), Retention::Long, None).unwrap();
    assert!(outcomes.iter().all(Result::is_ok));
}

fn in_one_piece(ticket: &Ticket) {
    ticket.write(0, b"123456789").unwrap();
}

fn in_two_pieces(ticket: &Ticket) {
    ticket.write(0, b"12345").unwrap();
    ticket.write_foreign(5, Foreign::from(&b"6789"[..])).unwrap();
}

fn back_to_front(ticket: &Ticket) {
    ticket.write(5, b"6789").unwrap();
    ticket.write(0, b"12345").unwrap();
}

fn twice(ticket: &Ticket) {
    ticket.write(0, b"999999999").unwrap();
    ticket.write(0, b"123456789").unwrap();
}

#[test]
fn every_way_to_fill_a_ticket_gives_the_checksum_of_what_is_in_it() {
    let fills: [fn(&Ticket); 4] = [in_one_piece, in_two_pieces, back_to_front, twice];
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut session = attach_able(listener, 1, 1, &arena);
        let (id, _) = session.hear_reserve();
        session.send_bytes(&reserved(id, 1, &[0, 64, 128, 192]));
        let right = (0..4).map(|key| of_block(b"123456789", &[key])).collect();
        assert_eq!(hear_checksums(&mut session), Some(right));
        let (id, _) = session.hear_reserve();
        session.send_bytes(&reserved(id, 5, &[256, 320, 384, 448]));
        let shorter = (0..4).map(|key| of_block(b"1234567", &[key])).collect();
        assert_eq!(hear_checksums(&mut session), Some(shorter));
    });
    let client = daemon.client();
    store(&client, &fills, 9);
    store(&client, &fills, 7);
    daemon.end();
}

#[test]
fn bytes_that_came_by_the_rooms_address_are_summed_too() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut session = attach_able(listener, 1, 1, &arena);
        let (id, _) = session.hear_reserve();
        session.send_bytes(&reserved(id, 1, &[4096]));
        // The script stands for the device that fills the room behind the library's back.
        assert_eq!(session.hear_stats(), 2);
        arena.mapping().copy_in(4096 + 3, b"x");
        let values = kvd_proto::pack::Pairs::Slice(&[("figure", 1)]);
        session.send(&Reply::Stats(kvd_proto::v2::stats::StatsReply { id: 2, values }));
        let right = of_block(b"123x56789", b"k");
        assert_eq!(hear_checksums(&mut session), Some(vec![right]));
    });
    let client = daemon.client();
    let ticket = client.reserve(&[9], Retention::Long, PLENTY).unwrap().remove(0).unwrap();
    assert!(!ticket.as_mut_ptr().is_null());
    ticket.write(0, b"123456789").unwrap();
    assert_eq!(figure(&client), 1);
    let commits = vec![Commit { ticket, key: b"k", len_bytes: 9, lineage: None }];
    client.commit(SPACE, commits, Retention::Long, None).unwrap();
    daemon.end();
}

#[test]
fn a_daemon_that_announces_nothing_gets_nothing_new() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        let (id, _) = session.hear_reserve();
        session.send_bytes(&reserved(id, 1, &[0]));
        assert_eq!(hear_checksums(&mut session), None);
        session.answer_stats(3);
    });
    let client = daemon.client();
    store(&client, &[in_one_piece], 9);
    client.prefetch(SPACE, &[b"k"], PLENTY).unwrap();
    assert_eq!(figure(&client), 3);
    daemon.end();
}

#[test]
fn checksums_can_be_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(socket_in(folder.path())).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = accept(&listener);
            let body = session.hear_hello_body();
            let Ok(Request::Hello(hello)) = Request::decode(&body) else { panic!("no hello") };
            assert_eq!(
                hello.features.iter().collect::<Vec<_>>(),
                [feature::PREFETCH, feature::RESUME]
            );
            session.send(&Reply::HelloAck(ack(1, 1, None)));
        });
        let mut options = Options::new(socket_in(folder.path()), "scripted");
        (options.deadline, options.sends_checksums) = (PLENTY, false);
        Client::new(options).attach().unwrap();
    });
}

#[test]
fn a_hint_is_sent_in_order_and_not_waited_for() {
    const KEYS: u64 = 5000;
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach_able(listener, 1, 1, &arena());
        let mut next = 0;
        while next < KEYS {
            let body = session.receive();
            let Ok(Request::Prefetch(hint)) = Request::decode(&body) else { panic!("no hint") };
            assert_eq!(hint.namespace, SPACE);
            assert!(hint.deadline_ms <= 90_000 && hint.deadline_ms > 60_000, "{hint:?}");
            for key in hint.keys {
                assert_eq!(key, next.to_le_bytes());
                next += 1;
            }
        }
        session.answer_stats(5);
    });
    let client = daemon.client();
    let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_le_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
    client.prefetch(SPACE, &keys, Duration::from_secs(90)).unwrap();
    client.prefetch(SPACE, &[], PLENTY).unwrap();
    assert_eq!(figure(&client), 5);
    daemon.end();
}

#[test]
fn a_hint_without_a_daemon_is_an_error_that_costs_no_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::new(Options::new(socket_in(folder.path()), "scripted"));
    let error = client.prefetch(SPACE, &[b"k"], PLENTY).unwrap_err();
    assert_eq!(error.code(), "not_connected");
    let error = client.prefetch(SPACE, &[&[0; 257]], PLENTY).unwrap_err();
    assert_eq!(error.code(), "argument");
}
