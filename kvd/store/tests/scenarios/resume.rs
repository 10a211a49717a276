//! A process comes back: what it has goes on, the rest is free, and nobody else has a say in it.

use kvd_proto::ids::{LeaseId, SessionId, TicketId};
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::{Commit, CommitRules, Granted, Ids, Input, Outcome, Peer, StoreConfig, Writer};

use crate::desk::{Desk, KIB, MIB, NAMESPACE};

const EARLIER: SessionId = SessionId(2);
const LATER: SessionId = SessionId(3);

/// A session with a lease and two tickets.
fn desk() -> (Desk, LeaseId, [Granted; 2]) {
    let mut desk = Desk::new(StoreConfig::new(MIB, MIB));
    desk.store(b"k", 4 * KIB, Retention::Short);
    desk.open_of(EARLIER, 7);
    let lease = desk.lease(EARLIER, b"k");
    let tickets =
        [4 * KIB, 8 * KIB].map(|len| match desk.reserve_by(EARLIER, len, None, Writer::Client) {
            Ok(granted) => granted,
            Err(refusal) => panic!("{refusal}"),
        });
    (desk, lease, tickets)
}

fn take_up(desk: &mut Desk, session: SessionId, rights: &[u64]) -> (u32, u32) {
    let rights: Vec<LeaseId> = rights.iter().copied().map(LeaseId).collect();
    desk.apply(Input::TakeUp { session, rights: Ids::Slice(&rights) });
    match desk.effects.outcome {
        Outcome::TakenUp { taken, unknown } => (taken, unknown),
        other => panic!("{other:?}"),
    }
}

fn renounce(desk: &mut Desk, session: SessionId, earlier: SessionId) -> bool {
    desk.apply(Input::Renounce { session, earlier });
    desk.effects.outcome == Outcome::Renounced(true)
}

fn commit(desk: &mut Desk, session: SessionId, ticket: TicketId) -> Result<(), Refusal> {
    desk.commit_with(Commit {
        session,
        ticket,
        namespace: NAMESPACE,
        key: b"x",
        len_bytes: 4 * KIB,
        retention: Retention::Short,
        ttl_ms: None,
        lineage: None,
        checksum: None,
        rules: CommitRules::Lease,
    })
}

#[test]
fn what_a_process_has_goes_on_and_the_rest_is_free() {
    let (mut desk, lease, [first, second]) = desk();
    desk.apply(Input::Close { session: EARLIER });
    desk.open_of(LATER, 7);
    let quarantined = desk.stats().quarantined_bytes;
    assert!(quarantined > 16 * KIB);
    assert_eq!(take_up(&mut desk, LATER, &[lease.0, first.ticket.0]), (2, 0));
    // Twice is as good as once.
    assert_eq!(take_up(&mut desk, LATER, &[lease.0, first.ticket.0]), (2, 0));
    assert_eq!(desk.stats().quarantined_bytes, 8 * KIB + 64, "only what was not named");
    assert!(renounce(&mut desk, LATER, EARLIER));
    assert_eq!(desk.effects.forgotten, [EARLIER]);
    assert!(!renounce(&mut desk, LATER, EARLIER));
    let stats = desk.stats();
    assert_eq!((stats.quarantined_rights, stats.leases, stats.tickets), (0, 1, 1));
    assert_eq!(take_up(&mut desk, LATER, &[second.ticket.0]), (0, 1));
    // They are this session's in every way.
    assert_eq!(commit(&mut desk, LATER, first.ticket), Ok(()));
    desk.release(LATER, lease);
    let released = Outcome::Released { released: 1, unknown: 0 };
    assert_eq!((desk.effects.outcome, desk.stats().leases), (released, 0));
}

