//! What a client has to be told: where the daemon is and how long anything may take.

use std::path::PathBuf;
use std::time::Duration;

/// Where a daemon listens unless it was told otherwise.
pub const DEFAULT_SOCKET: &str = "/var/run/infera-kvd.sock";

/// How a [`Client`](crate::Client) finds its daemon and how patient it is.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of the daemon's Unix socket.
    pub socket: PathBuf,
    /// The name under which this client appears in `kvdctl top` and in the daemon's log.
    pub client_id: String,
    /// Upper bound of every call that does not take a deadline of its own. Default 1 s.
    pub deadline: Duration,
    /// A greeting (connect, hello, mapping) that has not ended after this time is given up and
    /// begun anew. It may span several calls, each of which ends with its own deadline. Default 5 s.
    pub connect_deadline: Duration,
    /// Whether to ask for the arena. Without it only `locate`, `clear` and `stats` are of use.
    /// Default true.
    pub shares_arena: bool,
    /// Whether commits carry checksums, for daemons that hold the bytes against them. Default true.
    pub sends_checksums: bool,
}

impl Options {
    /// Options with the default deadlines.
    pub fn new(socket: impl Into<PathBuf>, client_id: impl Into<String>) -> Self {
        Self {
            socket: socket.into(),
            client_id: client_id.into(),
            deadline: Duration::from_secs(1),
            connect_deadline: Duration::from_secs(5),
            shares_arena: true,
            sends_checksums: true,
        }
    }
}
