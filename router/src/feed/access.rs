//! What daemons on other hosts want to see before they let anybody in: a key for their sockets, a token for snapshots.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A pair of keys of CURVE.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) public: Vec<u8>,
    pub(super) secret: Vec<u8>,
}

/// What the router can show.
#[derive(Clone, Default)]
pub struct Access {
    pub(super) keys: Option<Keys>,
    pub(super) token: Option<Arc<str>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { keys, token } = self;
        write!(out, "Access {{ keys: {}, token: {} }}", keys.is_some(), token.is_some())
    }
}

impl Access {
    /// What snapshots and hints are shown.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Reads a file with a line `client PUBLIC SECRET`, keys in Z85, and one with a token.
    ///
    /// # Errors
    /// A file can't be read, others than its owner may read it, or it holds something else.
    pub fn read(keys: Option<&Path>, token: Option<&Path>) -> io::Result<Self> {
        let keys = keys
            .map(|path| read_keys(path).map_err(|error| named("--kvd-curve-file", path, &error)));
        let token = token.map(|path| {
            let text =
                secret_text(path).map_err(|error| named("--kvd-token-file", path, &error))?;
            Ok::<_, io::Error>(text.trim().into())
        });
        Ok(Self { keys: keys.transpose()?, token: token.transpose()? })
    }
}

fn named(flag: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("{flag} {}: {error}", path.display()))
}

fn secret_text(path: &Path) -> io::Result<String> {
    let metadata = std::fs::metadata(path)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other("others than its owner may read it: chmod 600"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("it is too long"));
    }
    std::fs::read_to_string(path)
}

fn read_keys(path: &Path) -> io::Result<Keys> {
    parse(&secret_text(path)?).ok_or_else(|| {
        io::Error::other("expected one line `client PUBLIC SECRET`, keys of 40 characters of Z85")
    })
}

fn parse(text: &str) -> Option<Keys> {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let words: Vec<&str> = lines.next()?.split_whitespace().collect();
    let key = |text: &str| zmq::z85_decode(text).ok().filter(|key| key.len() == KEY_BYTES);
    match words.as_slice() {
        ["client", public, secret] if lines.next().is_none() => {
            Some(Keys { public: key(public)?, secret: key(secret)? })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_with_two_keys_is_wanted() {
        let key = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
        assert!(parse(&format!("# ours\n\nclient {key} {key}\n")).is_some());
        for wrong in [
            "",
            "client",
            &format!("client {key}"),
            &format!("server {key} {key}"),
            &format!("client {key} short"),
            &format!("client {key} {key}\nclient {key} {key}"),
        ] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
