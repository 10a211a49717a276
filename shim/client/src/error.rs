//! What can go wrong between a client and its daemon, with stable codes and with numbers.
//!
//! Look-ups never fail with these: they answer misses and carry the error beside them
//! ([`Answer::trouble`](crate::Answer::trouble)), for whoever wants to log why.

use std::io;
use std::path::PathBuf;

use kvd_proto::ids::{Epoch, SessionId};
use kvd_proto::malformed::Malformed;
use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_shm::mapping::MapError;

/// Why a call did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no connection and none could be made, or it is too early to try again.
    #[error("{} {}", unreachable(source), socket.display())]
    NotConnected {
        /// Where the daemon should be.
        socket: PathBuf,
        /// What the last attempt ended with.
        #[source]
        source: io::Error,
    },
    /// The connection broke during the call. Whether the daemon did what was asked is unknown.
    #[error("the daemon closed the connection during the call")]
    Disconnected {
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The deadline passed. Whether the daemon did, or still does, what was asked is unknown.
    #[error("no answer within {waited_ms} ms")]
    Deadline {
        /// How long the call took.
        waited_ms: u64,
    },
    /// The daemon said something that it must not say; the connection was closed.
    #[error("the daemon broke the protocol")]
    Protocol(#[from] Breach),
    /// The arena that the daemon handed out cannot be mapped.
    #[error("the arena cannot be mapped")]
    Mapping(#[from] MapError),
    /// The daemon understood and declined the whole request.
    #[error("refused ({code}): {message}")]
    Refused {
        /// Stable word, e.g. `unknown_op`, `bad_field`, `busy`.
        code: String,
        /// For people.
        message: String,
    },
    /// This connection has no arena: the daemon has none, or the client did not ask for it.
    #[error("no arena is shared on this connection")]
    NoArena,
    /// A ticket of a daemon that is gone.
    #[error("the ticket belongs to epoch {have}, the daemon is in epoch {now}")]
    StaleEpoch {
        /// The ticket's epoch.
        have: Epoch,
        /// The epoch of the present connection.
        now: Epoch,
    },
    /// A ticket of an earlier connection to the same daemon.
    #[error("the ticket belongs to session {have}, the connection is session {now}")]
    StaleSession {
        /// The ticket's session.
        have: SessionId,
        /// The session of the present connection.
        now: SessionId,
    },
    /// The daemon declined the one thing that was asked.
    #[error("refused: {0}")]
    Declined(Refusal),
    /// The one key that was asked for is not there.
    #[error("miss: {}", .0.as_str())]
    Miss(MissReason),
    /// The caller gave something that no daemon can take; nothing was sent.
    #[error("{what} is {given}, allowed are {allowed}")]
    Argument {
        /// What was given.
        what: &'static str,
        /// How much of it.
        given: u64,
        /// How much is possible.
        allowed: u64,
    },
}

impl ClientError {
    /// A stable word for logs, metrics and other languages.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::NotConnected { .. } => "not_connected",
            Self::Disconnected { .. } => "disconnected",
            Self::Deadline { .. } => "deadline",
            Self::Protocol(_) => "protocol",
            Self::Mapping(_) => "mapping",
            Self::Refused { code, .. } => code,
            Self::NoArena => "no_arena",
            Self::StaleEpoch { .. } => "stale_epoch",
            Self::StaleSession { .. } => "stale_session",
            Self::Declined(refusal) => refusal.as_str(),
            Self::Miss(reason) => reason.as_str(),
            Self::Argument { .. } => "argument",
        }
    }

    /// The miss that a look-up answers for keys that this error kept it from asking about.
    #[must_use]
    pub fn as_miss(&self) -> MissReason {
        match self {
            Self::Miss(reason) => *reason,
            Self::Deadline { .. } => MissReason::Deadline,
            _ => MissReason::Shed,
        }
    }

    /// Whether the connection cannot be used any more.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self, Self::Disconnected { .. } | Self::Protocol(_) | Self::Mapping(_))
    }
}

/// How a daemon broke the protocol.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Breach {
    /// Bytes that are no message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It speaks an older protocol.
    #[error("it speaks protocol {version}, this client needs {needed}", needed = kvd_proto::v2::PROTOCOL_VERSION)]
    Version {
        /// What the daemon speaks.
        version: u32,
    },
    /// An answer to nothing that was asked.
    #[error("answer {id} to no open request")]
    UnknownId {
        /// The answer's request id.
        id: u64,
    },
    /// The answer to another kind of request.
    #[error("an answer of the wrong kind")]
    WrongKind,
    /// More or fewer items than were asked for.
    #[error("{answered} answers to {asked} items")]
    WrongCount {
        /// Items of the request.
        asked: usize,
        /// Items of the answer.
        answered: usize,
    },
    /// A place outside the arena.
    #[error("{len_bytes} bytes at {offset} leave the arena of {arena_bytes} bytes")]
    OutsideArena {
        /// Where the bytes should begin.
        offset: u64,
        /// How many there should be.
        len_bytes: u64,
        /// Size of the arena.
        arena_bytes: u64,
    },
    /// The arena was announced and its descriptor did not come.
    #[error("the arena's descriptor did not come")]
    NoDescriptor,
    /// It gave up on this connection, and said so outside any request.
    #[error("it ended the session ({code}): {message}")]
    Farewell {
        /// Stable word, e.g. `bad_frame`.
        code: String,
        /// For people.
        message: String,
    },
}

/// A closed door is somebody's to open; a daemon that is not there is somebody's to start.
fn unreachable(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "not allowed to connect to the daemon at",
        _ => "no daemon at",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_door_is_not_a_missing_daemon() {
        let text = |kind: io::ErrorKind| {
            ClientError::NotConnected { socket: "/x".into(), source: kind.into() }.to_string()
        };
        assert_eq!(text(io::ErrorKind::NotFound), "no daemon at /x");
        let closed = text(io::ErrorKind::PermissionDenied);
        assert_eq!(closed, "not allowed to connect to the daemon at /x");
    }
}
