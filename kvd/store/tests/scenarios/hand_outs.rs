//! Protocol-1 hand-outs: pinned until the next request and the grace time after it.

use kvd_proto::retention::Retention;
use kvd_store::{Held, Hold, Input, StoreConfig, Writer};

use crate::desk::{Desk, KIB, MIB, ONE};

fn desk() -> Desk {
    Desk::new(StoreConfig::new(MIB, MIB))
}

/// Whether the extent at `payload_offset` is given to somebody else when all is asked for.
fn is_reused(desk: &mut Desk, payload_offset: u64) -> bool {
    let mut tickets = Vec::new();
    let mut reused = false;
    while let Ok(granted) = desk.reserve_by(ONE, 4 * KIB, Some(Retention::Long), Writer::Daemon) {
        let end = granted.payload_offset + granted.capacity_bytes;
        reused |= granted.payload_offset <= payload_offset && payload_offset < end;
        tickets.push(granted.ticket);
    }
    for ticket in tickets {
        desk.apply(Input::Cancel { session: ONE, ticket, linger: false });
    }
    reused
}

#[test]
fn a_handed_out_extent_is_reused_only_after_request_and_grace() {
    let mut desk = desk();
    desk.store(b"k", 4 * KIB, Retention::None);
    let hit = desk.hit(ONE, b"k", Hold::HandOut);
    assert_eq!(hit.held, Held::HandOut);
    // Overwritten while it is handed out: the old bytes stay where they are.
    desk.store(b"k", 4 * KIB, Retention::None);
    desk.wait(60_000);
    assert!(!is_reused(&mut desk, hit.payload_offset), "the client did not speak again");
    desk.apply(Input::NextRequest { session: ONE });
    desk.wait(999);
    assert!(!is_reused(&mut desk, hit.payload_offset), "the grace time is not over");
    desk.wait(1);
    assert!(is_reused(&mut desk, hit.payload_offset));
}

#[test]
fn the_same_block_handed_out_again_and_again_is_one_hand_out() {
    let mut desk = desk();
    desk.store(b"k", 4 * KIB, Retention::Short);
    for _ in 0..100 {
        desk.apply(Input::NextRequest { session: ONE });
        desk.hit(ONE, b"k", Hold::HandOut);
        assert_eq!(desk.stats().hand_outs, 1);
        desk.now += 10;
    }
    desk.apply(Input::NextRequest { session: ONE });
    desk.wait(1_000);
    assert_eq!(desk.stats().hand_outs, 0);
}

#[test]
fn over_the_cap_the_daemon_gets_a_lease_for_an_inline_answer() {
    let mut config = StoreConfig::new(MIB, MIB);
    config.session_limits.leases_max = 1;
    let mut desk = Desk::new(config);
    desk.store(b"a", KIB, Retention::Short);
    desk.store(b"b", KIB, Retention::Short);
    assert_eq!(desk.hit(ONE, b"a", Hold::HandOut).held, Held::HandOut);
    let Held::Lease(lease) = desk.hit(ONE, b"b", Hold::HandOut).held else {
        panic!("above the cap");
    };
    assert_eq!(desk.stats().totals.hand_outs_refused_total, 1);
    desk.release(ONE, lease);
    assert_eq!((desk.stats().leases, desk.stats().hand_outs), (0, 1));
}

#[test]
fn a_cancelled_ticket_lingers_if_asked_to() {
    let mut desk = desk();
    let granted = desk.reserve(4 * KIB, None).unwrap();
    desk.apply(Input::Cancel { session: ONE, ticket: granted.ticket, linger: true });
    assert_eq!(desk.stats().tickets, 0);
    assert!(!is_reused(&mut desk, granted.payload_offset));
    desk.wait(1_000);
    assert!(is_reused(&mut desk, granted.payload_offset));
}
