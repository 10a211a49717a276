//! Where etcd is and how one gets in. Checked once at the start; files are read again for each connection, so that
//! certificates and passwords may be renewed under a process that runs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::endpoint::Endpoint;
use crate::lost::Lost;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Names of the options, without dashes, as all programs have them.
const ENDPOINT: &str = "etcd-endpoint";
const CA_FILE: &str = "etcd-ca-file";
const CERT_FILE: &str = "etcd-cert-file";
const KEY_FILE: &str = "etcd-key-file";
const USER: &str = "etcd-user";
const PASSWORD_FILE: &str = "etcd-password-file";

/// A password that does not show in `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Its variable in the environment, for all programs: a command line would show it to everybody on the host.
    pub const VARIABLE: &str = "INFERA_ETCD_PASSWORD";

    /// This one; nothing if it is empty.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<Self> {
        Some(text.into()).filter(|text| !text.is_empty()).map(Self)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Password")
    }
}

/// What was said of etcd.
#[derive(Debug, Clone, Default)]
pub struct Said {
    /// `HOST`, `HOST:PORT` or a URL each.
    pub endpoints: Vec<String>,
    /// Certificates (PEM) that etcd's has to come from.
    pub ca_file: Option<PathBuf>,
    /// Our certificate (PEM).
    pub cert_file: Option<PathBuf>,
    /// And its key (PEM).
    pub key_file: Option<PathBuf>,
    /// Who we are.
    pub user: Option<String>,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// The password, from the environment.
    pub password: Option<Password>,
}

/// A mistake in what was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The option, without dashes.
    pub option: &'static str,
    /// What is wrong with it.
    pub message: String,
}

/// Where etcd is and how one gets in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    endpoints: Vec<Endpoint>,
    ca_file: Option<PathBuf>,
    /// Our certificate and its key.
    identity: Option<(PathBuf, PathBuf)>,
    user: Option<(String, Secret)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Secret {
    File(PathBuf),
    Given(Password),
}

/// What one connection needs, read.
pub(crate) struct Keys {
    pub(crate) tls: ClientTlsConfig,
    pub(crate) user: Option<(String, String)>,
}

impl Access {
    /// Checks what was said, the files included.
    ///
    /// # Errors
    /// All mistakes.
    pub fn of(said: Said) -> Result<Self, Vec<Wrong>> {
        let mut wrong = Vec::new();
        let mut note = |option, message: String| wrong.push(Wrong { option, message });
        let has_tls = said.ca_file.is_some() || said.cert_file.is_some() || said.key_file.is_some();
        let mut endpoints = Vec::new();
        for text in &said.endpoints {
            match Endpoint::read(text, has_tls) {
                Ok(endpoint) if has_tls && !endpoint.is_encrypted() => {
                    note(ENDPOINT, format!("{text}: certificates are of no use without https"));
                }
                Ok(endpoint) => endpoints.push(endpoint),
                // Not the text itself if there may be a password in it.
                Err(why) if text.contains('@') => note(ENDPOINT, why.to_owned()),
                Err(why) => note(ENDPOINT, format!("{text:?} is not allowed; {why}")),
            }
        }
        if said.endpoints.is_empty() {
            note(ENDPOINT, "expected at least one endpoint".to_owned());
        }
        let identity = match (said.cert_file, said.key_file) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (Some(_), None) => {
                note(CERT_FILE, format!("its key is missing: give --{KEY_FILE}"));
                None
            }
            (None, Some(_)) => {
                note(KEY_FILE, format!("its certificate is missing: give --{CERT_FILE}"));
                None
            }
            (None, None) => None,
        };
        let secret = match (said.password_file, said.password) {
            (Some(_), Some(_)) if said.user.is_some() => {
                note(PASSWORD_FILE, format!("{} holds another one; which?", Password::VARIABLE));
                None
            }
            (Some(file), _) => Some(Secret::File(file)),
            (None, Some(password)) => Some(Secret::Given(password)),
            (None, None) => None,
        };
        let user = match (said.user, secret) {
            (Some(user), Some(secret)) => Some((user, secret)),
            (Some(_), None) => {
                let variable = Password::VARIABLE;
                note(USER, format!("its password is missing: --{PASSWORD_FILE} or {variable}"));
                None
            }
            (None, Some(Secret::File(_))) => {
                note(PASSWORD_FILE, format!("whose? Give --{USER}"));
                None
            }
            // It may be meant for another program.
            (None, Some(Secret::Given(_)) | None) => None,
        };
        let access = Self { endpoints, ca_file: said.ca_file, identity, user };
        if let Err((option, message)) = access.read() {
            wrong.push(Wrong { option, message });
        }
        if wrong.is_empty() { Ok(access) } else { Err(wrong) }
    }

    /// The members, at least one.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// What a connection needs.
    pub(crate) fn keys(&self) -> Result<Keys, Lost> {
        self.read().map_err(|(option, message)| Lost::because(format!("--{option}: {message}")))
    }

    fn read(&self) -> Result<Keys, (&'static str, String)> {
        let mut tls = ClientTlsConfig::new();
        tls = match &self.ca_file {
            Some(path) => tls.ca_certificate(Certificate::from_pem(certificate(CA_FILE, path)?)),
            None => tls.with_enabled_roots(),
        };
        if let Some((cert, key)) = &self.identity {
            let cert = certificate(CERT_FILE, cert)?;
            let key = pem(KEY_FILE, key, "PRIVATE KEY-----", "no private key in it")?;
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        let user = match &self.user {
            Some((user, Secret::Given(Password(password)))) => {
                Some((user.clone(), password.clone()))
            }
            Some((user, Secret::File(path))) => {
                let text = file(PASSWORD_FILE, path)?;
                let password = text.trim_end_matches(['\r', '\n']);
                if password.is_empty() {
                    return Err((PASSWORD_FILE, format!("{}: it is empty", path.display())));
                }
                Some((user.clone(), password.to_owned()))
            }
            None => None,
        };
        Ok(Keys { tls, user })
    }
}

