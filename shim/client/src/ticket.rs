//! Room that was reserved: the right to fill an extent, until it is committed or dropped.

use std::sync::Arc;

use kvd_proto::ids::TicketId;
use kvd_shm::mapping::{ArenaSlice, Foreign};

use crate::attachment::Attachment;
use crate::client::Core;
use crate::error::ClientError;

/// Bytes of the arena that only this ticket's holder may write. Fill them, then commit the ticket;
/// dropping it gives the room back.
#[derive(Debug)]
#[must_use = "dropping a ticket gives the reserved room back"]
pub struct Ticket {
    room: ArenaSlice,
    id: TicketId,
    attachment: Arc<Attachment>,
    core: Arc<Core>,
    /// Whether the daemon still counts it as ours.
    held: bool,
}

impl Ticket {
    pub(crate) fn new(
        room: ArenaSlice,
        id: TicketId,
        attachment: Arc<Attachment>,
        core: Arc<Core>,
    ) -> Self {
        Self { room, id, attachment, core, held: true }
    }

    /// How many bytes were reserved.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.room.len()
    }

    /// Copies `bytes` into the room, `at` bytes from its beginning, past the cache if they are many.
    ///
    /// # Errors
    /// [`ClientError::Argument`] if they do not fit; nothing is written then.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), ClientError> {
        self.write_foreign(at, bytes.into())
    }

    /// As [`Ticket::write`], from memory that others may be using.
    ///
    /// # Errors
    /// As [`Ticket::write`].
    pub fn write_foreign(&self, at: usize, bytes: Foreign<'_>) -> Result<(), ClientError> {
        let room = self.room.len();
        if at.checked_add(bytes.len()).is_none_or(|end| end > room) {
            return Err(ClientError::Argument {
                what: "the end of what is written",
                given: (at as u64).saturating_add(bytes.len() as u64),
                allowed: room as u64,
            });
        }
        // The room is part of an arena, so there is one.
        if let Some(arena) = &self.attachment.arena {
            arena.copy_in_foreign(self.room.offset() + at as u64, bytes);
        }
        Ok(())
    }

    /// Where the room is in this process, for devices and foreign languages that fill it themselves.
    /// Valid while the ticket lives; at most [`Ticket::capacity`] bytes may be written.
    #[must_use]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.room.as_ptr().cast_mut()
    }

    pub(crate) fn id(&self) -> TicketId {
        self.id
    }

    pub(crate) fn attachment(&self) -> &Arc<Attachment> {
        &self.attachment
    }

    /// Says whether the daemon still has to be told when the ticket is dropped.
    pub(crate) fn set_held(&mut self, held: bool) {
        self.held = held;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.held && self.attachment.returns.add_ticket(self.id) {
            self.core.give_back(&self.attachment);
        }
    }
}
