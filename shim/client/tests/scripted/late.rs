//! Answers that come after nobody waits for them any more.

use std::time::Instant;

use kvd_client::{ClientError, MissReason, Retention};
use kvd_proto::v2::Reply;
use kvd_proto::v2::cancel::Cancelled;

use crate::daemon::{
    MOMENT, PLENTY, SPACE, ScriptedDaemon, arena, attach, fetched, figure, reserved,
};

#[test]
fn a_daemon_that_does_not_answer_is_a_miss_and_not_a_lost_session() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        assert_eq!(session.hear_fetch(), (1, 2));
        session.answer_stats(11);
    });
    let client = daemon.attached_client();
    let began = Instant::now();
    let answer = client.fetch(SPACE, &[b"a", b"b"], false, MOMENT);
    assert!(began.elapsed() >= MOMENT, "it waits as long as it may");
    assert_eq!(answer.items.len(), 2);
    assert!(answer.items.iter().all(|item| item.as_ref().err() == Some(&MissReason::Deadline)));
    assert!(matches!(answer.trouble, Some(ClientError::Deadline { .. })));
    assert_eq!(figure(&client), 11);
    daemon.end();
}

#[test]
fn leases_that_come_too_late_go_back() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        let (late, _) = session.hear_fetch();
        let id = session.hear_stats();
        session.send_bytes(&fetched(late, 70, &[0, 4096], 8));
        session.send(&stats(id));
        assert_eq!(session.hear_release(), [70, 71]);
    });
    let client = daemon.attached_client();
    assert!(client.fetch(SPACE, &[b"a", b"b"], false, MOMENT).trouble.is_some());
    assert_eq!(figure(&client), 1);
    daemon.end();
}

#[test]
fn tickets_that_come_too_late_go_back() {
    let daemon = ScriptedDaemon::run(|listener| {
        let mut session = attach(listener, 1, 1, &arena());
        let (late, _) = session.hear_reserve();
        let id = session.hear_stats();
        session.send_bytes(&reserved(late, 40, &[0, 4096]));
        session.send(&stats(id));
        let (cancel, tickets) = session.hear_cancel();
        assert_eq!(tickets, [40, 41]);
        session.send(&Reply::Cancelled(Cancelled { id: cancel, cancelled: 2 }));
        session.answer_stats(2);
    });
    let client = daemon.attached_client();
    let error = client.reserve(&[8, 8], Retention::Short, MOMENT).unwrap_err();
    assert_eq!(error.code(), "deadline");
    assert_eq!(figure(&client), 1);
    assert_eq!(figure(&client), 2);
    daemon.end();
}

#[test]
fn a_frame_cut_by_a_deadline_is_completed_later() {
    for cut in [1, 4, 5, 30] {
        let daemon = ScriptedDaemon::run(move |listener| {
            let mut session = attach(listener, 1, 1, &arena());
            let (late, _) = session.hear_fetch();
            let frame = fetched(late, 9, &[0], 8);
            session.send_bytes(&frame[..cut]);
            let id = session.hear_stats();
            session.send_bytes(&frame[cut..]);
            session.send(&stats(id));
            assert_eq!(session.hear_release(), [9]);
        });
        let client = daemon.attached_client();
        assert!(client.fetch(SPACE, &[b"a"], false, MOMENT).trouble.is_some());
        assert_eq!(figure(&client), 1);
        daemon.end();
    }
}

#[test]
fn a_request_cut_by_a_deadline_is_completed_later() {
    const ROUNDS: usize = 2;
    let keys: Vec<Vec<u8>> = (0..4096_u32).map(|n| [n.to_le_bytes(); 64].concat()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let (stuck, may_read) = std::sync::mpsc::channel();
    let daemon = ScriptedDaemon::run(move |listener| {
        let mut session = attach(listener, 1, 1, &arena());
        may_read.recv().unwrap();
        let (late, count) = session.hear_fetch();
        assert_eq!(count, 4096);
        let id = session.hear_stats();
        session.send_bytes(&fetched(late, 1, &vec![0; count], 0));
        session.send(&stats(id));
        assert_eq!(session.hear_release().len(), 4096);
    });
    let client = daemon.attached_client();
    // More than a socket holds: the first round ends half sent, the second does not even begin.
    for _ in 0..ROUNDS {
        let answer = client.fetch(SPACE, &keys, false, MOMENT);
        assert_eq!(answer.items.len(), keys.len());
        assert!(matches!(answer.trouble, Some(ClientError::Deadline { .. })));
    }
    stuck.send(()).unwrap();
    assert_eq!(figure(&client), 1);
    daemon.end();
}

#[test]
fn a_daemon_that_never_answers_is_not_sent_ever_more() {
    let (over, all_said) = std::sync::mpsc::channel();
    let daemon = ScriptedDaemon::run(move |listener| {
        let mut session = attach(listener, 1, 1, &arena());
        all_said.recv().unwrap();
        let ids: Vec<u64> = (0..64).map(|_| session.hear_fetch().0).collect();
        for id in ids {
            session.send_bytes(&fetched(id, 1, &[], 0));
            // An empty answer is the wrong count only for somebody who waits for it.
        }
        session.answer_stats(3);
    });
    let client = daemon.attached_client();
    for _ in 0..80 {
        let shortest = std::time::Duration::from_millis(1);
        assert!(client.fetch(SPACE, &[b"k"], false, shortest).trouble.is_some());
    }
    over.send(()).unwrap();
    assert_eq!(figure(&client), 3, "the 65th and later requests were not sent");
    daemon.end();
}

#[test]
fn who_queues_behind_a_slow_call_keeps_to_its_own_deadline() {
    let (began, has_begun) = std::sync::mpsc::channel();
    let (over, is_over) = std::sync::mpsc::channel();
    let daemon = ScriptedDaemon::run(move |listener| {
        let mut session = attach(listener, 1, 1, &arena());
        let (id, _) = session.hear_fetch();
        began.send(()).unwrap();
        is_over.recv().unwrap();
        session.send_bytes(&fetched(id, 1, &[0], 8));
        assert_eq!(session.hear_release(), [1]);
    });
    let client = daemon.attached_client();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| client.fetch(SPACE, &[b"slow"], false, PLENTY).items.len());
        has_begun.recv().unwrap();
        let answer = client.fetch(SPACE, &[b"quick"], false, MOMENT);
        assert!(matches!(answer.trouble, Some(ClientError::Deadline { .. })));
        over.send(()).unwrap();
        assert_eq!(slow.join().unwrap(), 1);
    });
    daemon.end();
}

fn stats(id: u64) -> Reply<'static> {
    let values = kvd_proto::pack::Pairs::Slice(&[("figure", 1)]);
    Reply::Stats(kvd_proto::v2::stats::StatsReply { id, values })
}
