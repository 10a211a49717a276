//! Reserve: find room for a payload and lend it for writing.

use kvd_proto::ids::{SessionId, TicketId};
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;

use crate::effects::{Granted, HeaderWrite, Outcome};
use crate::input::{Peer, Writer};
use crate::rights::{Kind, Right};
use crate::space::Footprint;
use crate::store::Store;
use crate::time::Timestamp;

/// What a reserve asks for; see [`crate::Input::Reserve`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) len_bytes: u64,
    pub(crate) class: Option<Retention>,
    pub(crate) writer: Writer,
}

impl Store {
    /// See [`crate::Input::Reserve`].
    pub(crate) fn reserve(
        &mut self,
        session: SessionId,
        asked: Asked,
        now: Timestamp,
        headers: &mut Vec<HeaderWrite>,
    ) -> Outcome {
        let granted = self.grant_ticket(session, asked, now);
        if let Ok(Granted { payload_offset, version, .. }) = granted {
            headers.push(HeaderWrite { payload_offset, version: version - 1, len_bytes: 0 });
        }
        let probe = asked.class.is_none() && granted == Err(Refusal::ArenaFull);
        if asked.writer == Writer::Daemon || probe {
            return Outcome::Reserved(granted);
        }
        Outcome::Reserved(self.counted(granted))
    }

    fn grant_ticket(
        &mut self,
        session: SessionId,
        asked: Asked,
        now: Timestamp,
    ) -> Result<Granted, Refusal> {
        let Asked { len_bytes, class, writer } = asked;
        let session = self.sessions.open_index(session);
        if self.config.arena_bytes == 0 {
            return Err(Refusal::NoArena);
        }
        let asked_bytes = u32::try_from(len_bytes).map_err(|_beyond| Refusal::Oversize)?;
        let need = self.space.layout().footprint(len_bytes);
        if need.bytes > self.config.arena_bytes {
            return Err(Refusal::Oversize);
        }
        if writer == Writer::Client {
            self.check_caps(session, need)?;
        }
        let extent = self.take_room(need, class, now)?;
        let kind = match writer {
            Writer::Client => Kind::Ticket,
            Writer::Daemon => Kind::DaemonTicket,
        };
        let owes_reserve = class.is_none();
        let until = Timestamp(0);
        let right = Right { kind, session, extent, asked_bytes, owes_reserve, until };
        let ticket = self.grant(right);
        Ok(Granted {
            ticket: TicketId(self.rights.name(ticket)),
            payload_offset: self.space.payload_offset(extent),
            capacity_bytes: self.space.capacity_bytes(extent),
            version: self.space[extent].version(),
        })
    }

    fn check_caps(&mut self, session: u32, need: Footprint) -> Result<(), Refusal> {
        let limits = &self.config.session_limits;
        let has_slot = self.ledger.takes_right(self.rights.next_index(), session);
        let holder = self.sessions.at_mut(session);
        let refusal = if !has_slot
            || holder.capped.tickets >= limits.tickets_max
            || holder.capped.bytes + need.bytes > limits.in_flight_bytes_max
        {
            Refusal::SessionLimit
        } else if holder.peer == Peer::Unknowable
            && self.holdings.unknowable_bytes + need.bytes > self.config.quarantine_bytes_max
        {
            Refusal::QuarantineFull
        } else {
            return Ok(());
        };
        holder.refused_total += 1;
        Err(refusal)
    }
}
