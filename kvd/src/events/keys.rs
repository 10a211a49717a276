//! Who may connect to the sockets of events from another host: whoever has a key that is on the list (CURVE).

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The server's key, and the keys of those who may connect.
#[derive(Clone)]
pub struct Keys {
    public: Vec<u8>,
    secret: Vec<u8>,
    clients: BTreeSet<Vec<u8>>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Keys of {} clients", self.clients.len())
    }
}

impl Keys {
    /// Reads a file of lines `server PUBLIC SECRET` (once) and `client PUBLIC` (at least once), keys in Z85.
    ///
    /// # Errors
    /// The file can't be read, others than its owner may read it, or a line is something else.
    pub fn read(path: &Path) -> io::Result<Self> {
        Self::parse(&secret_text(path)?)
            .map_err(|why| io::Error::other(format!("{}: {why}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (mut server, mut clients) = (None, BTreeSet::new());
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || {
                format!(
                    "line {number} is not `server PUBLIC SECRET` or `client PUBLIC`, keys of 40 characters of Z85"
                )
            };
            let words: Vec<&str> = line.split_whitespace().collect();
            let key = |text: &str| {
                let key = zmq::z85_decode(text).ok().filter(|key| key.len() == KEY_BYTES);
                key.ok_or_else(wrong)
            };
            match *words.as_slice() {
                ["server", public, secret] if server.is_none() => {
                    server = Some((key(public)?, key(secret)?));
                }
                ["client", public] => drop(clients.insert(key(public)?)),
                _ => return Err(wrong()),
            }
        }
        let (public, secret) = server.ok_or("there is no line `server PUBLIC SECRET`")?;
        if clients.is_empty() {
            return Err("there is no line `client PUBLIC`: nobody could connect".to_owned());
        }
        Ok(Self { public, secret, clients })
    }

    /// The server's public key.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The server's secret key.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// Whether this public key may connect.
    #[must_use]
    pub fn admit(&self, client: &[u8]) -> bool {
        self.clients.contains(client)
    }
}

/// A file with secrets.
///
/// # Errors
/// It can't be read, it is too large, or others than its owner may read it.
pub fn secret_text(path: &Path) -> io::Result<String> {
    let about = |why: String| io::Error::other(format!("{}: {why}", path.display()));
    let found = std::fs::metadata(path).map_err(|error| about(error.to_string()))?;
    if found.permissions().mode() & 0o077 != 0 {
        return Err(about("others than its owner may use it; chmod 600 it".to_owned()));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(about(format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| about(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";

    #[test]
    fn a_list_needs_a_server_and_a_client() {
        let both = format!("# who\nserver {KEY} {KEY}\n\nclient {KEY}\n");
        let keys = Keys::parse(&both).unwrap();
        assert!(keys.admit(keys.secret()));
        assert!(!keys.admit(&[0; 32]));
        for wrong in [
            "",
            &format!("server {KEY} {KEY}"),
            &format!("client {KEY}"),
            &format!("server {KEY}\nclient {KEY}"),
            &format!("server {KEY} {KEY}\nserver {KEY} {KEY}\nclient {KEY}"),
            &format!("server {KEY} {KEY}\nclient short"),
            &format!("server {KEY} {KEY}\nuser {KEY}"),
        ] {
            assert!(Keys::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(!format!("{keys:?}").contains("rq:"));
    }

    #[test]
    fn a_secret_that_others_may_read_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(secret_text(&path).unwrap_err().to_string().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(secret_text(&path).unwrap(), "x");
    }
}
