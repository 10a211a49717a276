//! What one connection stands for: the daemon's epoch, the session, its limits, its arena.
//!
//! Views and tickets keep the attachment they came from, hence the mapping their offsets mean. An
//! offset is resolved here and nowhere else: a new connection brings a new attachment, and the mapping
//! of one arena can never be read as that of another.

use std::sync::Arc;

use kvd_proto::ids::{Epoch, SessionId};
use kvd_proto::v2::feature;
use kvd_proto::v2::hello::Limits;
use kvd_shm::mapping::{ArenaSlice, Mapping};

use crate::error::{Breach, ClientError};
use crate::returns::Returns;

#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) epoch: Epoch,
    pub(crate) session: SessionId,
    pub(crate) server_id: String,
    pub(crate) limits: Limits,
    pub(crate) abilities: Abilities,
    pub(crate) arena: Option<Arc<Mapping>>,
    pub(crate) returns: Arc<Returns>,
}

/// Optional abilities that both sides have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Abilities {
    /// Commits carry checksums.
    pub(crate) checksums: bool,
    /// The daemon takes hints.
    pub(crate) prefetch: bool,
    /// The daemon takes note of what is still held, and its arena may outlive it.
    pub(crate) resumes: bool,
}

impl Abilities {
    pub(crate) fn of<'a>(features: impl Iterator<Item = &'a str>) -> Self {
        let mut abilities = Self::default();
        for name in features {
            abilities.checksums |= name == feature::CHECKSUM;
            abilities.prefetch |= name == feature::PREFETCH;
            abilities.resumes |= name == feature::RESUME;
        }
        abilities
    }
}

/// Which connection, of all that there ever were to one arena.
pub(crate) type Connection = (Epoch, SessionId);

impl Attachment {
    pub(crate) fn connection(&self) -> Connection {
        (self.epoch, self.session)
    }

    pub(crate) fn arena_bytes(&self) -> u64 {
        self.arena.as_ref().map_or(0, |mapping| mapping.bytes())
    }

    /// The arena's bytes at a place that the daemon named.
    pub(crate) fn slice(&self, offset: u64, len_bytes: u64) -> Result<ArenaSlice, ClientError> {
        let mapping = self.arena.as_ref().ok_or(ClientError::NoArena)?;
        let arena_bytes = mapping.bytes();
        let outside = Breach::OutsideArena { offset, len_bytes, arena_bytes };
        match (offset.checked_add(len_bytes), usize::try_from(len_bytes)) {
            (Some(end), Ok(len)) if end <= arena_bytes => Ok(mapping.slice(offset, len)),
            _ => Err(outside.into()),
        }
    }

    /// Whether rights of this attachment mean anything on the connection that `now` stands for.
    pub(crate) fn check_current(&self, now: &Self) -> Result<(), ClientError> {
        if self.epoch != now.epoch {
            return Err(ClientError::StaleEpoch { have: self.epoch, now: now.epoch });
        }
        if self.session != now.session {
            return Err(ClientError::StaleSession { have: self.session, now: now.session });
        }
        Ok(())
    }
}

/// What an attached client knows about its daemon.
#[derive(Debug, Clone)]
pub struct Attached {
    /// Name of this incarnation, `kvd-` and eight hex digits.
    pub server_id: String,
    /// The incarnation as a number: leases, tickets and offsets mean nothing in another one.
    pub epoch: Epoch,
    /// The session that the connection is to the daemon.
    pub session: SessionId,
    /// Size of the shared arena, 0 if none is shared.
    pub arena_bytes: u64,
    /// What the daemon allows one session.
    pub limits: Limits,
}

impl From<&Attachment> for Attached {
    fn from(attachment: &Attachment) -> Self {
        Self {
            server_id: attachment.server_id.clone(),
            epoch: attachment.epoch,
            session: attachment.session,
            arena_bytes: attachment.arena_bytes(),
            limits: attachment.limits,
        }
    }
}