fn certificate(option: &'static str, path: &Path) -> Result<String, (&'static str, String)> {
    pem(option, path, "BEGIN CERTIFICATE-----", "no certificate in it")
}

/// The text of a file in which `mark` has to stand.
fn pem(
    option: &'static str,
    path: &Path,
    mark: &str,
    none: &str,
) -> Result<String, (&'static str, String)> {
    let text = file(option, path)?;
    if text.contains(mark) {
        Ok(text)
    } else {
        Err((option, format!("{}: {none}", path.display())))
    }
}

fn file(option: &'static str, path: &Path) -> Result<String, (&'static str, String)> {
    let read = || {
        if std::fs::metadata(path)?.len() > FILE_BYTES_MAX {
            return Err(io::Error::other("it is too long"));
        }
        std::fs::read_to_string(path)
    };
    read().map_err(|error| (option, format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(endpoints: &[&str]) -> Said {
        Said {
            endpoints: endpoints.iter().map(|text| (*text).to_owned()).collect(),
            ..Said::default()
        }
    }

    fn options(said: Said) -> Vec<&'static str> {
        Access::of(said).unwrap_err().iter().map(|wrong| wrong.option).collect()
    }

    #[test]
    fn files_decide_what_is_encrypted() {
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("ca.pem");
        std::fs::write(&ca_file, "-----BEGIN CERTIFICATE-----").unwrap();
        let of = |endpoints: &[&str]| {
            Access::of(Said { ca_file: Some(ca_file.clone()), ..said(endpoints) })
        };
        let access = of(&["a", "https://b:1"]).unwrap();
        let urls: Vec<String> = access.endpoints().iter().map(ToString::to_string).collect();
        assert_eq!(urls, ["https://a:2379", "https://b:1"]);
        assert_eq!(of(&["a", "http://b"]).unwrap_err().len(), 1);
        assert_eq!(Access::of(said(&["a"])).unwrap().endpoints()[0].to_string(), "http://a:2379");
    }

    #[test]
    fn all_mistakes_are_named_with_their_options() {
        assert_eq!(options(said(&[])), [ENDPOINT]);
        assert_eq!(options(said(&["a/b", "ftp://c"])), [ENDPOINT, ENDPOINT]);
        let none = || Some(PathBuf::from("/none"));
        assert_eq!(options(Said { ca_file: none(), ..said(&["a"]) }), [CA_FILE]);
        assert_eq!(options(Said { cert_file: none(), ..said(&["a"]) }), [CERT_FILE]);
        assert_eq!(options(Said { key_file: none(), ..said(&["a"]) }), [KEY_FILE]);
        assert_eq!(options(Said { user: Some("u".into()), ..said(&["a"]) }), [USER]);
        assert_eq!(options(Said { password_file: none(), ..said(&["a"]) }), [PASSWORD_FILE]);
        let user = Some("u".to_owned());
        let password = Password::new("p");
        let both = Said { user, password_file: none(), password: password.clone(), ..said(&["a"]) };
        assert_eq!(options(both.clone()), [PASSWORD_FILE, USER]);
        assert_eq!(options(Said { password: None, ..both.clone() }), [PASSWORD_FILE]);
        let given = Said { password_file: None, ..both };
        assert_eq!(
            Access::of(given).unwrap().keys().unwrap().user,
            Some(("u".to_owned(), "p".to_owned()))
        );
        // Somebody else's.
        assert!(Access::of(Said { password, ..said(&["a"]) }).unwrap().user.is_none());
    }

    #[test]
    fn a_password_is_read_anew_and_shown_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "first one\n").unwrap();
        let user = Some("u".to_owned());
        let access =
            Access::of(Said { user, password_file: Some(path.clone()), ..said(&["a"]) }).unwrap();
        let password = |access: &Access| access.keys().unwrap().user.unwrap().1;
        assert_eq!(password(&access), "first one");
        std::fs::write(&path, "second").unwrap();
        assert_eq!(password(&access), "second");
        std::fs::write(&path, "\n").unwrap();
        assert!(access.keys().err().unwrap().to_string().contains("--etcd-password-file"));
        let given = Password::new("hidden").unwrap();
        assert!(!format!("{given:?} {access:?}").contains("hidden"));
        let in_url = Access::of(said(&["http://root:hidden@etcd"])).unwrap_err();
        assert!(!format!("{in_url:?}").contains("hidden"));
    }
}
