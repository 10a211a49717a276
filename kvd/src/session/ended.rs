//! Why a session ended, and how loudly that is said.

use std::io;

use kvd_proto::ids::SessionId;
use kvd_proto::malformed::Malformed;
use kvd_shm::descriptor::ReceiveError;
use kvd_shm::mapping::Stopped;

use crate::meters::SessionEnd;
use crate::sparing::Sparing;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the peer closed the connection")]
    Eof,
    #[error("the peer sent something that ends a session: {0}")]
    Malformed(#[from] Malformed),
    #[error("the peer read nothing of its replies for too long")]
    WriteStall,
    #[error("the peer stopped in the middle of a large body while others may wait for its room")]
    ReadStall,
    #[error("no room to receive a body of {body_bytes} bytes outside the arena")]
    NoStaging {
        /// Length of the body.
        body_bytes: usize,
    },
    #[error("a successor serves the connection")]
    HandedOver,
    #[error("too much waits to be handled or sent for the connection to be handed over")]
    LeftBehind,
    #[error("the peer's process can't be watched: {0}")]
    Unwatchable(#[source] io::Error),
    #[error(transparent)]
    Descriptors(#[from] ReceiveError),
    #[error(transparent)]
    Io(io::Error),
}

impl Ended {
    pub(super) fn label(&self) -> SessionEnd {
        match self {
            Self::Eof => SessionEnd::PeerClosed,
            Self::Malformed(_) | Self::Descriptors(ReceiveError::TooMany { .. }) => {
                SessionEnd::Malformed
            }
            Self::WriteStall => SessionEnd::WriteStall,
            Self::ReadStall => SessionEnd::ReadStall,
            Self::NoStaging { .. } => SessionEnd::NoStaging,
            Self::HandedOver => SessionEnd::HandedOver,
            Self::LeftBehind => SessionEnd::LeftBehind,
            Self::Unwatchable(_) | Self::Descriptors(ReceiveError::Socket(_)) | Self::Io(_) => {
                SessionEnd::Failed
            }
        }
    }

    /// An error of a read: a receive timeout is a peer that stopped inside a body.
    pub(super) fn while_reading(stopped: Stopped) -> Self {
        match Self::from(stopped.source) {
            Self::WriteStall => Self::ReadStall,
            other => other,
        }
    }

    /// A peer that leaves is everyday life; one that is closed by us should learn why from the log.
    pub(super) fn log(&self, session: SessionId, pid: Option<i32>, sparing: &Sparing) {
        if matches!(self, Self::Eof | Self::HandedOver) {
            tracing::debug!(session = session.0, pid, "session ended");
        } else if let Some(left_out) = sparing.allows() {
            tracing::info!(session = session.0, pid, left_out, reason = %self, "session closed");
        }
    }
}

/// Errors of a write: a send timeout is a peer that does not read.
impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::WriteStall,
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof => Self::Eof,
            _ => Self::Io(error),
        }
    }
}

impl From<Stopped> for Ended {
    fn from(stopped: Stopped) -> Self {
        stopped.source.into()
    }
}
