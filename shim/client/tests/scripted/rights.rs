//! Tickets and views: what they give, and how they go back.

use std::time::Duration;

use kvd_client::{ClearScope, Commit, Lineage, MissReason, Refusal, Retention, Tier};
use kvd_proto::ids::TicketId;
use kvd_proto::v2::clear::Cleared;
use kvd_proto::v2::commit::CommittedRows;
use kvd_proto::v2::fetch::{FetchedRow, FetchedRows};
use kvd_proto::v2::locate::{LocatedRow, LocatedRows};
use kvd_proto::v2::reserve::{ReservedRow, ReservedRows};
use kvd_proto::v2::{Reply, Request};

use crate::daemon::{
    PLENTY, SPACE, ScriptedDaemon, Session, accept, ack, arena, attach, fetched, figure, reserved,
};

/// Reads a commit and answers it with these outcomes; returns keys, tickets, lengths, TTL.
fn answer_commit(session: &mut Session, outcomes: &[Result<(), Refusal>]) -> CommitSeen {
    let body = session.receive();
    let Ok(Request::Commit(commit)) = Request::decode(&body) else {
        panic!("not a commit");
    };
    let mut rows = CommittedRows::default();
    outcomes.iter().for_each(|outcome| rows.push(*outcome));
    session.send(&Reply::Committed(rows.reply(commit.id)));
    CommitSeen {
        keys: commit.keys.iter().map(<[u8]>::to_vec).collect(),
        tickets: commit.tickets.iter().collect(),
        lens: commit.lens.iter().collect(),
        ttl_ms: commit.ttl_ms,
        lineages: commit.lineages.map(|lineages| {
            lineages
                .iter()
                .map(|bytes| bytes.map(|bytes| Lineage::decode(bytes).unwrap()))
                .collect()
        }),
    }
}

#[derive(Debug, PartialEq)]
struct CommitSeen {
    keys: Vec<Vec<u8>>,
    tickets: Vec<u64>,
    lens: Vec<u64>,
    ttl_ms: Option<u64>,
    lineages: Option<Vec<Option<Lineage>>>,
}

fn lineage() -> Lineage {
    Lineage { engine_hashes: vec![vec![1, 2]], tokens_per_block: 16, ..Lineage::default() }
}

#[test]
fn a_block_is_written_in_place_and_read_in_place() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut session = attach(listener, 1, 1, &arena);
        let (id, lens) = session.hear_reserve();
        assert_eq!(lens, [6, 3]);
        session.send_bytes(&reserved(id, 50, &[4096, 8192]));
        let seen = answer_commit(&mut session, &[Ok(()), Ok(())]);
        assert_eq!(seen.keys, [b"one", b"two"]);
        assert_eq!((seen.tickets, seen.lens), (vec![50, 51], vec![6, 2]));
        assert_eq!(seen.ttl_ms, Some(2));
        assert_eq!(seen.lineages, Some(vec![None, Some(lineage())]));
        let mut written = [0; 6];
        arena.mapping().copy_out(4096, &mut written);
        assert_eq!(&written, b"foobar");
        let (id, _) = session.hear_fetch();
        session.send_bytes(&fetched(id, 60, &[4096, 8192], 2));
        assert_eq!(session.hear_release(), [60, 61]);
    });
    let client = daemon.client();
    let tickets = client.reserve(&[6, 3], Retention::Long, PLENTY).unwrap();
    let [first, second] = <[_; 2]>::try_from(tickets).unwrap().map(Result::unwrap);
    assert_eq!((first.capacity(), second.capacity()), (6, 3));
    first.write(3, b"bar").unwrap();
    first.write(0, b"foo").unwrap();
    second.write(0, b"xy").unwrap();
    assert_eq!(second.write(2, b"zz").unwrap_err().code(), "argument");
    assert_eq!(second.write(usize::MAX, b"z").unwrap_err().code(), "argument");
    let covers = lineage();
    let commits = vec![
        Commit { ticket: first, key: b"one", len_bytes: 6, lineage: None },
        Commit { ticket: second, key: b"two", len_bytes: 2, lineage: Some(&covers) },
    ];
    let ttl = Some(Duration::from_micros(1_001));
    assert_eq!(client.commit(SPACE, commits, Retention::Long, ttl).unwrap(), [Ok(()), Ok(())]);
    let views = client.fetch(SPACE, &[b"one", b"two"], false, PLENTY);
    assert!(views.trouble.is_none());
    let bytes: Vec<_> = views.items.iter().map(|view| view.as_ref().unwrap().to_vec()).collect();
    assert_eq!(bytes, [b"fo", b"xy"]);
    drop(views);
    daemon.end();
}

