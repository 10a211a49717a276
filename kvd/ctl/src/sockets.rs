//! Where the daemon is.

use std::path::{Path, PathBuf};

use clap::Args;
use kvd_client::{Client, DEFAULT_SOCKET, Options};

use crate::admin::Admin;
use crate::deadline::DEADLINE;

/// Apart from a command's own options, which the help shows first.
const HEADING: &str = "Where the daemon is";

#[derive(Debug, Args)]
pub(crate) struct Sockets {
    /// The socket that engines use
    #[arg(long, global = true, help_heading = HEADING, value_name = "PATH")]
    #[arg(env = "INFERA_KVD_SOCKET", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// The admin socket, for ls, why, top and drain [default: beside the other one, `.admin.sock` for
    /// `.sock`]
    #[arg(long, global = true, help_heading = HEADING, value_name = "PATH")]
    #[arg(env = "INFERA_KVD_ADMIN_SOCKET")]
    admin_socket: Option<PathBuf>,
}

impl Sockets {
    /// A client that does not map the arena: enough for figures and for clearing.
    pub(crate) fn lean_client(&self) -> Client {
        Client::new(Options { shares_arena: false, ..self.options() })
    }

    /// A client that can move blocks.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.options())
    }

    pub(crate) fn admin(&self) -> anyhow::Result<Admin> {
        let path = self.admin_socket.clone().unwrap_or_else(|| beside(&self.socket));
        Admin::new(path)
    }

    fn options(&self) -> Options {
        let mut options = Options::new(&self.socket, "kvdctl");
        options.deadline = DEADLINE;
        options
    }
}

/// Where the daemon puts its admin socket unless it is told otherwise.
fn beside(socket: &Path) -> PathBuf {
    let mut stem = match socket.extension() {
        Some(extension) if extension == "sock" => socket.with_extension(""),
        _ => socket.to_path_buf(),
    }
    .into_os_string();
    stem.push(".admin.sock");
    stem.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_socket_is_beside_the_other() {
        let of = |path: &str| beside(Path::new(path)).to_str().map(str::to_owned);
        assert_eq!(
            of("/var/run/infera-kvd.sock").as_deref(),
            Some("/var/run/infera-kvd.admin.sock")
        );
        assert_eq!(of("/tmp/a.b/kvd").as_deref(), Some("/tmp/a.b/kvd.admin.sock"));
        assert_eq!(of("kvd.v2.sock").as_deref(), Some("kvd.v2.admin.sock"));
    }
}
