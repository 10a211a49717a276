//! Room that was reserved: the right to fill an extent, until it is committed or dropped.

use std::sync::Arc;

use kvd_proto::ids::TicketId;
use kvd_shm::checksum::Checksum;
use kvd_shm::mapping::{ArenaSlice, Foreign};

use crate::attachment::Attachment;
use crate::client::Core;
use crate::copied::Copied;
use crate::error::ClientError;

/// Bytes of the arena that only this ticket's holder may write. Fill them, then commit the ticket;
/// dropping it gives the room back.
#[derive(Debug)]
#[must_use = "dropping a ticket gives the reserved room back"]
pub struct Ticket {
    room: ArenaSlice,
    copied: Copied,
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
        attachment.returns.hold_ticket(id);
        Self { room, copied: Copied::nothing(), id, attachment, core, held: true }
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
        self.check(at, bytes.len())?;
        // The room is part of an arena, so there is one.
        let Some(arena) = &self.attachment.arena else { return Ok(()) };
        let offset = self.room.offset() + at as u64;
        match self.go_on(at) {
            None => arena.copy_in(offset, bytes),
            Some(mut checksum) => {
                arena.copy_in_summed(offset, bytes, &mut checksum);
                self.copied.came_to(at + bytes.len(), checksum);
            }
        }
        Ok(())
    }

    /// As [`Ticket::write`], from memory that others may be using.
    ///
    /// # Errors
    /// As [`Ticket::write`].
    pub fn write_foreign(&self, at: usize, bytes: Foreign<'_>) -> Result<(), ClientError> {
        self.check(at, bytes.len())?;
        let Some(arena) = &self.attachment.arena else { return Ok(()) };
        let offset = self.room.offset() + at as u64;
        match self.go_on(at) {
            None => arena.copy_in_foreign(offset, bytes),
            Some(mut checksum) => {
                arena.copy_in_foreign_summed(offset, bytes, &mut checksum);
                self.copied.came_to(at + bytes.len(), checksum);
            }
        }
        Ok(())
    }

    fn check(&self, at: usize, len: usize) -> Result<(), ClientError> {
        let room = self.room.len();
        if at.checked_add(len).is_none_or(|end| end > room) {
            return Err(ClientError::Argument {
                what: "the end of what is written",
                given: (at as u64).saturating_add(len as u64),
                allowed: room as u64,
            });
        }
        Ok(())
    }

    /// The checksum to go on with, if the daemon wants one.
    fn go_on(&self, at: usize) -> Option<Checksum> {
        self.attachment.abilities.checksums.then(|| self.copied.go_on(at)).flatten()
    }

    /// Where the room is in this process, for devices and foreign languages that fill it themselves.
    /// Valid while the ticket lives; at most [`Ticket::capacity`] bytes may be written.
    #[must_use]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.copied.lose_track();
        self.room.as_ptr().cast_mut()
    }

    /// The checksum of the block of the room's first `len_bytes` bytes and `key`; nothing if the daemon does not want one or
    /// there are not so many. Bytes that did not come by [`Ticket::write`] alone, front to back, are read once more.
    pub(crate) fn checksum(&self, len_bytes: u64, key: &[u8]) -> Option<u64> {
        let arena =
            self.attachment.arena.as_ref().filter(|_| self.attachment.abilities.checksums)?;
        let len = usize::try_from(len_bytes).ok().filter(|len| *len <= self.room.len())?;
        let mut checksum = self.copied.checksum(len).unwrap_or_else(|| {
            let mut checksum = Checksum::new();
            arena.sum(self.room.offset(), len, &mut checksum);
            checksum
        });
        checksum.update(key);
        Some(checksum.value())
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
        if held {
            self.attachment.returns.hold_ticket(self.id);
        } else {
            self.attachment.returns.forget_ticket(self.id);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let attachment = &self.attachment;
        if self.held && attachment.returns.add_ticket(attachment.connection(), self.id) {
            self.core.give_back(attachment);
        }
    }
}