#[test]
fn the_last_right_that_goes_on_ends_its_session() {
    let (mut desk, lease, [first, second]) = desk();
    desk.apply(Input::Close { session: EARLIER });
    desk.open_of(LATER, 7);
    take_up(&mut desk, LATER, &[lease.0, first.ticket.0, second.ticket.0]);
    assert_eq!(desk.effects.forgotten, [EARLIER]);
    desk.apply(Input::Close { session: LATER });
    assert_eq!(desk.stats().quarantined_rights, 3);
    desk.apply(Input::PeerGone { session: LATER });
    assert_eq!((desk.stats().quarantined_rights, desk.stats().sessions), (0, 1));
}

#[test]
fn no_other_process_has_a_say() {
    let (mut desk, lease, [first, _]) = desk();
    desk.apply(Input::Close { session: EARLIER });
    desk.open_of(LATER, 8);
    let nameless = SessionId(4);
    desk.open(nameless, Peer::Watched);
    for other in [LATER, nameless] {
        assert_eq!(take_up(&mut desk, other, &[lease.0, first.ticket.0]), (0, 2));
        assert!(!renounce(&mut desk, other, EARLIER));
        assert_eq!(desk.stats().quarantined_rights, 3);
    }
    // Nothing is known of either: that does not make them one.
    let another = SessionId(5);
    desk.open(another, Peer::Watched);
    let lease = desk.lease(nameless, b"k");
    assert_eq!(take_up(&mut desk, another, &[lease.0]), (0, 1));
    assert!(!renounce(&mut desk, another, nameless));
}

#[test]
fn a_name_that_means_nothing_here_counts_for_nothing() {
    let (mut desk, lease, _) = desk();
    desk.apply(Input::Close { session: EARLIER });
    desk.apply(Input::ForgetProcess { session: EARLIER });
    desk.open_of(LATER, 7);
    assert_eq!(take_up(&mut desk, LATER, &[lease.0]), (0, 1));
    assert!(!renounce(&mut desk, LATER, EARLIER));
    desk.apply(Input::ForgetProcess { session: SessionId(99) });
}

/// The client has noticed that its connection is lost, and the daemon has not.
#[test]
fn a_session_that_is_open_still_ends_with_its_end_of_file() {
    let (mut desk, lease, [first, _]) = desk();
    desk.open_of(LATER, 7);
    assert_eq!(take_up(&mut desk, LATER, &[lease.0]), (1, 0));
    assert!(renounce(&mut desk, LATER, EARLIER));
    // What it had sent before is served.
    assert_eq!(commit(&mut desk, EARLIER, first.ticket), Ok(()));
    desk.lease(EARLIER, b"k");
    desk.apply(Input::Close { session: EARLIER });
    let stats = desk.stats();
    assert_eq!((stats.quarantined_rights, stats.leases, stats.tickets), (0, 1, 0));
    assert_eq!(desk.effects.forgotten, [EARLIER]);
}

#[test]
fn a_session_does_not_renounce_itself() {
    let (mut desk, ..) = desk();
    assert!(!renounce(&mut desk, EARLIER, EARLIER));
    desk.apply(Input::Close { session: EARLIER });
    assert_eq!(desk.stats().quarantined_rights, 3);
}

#[test]
fn what_is_taken_up_counts_against_the_caps() {
    let mut config = StoreConfig::new(MIB, MIB);
    config.session_limits.leases_max = 2;
    let mut desk = Desk::new(config);
    desk.store(b"k", 4 * KIB, Retention::Short);
    desk.open_of(EARLIER, 7);
    let leases = [(); 2].map(|()| desk.lease(EARLIER, b"k").0);
    desk.open_of(LATER, 7);
    desk.lease(LATER, b"k");
    // Nothing that somebody reads is refused, and nothing more is given.
    assert_eq!(take_up(&mut desk, LATER, &leases), (2, 0));
    let shed = kvd_store::Found::Miss(kvd_proto::miss::MissReason::Shed);
    assert_eq!(desk.fetch(LATER, b"k", kvd_store::Hold::Lease), shed);
    desk.lease(EARLIER, b"k");
}