#[test]
fn leases_of_a_batch_go_back_in_one_frame_when_its_last_view_goes() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        let (id, _) = session.hear_fetch();
        session.send_bytes(&fetched(id, 1, &[0, 64, 128], 8));
        assert_eq!(session.hear_release(), [3, 1, 2]);
        session.hear_end();
    });
    let client = daemon.client();
    let mut views = client.fetch(SPACE, &[b"a", b"b", b"c"], false, PLENTY).items;
    drop(views.pop());
    drop(views);
    drop(client);
    daemon.end();
}

#[test]
fn a_lease_that_waits_travels_before_the_next_request() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        let (id, _) = session.hear_fetch();
        session.send_bytes(&fetched(id, 1, &[0, 64], 8));
        assert_eq!(session.hear_release(), [2]);
        session.answer_stats(8);
        assert_eq!(session.hear_release(), [1]);
    });
    let client = daemon.client();
    let mut views = client.fetch(SPACE, &[b"a", b"b"], false, PLENTY).items;
    drop(views.pop());
    assert_eq!(figure(&client), 8);
    drop(views);
    daemon.end();
}

#[test]
fn views_keep_the_connection_that_holds_their_leases() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        let (id, _) = session.hear_fetch();
        session.send_bytes(&fetched(id, 1, &[0], 8));
        assert_eq!(session.hear_release(), [1]);
        session.hear_end();
    });
    let client = daemon.client();
    let views = client.fetch(SPACE, &[b"a"], false, PLENTY);
    drop(client);
    assert_eq!(views.items[0].as_ref().unwrap().len(), 8);
    drop(views);
    daemon.end();
}

#[test]
fn a_lease_dropped_while_a_call_is_under_way_goes_back_after_it() {
    let (began, has_begun) = std::sync::mpsc::channel();
    let (dropped, was_dropped) = std::sync::mpsc::channel();
    let daemon = ScriptedDaemon::run(move |listener| {
        let mut session = attach(listener, 1, 1, &arena());
        let (id, _) = session.hear_fetch();
        session.send_bytes(&fetched(id, 5, &[0], 8));
        let id = session.hear_fetch().0;
        began.send(()).unwrap();
        was_dropped.recv().unwrap();
        session.send_bytes(&fetched(id, 6, &[0], 8));
        assert_eq!(session.hear_release(), [5], "while the second view is still held");
    });
    let client = daemon.client();
    let first = client.fetch(SPACE, &[b"a"], false, PLENTY);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| client.fetch(SPACE, &[b"b"], false, PLENTY));
        has_begun.recv().unwrap();
        drop(first);
        dropped.send(()).unwrap();
        let second = second.join().unwrap();
        daemon.end();
        drop(second);
    });
}

#[test]
fn unused_and_refused_tickets_go_back() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        let (id, _) = session.hear_reserve();
        session.send_bytes(&reserved(id, 30, &[0, 64, 128]));
        assert_eq!(session.hear_cancel().1, [32]);
        let seen = answer_commit(&mut session, &[Ok(()), Err(Refusal::HigherPriority)]);
        assert_eq!(seen.lineages, None);
        assert_eq!(session.hear_cancel().1, [31], "the refused one, and not the stored one");
    });
    let client = daemon.client();
    let mut tickets = client.reserve(&[8, 8, 8], Retention::Short, PLENTY).unwrap();
    drop(tickets.pop());
    let commits = tickets.into_iter().map(Result::unwrap).map(|ticket| Commit {
        ticket,
        key: b"k",
        len_bytes: 8,
        lineage: None,
    });
    let outcomes = client.commit(SPACE, commits.collect(), Retention::Short, None).unwrap();
    assert_eq!(outcomes, [Ok(()), Err(Refusal::HigherPriority)]);
    daemon.end();
}

#[test]
fn room_that_is_lacking_for_the_moment_is_asked_for_again() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        let (id, lens) = session.hear_reserve();
        assert_eq!(lens, [1, 2, 3]);
        let mut rows = ReservedRows::default();
        rows.push(ReservedRow::Refused(Refusal::ArenaFull));
        rows.push(ReservedRow::Granted { ticket: TicketId(1), offset: 0 });
        rows.push(ReservedRow::Refused(Refusal::Oversize));
        session.send(&Reply::Reserved(rows.reply(id)));
        let (id, lens) = session.hear_reserve();
        assert_eq!(lens, [1], "only what may have changed");
        session.send_bytes(&reserved(id, 2, &[64]));
        let mut back = session.hear_cancel().1;
        while back.len() < 2 {
            back.extend(session.hear_cancel().1);
        }
        assert_eq!(back, [2, 1]);
    });
    let client = daemon.client();
    let tickets = client.reserve(&[1, 2, 3], Retention::Short, PLENTY).unwrap();
    assert_eq!(tickets[0].as_ref().unwrap().capacity(), 1);
    assert_eq!(tickets[1].as_ref().unwrap().capacity(), 2);
    assert_eq!(tickets[2].as_ref().err(), Some(&Refusal::Oversize));
    drop(tickets);
    daemon.end();
}

