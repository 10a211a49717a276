//! `reserve`: room to write, waited for if need be.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_proto::v2::Reply;
use kvd_proto::v2::reserve::{Reserve, ReservedRow};

use super::{check_count, fitting};
use crate::attachment::Attachment;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::{Breach, ClientError};
use crate::line::Repeat;
use crate::ticket::Ticket;

/// Pauses between two attempts to get room; they double.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(32);

/// Bytes that one length takes in a frame.
const LEN_BYTES: usize = size_of::<u64>();

impl Client {
    /// Reserves room for blocks of the given lengths: a ticket for each that the daemon grants, in
    /// order.
    ///
    /// Room that is lacking only for the moment (the arena is full of what cannot be evicted, or
    /// this session holds as much as it may) is asked for again until the deadline; the refusal is
    /// the answer only then. Tickets that were granted are held meanwhile.
    ///
    /// # Errors
    /// If there is no daemon, no answer, or no arena on this connection. What was granted by then is
    /// given back.
    pub fn reserve(
        &self,
        lens: &[u64],
        retention: Retention,
        deadline: Duration,
    ) -> Result<Vec<Result<Ticket, Refusal>>, ClientError> {
        let deadline = Deadline::after(deadline);
        let mut outcomes = Vec::with_capacity(lens.len());
        outcomes.resize_with(lens.len(), || Err(Refusal::Shed));
        let mut open: Vec<usize> = (0..lens.len()).collect();
        let mut pause = Duration::ZERO;
        loop {
            match self.ask_for_room(lens, &open, retention, deadline, &mut outcomes) {
                // Asking again in vain does not undo what was granted before.
                Err(ClientError::Deadline { .. }) if !pause.is_zero() => return Ok(outcomes),
                asked => asked?,
            }
            open.retain(|&index| outcomes[index].as_ref().is_err_and(|no| may_pass(*no)));
            pause = (2 * pause).clamp(PAUSE_MIN, PAUSE_MAX);
            if open.is_empty() || deadline.remaining() <= pause {
                return Ok(outcomes);
            }
            #[expect(clippy::disallowed_methods, reason = "no message says that room came free")]
            std::thread::sleep(pause);
        }
    }

    /// As [`Client::reserve`], but room that is lacking now is not asked for again: for a batch whose
    /// own tickets may be what is in the way.
    ///
    /// # Errors
    /// As [`Client::reserve`].
    pub fn try_reserve(
        &self,
        lens: &[u64],
        retention: Retention,
        deadline: Duration,
    ) -> Result<Vec<Result<Ticket, Refusal>>, ClientError> {
        let mut outcomes = Vec::with_capacity(lens.len());
        outcomes.resize_with(lens.len(), || Err(Refusal::Shed));
        let all: Vec<usize> = (0..lens.len()).collect();
        let deadline = Deadline::after(deadline);
        self.ask_for_room(lens, &all, retention, deadline, &mut outcomes)?;
        Ok(outcomes)
    }

    /// Asks once for all lengths whose indices are `open`.
    fn ask_for_room(
        &self,
        lens: &[u64],
        open: &[usize],
        retention: Retention,
        deadline: Deadline,
        outcomes: &mut [Result<Ticket, Refusal>],
    ) -> Result<(), ClientError> {
        let mut rest = open;
        while !rest.is_empty() {
            // Tickets of two connections cannot be committed together.
            let earlier = outcomes.iter().flatten().next().map(Ticket::attachment);
            let asked = Cell::new(rest);
            let granted = self.core.exchange(
                deadline,
                Repeat::Once,
                |outgoing| {
                    if let Some(earlier) = earlier {
                        earlier.check_current(outgoing.attachment)?;
                    }
                    let sizes = rest.iter().map(|_| LEN_BYTES);
                    asked.set(&rest[..fitting(&outgoing.attachment.limits, sizes)]);
                    let column = &mut outgoing.scratch.lens;
                    column.clear();
                    column.extend(asked.get().iter().map(|&index| lens[index]));
                    let lens = column.as_column();
                    Reserve { id: outgoing.id, retention, lens }.encode(outgoing.frame);
                    Ok(())
                },
                |incoming| {
                    let Reply::Reserved(reserved) = incoming.reply else {
                        return Err(Breach::WrongKind.into());
                    };
                    let asked = asked.get();
                    check_count(asked.len(), reserved.len())?;
                    let rows = asked.iter().zip(reserved.rows());
                    rows.map(|(&index, row)| self.outcome(row, lens[index], incoming.attachment))
                        .collect::<Result<Vec<_>, _>>()
                },
            )?;
            for (&index, outcome) in asked.get().iter().zip(granted) {
                outcomes[index] = outcome;
            }
            rest = &rest[asked.get().len()..];
        }
        Ok(())
    }

    fn outcome(
        &self,
        row: ReservedRow,
        len_bytes: u64,
        attachment: &Arc<Attachment>,
    ) -> Result<Result<Ticket, Refusal>, ClientError> {
        match row {
            ReservedRow::Granted { ticket, offset } => {
                let room = attachment.slice(offset, len_bytes)?;
                let (attachment, core) = (Arc::clone(attachment), Arc::clone(&self.core));
                Ok(Ok(Ticket::new(room, ticket, attachment, core)))
            }
            ReservedRow::Refused(refusal) => Ok(Err(refusal)),
        }
    }
}

/// Whether it makes sense to ask again.
fn may_pass(refusal: Refusal) -> bool {
    matches!(refusal, Refusal::ArenaFull | Refusal::SessionLimit | Refusal::Shed)
}
