//! The whole state, checked against itself: what tests ask for after every step.

use std::collections::BTreeMap;

use kvd_proto::retention::Retention;

use crate::holding::Holdings;
use crate::input::Peer;
use crate::rights::{Kind, List};
use crate::room::Evictable;
use crate::rows::RowId;
use crate::sessions::{Capped, Session};
use crate::slab::NOWHERE;
use crate::space::State;
use crate::store::Store;
use crate::time::Timestamp;

impl Store {
    /// Checks the whole state against itself; costs time in proportion to the number of rows.
    ///
    /// # Panics
    /// If any invariant is broken.
    pub fn assert_consistent(&self) {
        self.space.assert_consistent();
        self.assert_rows();
        self.assert_order();
        self.assert_extents();
        self.assert_sessions();
        self.assert_disk();
    }

    fn assert_rows(&self) {
        let (mut host_bytes, mut lineage_bytes, mut with_ttl) = (0, 0, 0);
        let mut by_namespace = BTreeMap::new();
        let mut families = 0;
        for (id, row) in self.rows.iter() {
            let extent = &self.space[row.host_extent()];
            assert_eq!(extent.state(), State::Stored);
            assert_eq!((extent.owner(), extent.class()), (id, row.class));
            let hash = self.row_hash(row);
            assert_eq!(self.find(row.namespace, hash, row.key.as_bytes()), Some(id));
            assert!(!(row.parked && extent.is_evictable()), "{id:?} is parked without need");
            let has_ttl = row.expires_at != Timestamp::NEVER;
            assert_eq!(self.expiries.contains(&(row.expires_at, id)), has_ttl);
            with_ttl += usize::from(has_ttl);
            host_bytes += u64::from(row.len_bytes);
            lineage_bytes += row.lineage_bytes();
            *by_namespace.entry(row.namespace).or_insert(0) += 1;
            assert_eq!(row.kin_next != RowId::NONE, row.key.as_bytes().len() == 8);
            if row.kin_next != RowId::NONE {
                assert_eq!(self.rows[row.kin_next].kin_previous, id);
                assert_eq!(self.rows[row.kin_previous].kin_next, id);
                families += usize::from(self.is_head_of_family(id));
            }
        }
        assert_eq!(self.families.len(), families);
        assert_eq!(self.index.len(), self.rows.len() as usize);
        assert_eq!(self.expiries.len(), with_ttl);
        assert_eq!((self.host_bytes, self.lineage_bytes), (host_bytes, lineage_bytes));
        assert!(self.host_bytes <= self.config.budget_bytes, "the budget is exceeded");
        assert!(self.rows.len() <= self.config.rows_max, "there are more rows than allowed");
        assert!(self.lineage_bytes <= self.config.lineage_bytes_max, "too many bytes of lineage");
        let listed: BTreeMap<_, _> =
            self.namespaces.iter().map(|(id, entry)| (id, entry.rows)).collect();
        assert_eq!(listed, by_namespace);
    }

    fn assert_order(&self) {
        let mut in_order = 0;
        for class in Retention::ALL {
            let mut at = self.evict.coldest(class);
            while let Some(id) = at {
                let row = &self.rows[id];
                assert!(row.class == class && !row.parked, "{id:?} is in the wrong order");
                in_order += 1;
                at = self.evict.warmer(id);
            }
        }
        let parked = self.rows.iter().filter(|(_, row)| row.parked).count();
        assert_eq!(in_order + parked, self.rows.len() as usize);
    }

    fn assert_extents(&self) {
        let (mut pins, mut tickets) = self.holds_of_disk();
        for (_, right) in self.rights.iter() {
            let counts = if right.kind.is_ticket() { &mut tickets } else { &mut pins };
            *counts.entry(right.extent).or_insert(0) += 1;
        }
        let mut evictable = Evictable::default();
        let (mut rows, mut promised_rows, mut promised_bytes) = (0, 0, 0);
        self.space.each(|id, extent| {
            assert_eq!(extent.pins(), pins.get(&id).copied().unwrap_or(0));
            let ticketed = extent.state() == State::Ticketed;
            assert_eq!(tickets.get(&id).copied().unwrap_or(0), u32::from(ticketed));
            rows += u32::from(extent.state() == State::Stored);
            if extent.is_evictable() {
                let amount = &mut evictable.by_class[extent.class().index()];
                amount.space += extent.bytes();
                amount.payload += u64::from(self.rows[extent.owner()].len_bytes);
                amount.rows += 1;
            }
            promised_rows += u64::from(extent.promised());
            promised_bytes += if extent.promised() { extent.bytes() } else { 0 };
        });
        assert_eq!(rows, self.rows.len());
        assert_eq!(evictable, self.evictable);
        assert_eq!((promised_rows, promised_bytes), (self.promises.rows, self.promises.bytes));
    }

    fn assert_sessions(&self) {
        let mut holdings = Holdings::default();
        let mut seen = 0;
        for (index, session) in self.sessions.iter() {
            assert!(!session.closed || !session.holds_nothing(), "{} is over", session.id);
            let (mut leases, mut hand_outs, mut tickets) = (0, 0, 0);
            let (mut in_flight_bytes, mut capped) = (0, Capped::default());
            for list in List::ALL {
                let mut at = session.heads[list.index()];
                while at != NOWHERE {
                    let right = self.rights.at(at);
                    assert_eq!((right.session, right.kind.list()), (index, list));
                    let bytes = self.space[right.extent].bytes();
                    match right.kind {
                        Kind::Ticket | Kind::DaemonTicket => tickets += 1,
                        Kind::Lease | Kind::DaemonLease => leases += 1,
                        Kind::HandOut | Kind::Lingering => hand_outs += 1,
                    }
                    if right.kind.is_the_peers() {
                        capped.tickets += u32::from(right.kind.is_ticket());
                        capped.leases += u32::from(!right.kind.is_ticket());
                        capped.bytes += bytes;
                    }
                    in_flight_bytes += bytes;
                    count(&mut holdings, session, right.kind, bytes);
                    seen += 1;
                    at = self.rights.next(at);
                }
            }
            assert_eq!(
                (session.leases, session.hand_outs, session.tickets),
                (leases, hand_outs, tickets)
            );
            assert_eq!((session.in_flight_bytes, session.capped), (in_flight_bytes, capped));
        }
        assert_eq!(seen, self.rights.iter().count(), "a right is in no list");
        assert_eq!(holdings, self.holdings);
    }
}

/// Deliberately not the code that it checks.
fn count(holdings: &mut Holdings, session: &Session, kind: Kind, bytes: u64) {
    if matches!(kind, Kind::Ticket | Kind::DaemonTicket) {
        holdings.tickets += 1;
    } else {
        holdings.leased_bytes += bytes;
        let is_lease = matches!(kind, Kind::Lease | Kind::DaemonLease);
        holdings.leases += u64::from(is_lease);
        holdings.hand_outs += u64::from(!is_lease);
    }
    let stays = matches!(kind, Kind::Ticket | Kind::Lease);
    if stays && session.closed {
        holdings.quarantined_rights += 1;
        holdings.quarantined_bytes += bytes;
    }
    if stays && session.peer == Peer::Unknowable {
        holdings.unknowable_bytes += bytes;
    }
}
