//! Where a member of etcd listens.

use std::fmt;

use tonic::transport::Uri;

/// etcd's port if none is given.
const PORT: u16 = 2379;

/// A member: `HOST`, `HOST:PORT` or a URL without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    is_encrypted: bool,
    host: String,
    port: u16,
}

impl Endpoint {
    /// Reads one. `is_encrypted`: what it is if it does not say `http` or `https`.
    pub(crate) fn read(text: &str, is_encrypted: bool) -> Result<Self, &'static str> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let rest = rest.trim_end_matches('/');
        let is_encrypted = match scheme {
            "" => is_encrypted,
            "http" => false,
            "https" => true,
            _ => return Err("expected HOST, HOST:PORT, http://HOST:PORT or https://HOST:PORT"),
        };
        if rest.contains('@') {
            return Err("a user belongs into --etcd-user, a password into --etcd-password-file");
        }
        let (host, port) =
            host_and_port(rest).ok_or("expected HOST, HOST:PORT or a URL without a path")?;
        Ok(Self { is_encrypted, host, port })
    }

    /// Whether the connection is to be encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// The host as it stands in a URL.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// `HOST:PORT`.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// What stands behind the scheme. The parser of URLs lets any text pass for a port.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    let uri: Uri = format!("http://{text}").parse().ok()?;
    let is_plain = uri.path().len() <= 1 && uri.query().is_none();
    let authority = uri.authority().filter(|_| is_plain)?.as_str();
    let host = uri.host().filter(|host| !host.is_empty())?;
    let port = match authority.strip_prefix(host)? {
        "" => PORT,
        rest => rest.strip_prefix(':')?.parse().ok()?,
    };
    Some((host.to_owned(), port))
}

/// As a URL.
impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(out, "{scheme}://{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_urls_are_read() {
        for (text, is_encrypted, wanted) in [
            ("etcd", false, "http://etcd:2379"),
            ("etcd", true, "https://etcd:2379"),
            (" 10.0.0.1:1/ ", false, "http://10.0.0.1:1"),
            ("http://etcd", false, "http://etcd:2379"),
            ("http://etcd", true, "http://etcd:2379"),
            ("https://etcd:4/", false, "https://etcd:4"),
            ("[::1]:7", false, "http://[::1]:7"),
            ("https://[fd00::1]", false, "https://[fd00::1]:2379"),
        ] {
            let endpoint = Endpoint::read(text, is_encrypted).unwrap();
            assert_eq!(endpoint.to_string(), wanted, "{text}");
        }
        let endpoint = Endpoint::read("https://[::1]:7", false).unwrap();
        assert_eq!((endpoint.host(), endpoint.authority().as_str()), ("[::1]", "[::1]:7"));
    }

    #[test]
    fn what_is_none_is_refused() {
        for wrong in
            ["", "/", "http://", "ftp://etcd", "etcd/path", "http://etcd?x", "etcd:port", "a b"]
        {
            assert!(Endpoint::read(wrong, false).is_err(), "{wrong}");
        }
        for wrong in ["http://root:secret@etcd", "root@etcd:1"] {
            assert!(Endpoint::read(wrong, false).unwrap_err().contains("--etcd-user"), "{wrong}");
        }
    }
}
