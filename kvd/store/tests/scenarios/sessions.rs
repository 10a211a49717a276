//! A closed socket is not a dead writer; a dead one leaves nothing; caps hit only who asks.

use kvd_proto::ids::SessionId;
use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::{Found, Hold, Input, Outcome, Peer, StoreConfig, Writer};

use crate::desk::{Desk, KIB, MIB, ONE};

const TWO: SessionId = SessionId(2);

fn desk() -> Desk {
    let mut desk = Desk::new(StoreConfig::new(MIB, MIB));
    desk.store(b"k", 4 * KIB, Retention::Short);
    desk
}

#[test]
fn what_a_closed_session_holds_waits_for_its_process() {
    let mut desk = desk();
    desk.open(TWO, Peer::Watched);
    desk.lease(TWO, b"k");
    desk.reserve_by(TWO, 4 * KIB, None, Writer::Client).unwrap();
    desk.apply(Input::Close { session: TWO });
    desk.wait(3_600_000);
    let stats = desk.stats();
    assert_eq!((stats.quarantined_rights, stats.leases, stats.tickets), (2, 1, 1));
    assert_eq!(stats.quarantined_bytes, 2 * (4 * KIB + 64));
    desk.apply(Input::PeerGone { session: TWO });
    let stats = desk.stats();
    assert_eq!((stats.quarantined_rights, stats.leases, stats.tickets), (0, 0, 0));
    assert_eq!((stats.quarantined_bytes, stats.sessions), (0, 1));
}

#[test]
fn the_exit_may_be_seen_before_the_end_of_file() {
    let mut desk = desk();
    desk.open(TWO, Peer::Watched);
    desk.lease(TWO, b"k");
    desk.apply(Input::PeerGone { session: TWO });
    // A child may have inherited the connection and the mapping; frames are still served.
    assert_eq!(desk.stats().leases, 1);
    desk.lease(TWO, b"k");
    desk.apply(Input::Close { session: TWO });
    assert_eq!((desk.stats().leases, desk.stats().sessions), (0, 1));
    assert_eq!(desk.effects.forgotten, [TWO]);
}

#[test]
fn the_daemons_own_transfers_end_with_the_session() {
    let mut desk = desk();
    desk.open(TWO, Peer::Watched);
    desk.hit(TWO, b"k", Hold::Inline);
    desk.reserve_by(TWO, 4 * KIB, None, Writer::Daemon).unwrap();
    desk.apply(Input::PeerGone { session: TWO });
    let stats = desk.stats();
    assert_eq!((stats.leases, stats.tickets), (1, 1), "the daemon is still busy with them");
    desk.apply(Input::Close { session: TWO });
    assert_eq!((desk.stats().leases, desk.stats().tickets), (0, 0));
}

#[test]
fn a_session_that_holds_nothing_leaves_nothing() {
    let mut desk = desk();
    for id in 2..500 {
        let session = SessionId(id);
        desk.open(session, Peer::Unknowable);
        let lease = desk.lease(session, b"k");
        desk.release(session, lease);
        desk.apply(Input::Close { session });
    }
    assert_eq!(desk.stats().sessions, 1);
    desk.apply(Input::PeerGone { session: SessionId(7) });
    desk.apply(Input::Close { session: SessionId(7) });
}

#[test]
fn unknowable_peers_share_a_bound_and_an_operator_can_end_it() {
    let mut desk = desk();
    desk.open(TWO, Peer::Unknowable);
    // An eighth of the arena: 128 KiB.
    let granted = |desk: &mut Desk| desk.reserve_by(TWO, 40 * KIB, None, Writer::Client);
    for _ in 0..3 {
        granted(&mut desk).unwrap();
    }
    assert_eq!(granted(&mut desk), Err(Refusal::QuarantineFull));
    desk.apply(Input::Close { session: TWO });
    let three = SessionId(3);
    desk.open(three, Peer::Unknowable);
    let refused = desk.reserve_by(three, 40 * KIB, None, Writer::Client);
    assert_eq!(refused, Err(Refusal::QuarantineFull));
    desk.reserve(40 * KIB, None).unwrap();
    desk.apply(Input::ReleaseQuarantine { session: None });
    let bytes = 3 * (40 * KIB + 64);
    assert_eq!(desk.effects.outcome, Outcome::QuarantineReleased { bytes });
    desk.reserve_by(three, 40 * KIB, None, Writer::Client).unwrap();
}

#[test]
fn caps_hit_the_hog_and_nobody_else() {
    let mut config = StoreConfig::new(MIB, MIB);
    config.session_limits.leases_max = 3;
    config.session_limits.tickets_max = 2;
    let mut desk = Desk::new(config);
    desk.store(b"k", 4 * KIB, Retention::Short);
    desk.open(TWO, Peer::Watched);
    for _ in 0..3 {
        desk.lease(TWO, b"k");
    }
    assert_eq!(desk.fetch(TWO, b"k", Hold::Lease), Found::Miss(MissReason::Shed));
    for _ in 0..2 {
        desk.reserve_by(TWO, 1, None, Writer::Client).unwrap();
    }
    let refused = desk.reserve_by(TWO, 1, None, Writer::Client);
    assert_eq!(refused, Err(Refusal::SessionLimit));
    desk.lease(ONE, b"k");
    desk.reserve(1, None).unwrap();
    let sessions = desk.store.sessions();
    assert_eq!((sessions[0].refused_total, sessions[1].refused_total), (0, 2));
}

#[test]
fn a_foreign_ticket_is_no_ticket() {
    let mut desk = desk();
    desk.open(TWO, Peer::Watched);
    let granted = desk.reserve_by(TWO, 10, None, Writer::Client).unwrap();
    let refused = desk.commit(granted.ticket, b"x", 10, Retention::Short);
    assert_eq!(refused, Err(Refusal::WrongOwner));
    desk.apply(Input::Cancel { session: ONE, ticket: granted.ticket, linger: false });
    assert_eq!(desk.effects.outcome, Outcome::Cancelled(Err(Refusal::WrongOwner)));
    assert_eq!(desk.stats().tickets, 1);
}

#[test]
#[should_panic(expected = "is not open")]
fn an_unknown_session_is_the_callers_mistake() {
    desk().fetch(TWO, b"k", Hold::Lease);
}
