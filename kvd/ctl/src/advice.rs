//! What to do about a failure, where that can be said in a few words.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use kvd_client::{Breach, ClientError, Refusal};
use tokio::time::error::Elapsed;

use crate::admin::{Connecting, EngineSocket};
use crate::permission::{Barrier, Forbidden};

/// The failure in words.
pub(crate) fn complaint(error: &anyhow::Error) -> String {
    match unreachable(error) {
        // "No daemon" would be wrong: nobody got as far as to see.
        Some((socket, io::ErrorKind::PermissionDenied)) => {
            Forbidden(Barrier::before(socket)).to_string()
        }
        _ => format!("{error:#}"),
    }
}

/// A hint to print after the failure.
pub(crate) fn advice(error: &anyhow::Error) -> Option<Cow<'static, str>> {
    if let Some((socket, kind)) = unreachable(error) {
        return not_connected(socket, kind);
    }
    if let Some(Forbidden(barrier)) = error.downcast_ref() {
        return barrier.way_out().map(Cow::from);
    }
    let words = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Protocol(Breach::Malformed(_))) => {
            "another protocol is spoken there: --socket names the socket that engines use, --admin-socket the other one"
        }
        Some(ClientError::Declined(refusal)) => refused(*refusal)?,
        Some(_) => return None,
        None if error.is::<EngineSocket>() => {
            "that is what --socket is for. --admin-socket names the socket for ls, why, top and drain, which lies beside it \
             (`.admin.sock` for `.sock`) and is found there without this option"
        }
        None if error.is::<Elapsed>() => {
            "somebody listens there, but does not answer as the daemon's admin socket would: see --admin-socket"
        }
        None => return None,
    };
    Some(words.into())
}

/// The socket that could not be connected to, and why not, if that is what went wrong.
fn unreachable(error: &anyhow::Error) -> Option<(&Path, io::ErrorKind)> {
    if let Some(ClientError::NotConnected { socket, source }) = error.downcast_ref() {
        return Some((socket, source.kind()));
    }
    let Connecting(socket) = error.downcast_ref()?;
    Some((socket, error.root_cause().downcast_ref::<io::Error>()?.kind()))
}

fn not_connected(socket: &Path, kind: io::ErrorKind) -> Option<Cow<'static, str>> {
    match kind {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Some(
            "is infera-kvd running there? --socket, or INFERA_KVD_SOCKET, says where it is".into(),
        ),
        io::ErrorKind::PermissionDenied => {
            let way_out = Barrier::before(socket).way_out()?;
            let rule = "the daemon's --socket-group and --socket-mode let a group in, but ls, why, top and drain are for \
                        its own user";
            Some(format!("{way_out}; {rule}").into())
        }
        _ => None,
    }
}

/// Why the daemon refuses, for people.
pub(crate) fn refused(refusal: Refusal) -> Option<&'static str> {
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
        let connecting = Connecting("/kvd.admin.sock".into());
        let admin = Err::<(), _>(missing()).context(connecting).context("admin socket");
        for daemon in [engines, admin.expect_err("failed")] {
            assert!(advice(&daemon).is_some_and(|words| words.contains("--socket")), "{daemon:#}");
        }
        let file = Err::<(), _>(missing()).context("reading a file").expect_err("failed");
        assert_eq!(advice(&file), None);
    }

    #[test]
    fn a_closed_socket_is_not_called_a_missing_daemon() {
        let closed = || io::Error::from(io::ErrorKind::PermissionDenied);
        let socket = "/nonexistent/kvd.sock".into();
        let engines = Error::from(ClientError::NotConnected { socket, source: closed() });
        let connecting = Connecting("/nonexistent/kvd.admin.sock".into());
        let admin = Err::<(), _>(closed()).context(connecting).expect_err("failed");
        for denied in [engines, admin] {
            let said = complaint(&denied);
            assert!(said.starts_with("permission denied: /nonexistent"), "{said}");
        }
    }

    #[test]
    fn a_refusal_is_put_in_words() {
        let refused = Error::from(ClientError::Declined(Refusal::SessionLimit));
        assert!(advice(&refused).is_some_and(|words| words.contains("--in-flight-bytes-max")));
    }
}
