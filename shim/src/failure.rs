//! Why a call did not return `KVD_STATUS_OK`: the number that goes back and the text behind it.

use std::error::Error as _;
use std::fmt::Write as _;

use kvd_client::ClientError;

use crate::codes::Status;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// The caller gave something impossible.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(Status::Argument, text)
    }
}

impl From<ClientError> for Failure {
    /// The text names the causes too.
    fn from(error: ClientError) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            let _infallible = write!(text, ": {next}");
            cause = next.source();
        }
        Self { status: status_of(&error), text }
    }
}

fn status_of(error: &ClientError) -> Status {
    match error {
        ClientError::NotConnected { .. } => Status::NotConnected,
        ClientError::Disconnected { .. } => Status::Disconnected,
        ClientError::Deadline { .. } => Status::Deadline,
        ClientError::Protocol(_) => Status::Protocol,
        ClientError::Mapping(_) => Status::Mapping,
        ClientError::NoArena => Status::NoArena,
        ClientError::StaleEpoch { .. } => Status::StaleEpoch,
        ClientError::StaleSession { .. } => Status::StaleSession,
        ClientError::Declined(_) => Status::Declined,
        ClientError::Miss(_) => Status::Miss,
        ClientError::Argument { .. } => Status::Argument,
        ClientError::Refused { code, .. } => match code.as_str() {
            "stale_epoch" => Status::StaleEpoch,
            "no_arena" => Status::NoArena,
            _ => Status::Refused,
        },
        _ => Status::Refused,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_text_names_the_causes() {
        let source = io::Error::from(io::ErrorKind::ConnectionRefused);
        let failure = Failure::from(ClientError::NotConnected { socket: "/x".into(), source });
        assert_eq!(failure.status, Status::NotConnected);
        assert_eq!(failure.text, "no daemon at /x: connection refused");
    }

    #[test]
    fn words_of_the_daemon_become_numbers() {
        let refused = |code: &str| {
            let error = ClientError::Refused { code: code.to_owned(), message: String::new() };
            Failure::from(error).status
        };
        assert_eq!(refused("stale_epoch"), Status::StaleEpoch);
        assert_eq!(refused("no_arena"), Status::NoArena);
        assert_eq!(refused("busy"), Status::Refused);
    }
}