#[test]
fn room_that_does_not_come_by_the_deadline_is_a_refusal() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        loop {
            let body = session.receive();
            match Request::decode(&body) {
                Ok(Request::Reserve(reserve)) => {
                    let mut rows = ReservedRows::default();
                    rows.push(ReservedRow::Refused(Refusal::SessionLimit));
                    session.send(&Reply::Reserved(rows.reply(reserve.id)));
                }
                Ok(Request::Clear(clear)) => {
                    assert_eq!(clear.scope, ClearScope::Everything);
                    return session.send(&Reply::Cleared(Cleared { id: clear.id, rows: 12 }));
                }
                other => panic!("{other:?}"),
            }
        }
    });
    let client = daemon.client();
    // Time for an answer at least, even on a busy machine.
    let deadline = Duration::from_millis(500);
    let tickets = client.reserve(&[1], Retention::Short, deadline).unwrap();
    assert_eq!(tickets[0].as_ref().err(), Some(&Refusal::SessionLimit));
    assert_eq!(client.clear(ClearScope::Everything).unwrap(), 12);
    daemon.end();
}

#[test]
fn a_prefix_ends_with_its_first_miss_and_batches_are_cut_into_frames() {
    let daemon = ScriptedDaemon::run(|listener| {
        let arena = arena();
        let mut session = accept(listener);
        session.hear_hello();
        let mut small = ack(1, 1, Some(arena.bytes()));
        small.limits.keys_max = 2;
        session.send(&Reply::HelloAck(small));
        session.pass(arena.descriptor());
        for expected in [2, 2] {
            let (id, count) = session.hear_fetch();
            assert_eq!(count, expected);
            let mut rows = FetchedRows::default();
            let lease = kvd_proto::ids::LeaseId(id);
            rows.push(FetchedRow::Hit { lease, offset: 0, len_bytes: 0 });
            let last = match id {
                1 => FetchedRow::Hit { lease, offset: 64, len_bytes: 1 },
                _ => FetchedRow::Miss(MissReason::Evicted(Retention::Short)),
            };
            rows.push(last);
            session.send(&Reply::Fetched(rows.reply(id)));
        }
        let body = session.receive();
        let Ok(Request::Locate(locate)) = Request::decode(&body) else { panic!("not a locate") };
        let mut rows = LocatedRows::default();
        rows.push(LocatedRow::Present { tier: Tier::Disk, len_bytes: 9, load_us: 1500 });
        session.send(&Reply::Located(rows.reply(locate.id)));
    });
    let client = daemon.client();
    let keys: [&[u8]; 5] = [b"1", b"2", b"3", b"4", b"5"];
    let answer = client.fetch(SPACE, &keys, true, PLENTY);
    assert!(answer.trouble.is_none());
    let lens: Vec<_> =
        answer.items.iter().map(|item| item.as_ref().map(|view| view.len())).collect();
    let evicted = &MissReason::Evicted(Retention::Short);
    assert_eq!(lens, [Ok(0), Ok(1), Ok(0), Err(evicted)]);
    let present = client.locate(SPACE, &keys[..1], false).items[0].unwrap();
    assert_eq!((present.tier, present.len_bytes), (Tier::Disk, 9));
    assert_eq!(present.load, Duration::from_micros(1500));
    daemon.end();
}

#[test]
fn threads_get_their_own_answers() {
    const CALLS: u64 = 200;
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        for _ in 0..4 * CALLS {
            let body = session.receive();
            let Ok(Request::Locate(locate)) = Request::decode(&body) else { panic!("no locate") };
            let mut rows = LocatedRows::default();
            for key in locate.keys {
                let len_bytes = u64::from_le_bytes(key.try_into().unwrap());
                rows.push(LocatedRow::Present { tier: Tier::Host, len_bytes, load_us: 0 });
            }
            session.send(&Reply::Located(rows.reply(locate.id)));
        }
    });
    let client = daemon.client();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let client = client.clone();
            scope.spawn(move || {
                for call in 0..CALLS {
                    let number = thread * CALLS + call;
                    let answer = client.locate(SPACE, &[&number.to_le_bytes()], false);
                    assert_eq!(answer.items[0].unwrap().len_bytes, number);
                }
            });
        }
    });
    daemon.end();
}
