//! What to do about a failure, where that can be said in a few words.

use std::io;

use kvd_client::{Breach, ClientError, Refusal};

use crate::admin::Connecting;

/// A hint to print after the failure.
pub(crate) fn advice(error: &anyhow::Error) -> Option<&'static str> {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::NotConnected { source, .. }) => not_connected(source.kind()),
        Some(ClientError::Protocol(Breach::Malformed(_))) => {
            Some("is this the socket that engines use? The admin socket is another one")
        }
        Some(ClientError::Declined(refusal)) => refused(*refusal),
        Some(_) => None,
        None => admin_socket(error),
    }
}

fn admin_socket(error: &anyhow::Error) -> Option<&'static str> {
    let refused = error.root_cause().downcast_ref::<io::Error>();
    refused.filter(|_| error.is::<Connecting>()).and_then(|refused| not_connected(refused.kind()))
}

fn not_connected(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Some("is infera-kvd running there? --socket, or INFERA_KVD_SOCKET, says where it is")
        }
        io::ErrorKind::PermissionDenied => Some(
            "who may connect is up to the daemon's --socket-mode; ls, why, top and drain are for its owner",
        ),
        _ => None,
    }
}

fn refused(refusal: Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::NoArena => "the daemon offers no shared arena",
        Refusal::Oversize => "larger than the arena can hold",
        Refusal::ValueLargerThanStore => "larger than the daemon's --max-bytes",
        Refusal::SessionLimit => {
            "more than one session may hold at once; see the daemon's --in-flight-bytes-max"
        }
        Refusal::ArenaFull => "nothing that may be evicted frees enough room",
        Refusal::HigherPriority => "only blocks of a higher class could make room; see --retention",
        Refusal::Downgrade => "stored already, with a higher class; clear it first",
        Refusal::Shed => "the daemon is at a limit; try again",
        Refusal::NotDurable => {
            "in memory, but no disk took it: kvdctl stat shows the health of each; see --durability"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, Error};

    use super::*;

    #[test]
    fn a_missing_daemon_is_told_from_a_missing_file() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let socket = "/kvd.sock".into();
        let engines = Error::from(ClientError::NotConnected { socket, source: missing() });
        let admin = Err::<(), _>(missing()).context(Connecting).context("admin socket");
        for daemon in [engines, admin.expect_err("failed")] {
            assert!(advice(&daemon).is_some_and(|words| words.contains("--socket")), "{daemon:#}");
        }
        let file = Err::<(), _>(missing()).context("reading a file").expect_err("failed");
        assert_eq!(advice(&file), None);
    }

    #[test]
    fn a_refusal_is_put_in_words() {
        let refused = Error::from(ClientError::Declined(Refusal::SessionLimit));
        assert!(advice(&refused).is_some_and(|words| words.contains("--in-flight-bytes-max")));
    }
}
