//! Fetch: look up, pin, refresh.
//!
//! The batch goes through in passes; see `batch`.

use kvd_proto::ids::{LeaseId, SessionId};
use kvd_proto::miss::MissReason;

use crate::effects::{Effects, Found, Held, Hit};
use crate::input::{Hold, Ids, Peer};
use crate::ops::Lookup;
use crate::rights::{Kind, Right};
use crate::rows::RowId;
use crate::slab::NOWHERE;
use crate::space::{ExtentId, State};
use crate::store::Store;
use crate::time::Timestamp;

impl Store {
    /// See [`crate::Input::Fetch`].
    pub(crate) fn fetch(
        &mut self,
        session: SessionId,
        lookup: Lookup<'_>,
        hold: Hold,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let session = self.sessions.open_index(session);
        let named = self.named(lookup.namespace);
        let mut lookups = core::mem::take(&mut self.scratch.lookups);
        self.look_up(named, lookup.keys, &mut lookups);
        self.foresee_extents(&lookups);
        self.foresee_touches(&lookups);
        let mut at = lookups.iter_mut();
        lookup.keys.each(|key| {
            let Some((hash, row)) = at.next() else {
                return false;
            };
            let found = match self.fetch_row(session, *row, hold, now) {
                Ok(hit) => {
                    self.totals.count_hit();
                    Found::Hit(hit)
                }
                Err(shed) => {
                    *row = RowId::NONE;
                    let below = shed
                        .is_none()
                        .then(|| self.fetch_below(session, lookup.namespace, key, now));
                    below.flatten().unwrap_or_else(|| {
                        Found::Miss(shed.unwrap_or_else(|| self.explain(named, *hash, key)))
                    })
                }
            };
            if let Found::Miss(reason) = found {
                self.totals.count_miss(reason);
            }
            effects.found.push(found);
            !(lookup.prefix && matches!(found, Found::Miss(_)))
        });
        // Last to first, so that the head of a prefix outlives its tail.
        for &(_, row) in lookups[..effects.found.len()].iter().rev() {
            if row != RowId::NONE {
                self.touch(row);
            }
        }
        self.scratch.lookups = lookups;
    }

    /// Pins a row. A miss without a reason is to be explained by the evidence.
    fn fetch_row(
        &mut self,
        session: u32,
        id: RowId,
        hold: Hold,
        now: Timestamp,
    ) -> Result<Hit, Option<MissReason>> {
        // The row may have expired earlier in this very batch.
        let Some(row) = self.rows.get(id) else {
            return Err(None);
        };
        if row.is_expired(now) {
            self.expire(id);
            return Err(None);
        }
        let (extent, len_bytes, retention) = (row.host_extent(), row.len_bytes, row.class);
        let marks = row.marks;
        let held = self.hold(session, id, extent, hold).ok_or(Some(MissReason::Shed));
        if marks.landed() {
            self.pick_up(session, id);
        }
        let held = held?;
        if marks.is_dirty() && !marks.touched() {
            self.rows[id].marks.set_touched();
        }
        Ok(Hit {
            held,
            payload_offset: self.space.payload_offset(extent),
            len_bytes,
            version: self.space[extent].version(),
            retention,
        })
    }

    /// Pins an extent; none if the session's caps forbid a lease.
    fn hold(&mut self, session: u32, id: RowId, extent: ExtentId, hold: Hold) -> Option<Held> {
        if hold == Hold::HandOut && self.renew_hand_out(session, id, extent) {
            return Some(Held::HandOut);
        }
        let fits = hold == Hold::Inline || self.fits_caps(session, extent);
        if !fits {
            self.sessions.at_mut(session).refused_total += 1;
        }
        let kind = match (hold, fits) {
            (Hold::Lease, true) => Kind::Lease,
            (Hold::Lease, false) => return None,
            (Hold::HandOut, true) => Kind::HandOut,
            (Hold::HandOut, false) => {
                self.totals.hand_outs_refused_total += 1;
                Kind::DaemonLease
            }
            (Hold::Inline, _) => Kind::DaemonLease,
        };
        let until = Timestamp(0);
        let right = Right { kind, session, extent, asked_bytes: 0, owes_reserve: false, until };
        let index = self.grant(right);
        if kind == Kind::HandOut {
            self.rows[id].hand_out = index;
            return Some(Held::HandOut);
        }
        Some(Held::Lease(LeaseId(self.rights.name(index))))
    }

    fn fits_caps(&self, session: u32, extent: ExtentId) -> bool {
        let (limits, bytes) = (&self.config.session_limits, self.space[extent].bytes());
        let has_slot = self.ledger.takes_right(self.rights.next_index(), session);
        let session = self.sessions.at(session);
        let quarantine_fits = session.peer == Peer::Watched
            || self.holdings.unknowable_bytes + bytes <= self.config.quarantine_bytes_max;
        session.capped.leases < limits.leases_max
            && session.capped.bytes + bytes <= limits.in_flight_bytes_max
            && quarantine_fits
            && has_slot
    }

    /// A block that goes to the same session again needs no second hand-out.
    fn renew_hand_out(&mut self, session: u32, id: RowId, extent: ExtentId) -> bool {
        let index = self.rows[id].hand_out;
        if index == NOWHERE {
            return false;
        }
        let Some(right) = self.rights.get(index) else {
            return false;
        };
        if right.session != session || right.extent != extent {
            return false;
        }
        match right.kind {
            Kind::HandOut => true,
            Kind::Lingering => {
                self.change(index, Kind::HandOut);
                true
            }
            Kind::Ticket | Kind::DaemonTicket | Kind::Lease | Kind::DaemonLease => false,
        }
    }

    /// See [`crate::Input::Touch`].
    pub(crate) fn touch_leases(&mut self, session: SessionId, leases: Ids<'_>) {
        let session = self.sessions.open_index(session);
        for lease in leases.iter().rev() {
            let right = self.rights.by_name(lease.0).map(|index| *self.rights.at(index));
            let Some(right) = right.filter(|right| right.session == session) else {
                continue;
            };
            if self.space[right.extent].state() == State::Stored {
                self.touch(self.space[right.extent].owner());
            }
        }
    }
}
