//! Certificates, made by `openssl` for one test.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// An authority with a folder of its own.
#[derive(Debug)]
pub(crate) struct Authority {
    folder: TempDir,
}

/// A certificate and its key.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("authority-").tempdir().expect("a folder");
        std::fs::write(folder.path().join("req"), "[req]\ndistinguished_name=dn\n[dn]\n")
            .expect("writing what openssl wants");
        let authority = Self { folder };
        authority.make("ca", &["-addext", "basicConstraints=critical,CA:TRUE"]);
        authority
    }

    /// The file with its own certificate.
    pub(crate) fn file(&self) -> String {
        text(&self.path("ca.pem"))
    }

    /// A certificate for who is known by `name`, like `IP:127.0.0.1`.
    pub(crate) fn identity(&self, name: &str) -> Identity {
        let file = name.replace(':', "-");
        let (ca, key) = (self.file(), text(&self.path("ca.key")));
        let alternative = format!("subjectAltName={name}");
        let more = ["-CA", &ca, "-CAkey", &key, "-addext", &alternative];
        let usage = ["-addext", "extendedKeyUsage=serverAuth,clientAuth"];
        self.make(&file, &[&more[..], &usage[..]].concat());
        let path = |ending: &str| text(&self.path(&format!("{file}.{ending}")));
        Identity { cert: path("pem"), key: path("key") }
    }

    fn make(&self, name: &str, more: &[&str]) {
        // Each authority has a name of its own, like its folder: strangers are told from forgers.
        let folder = text(self.folder.path());
        let subject = format!("/CN={name} of {}", folder.rsplit('/').next().unwrap_or_default());
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-days", "2", "-subj", &subject, "-config"])
            .args([&self.path("req"), Path::new("-keyout"), &self.path(&format!("{name}.key"))])
            .args([Path::new("-out"), &self.path(&format!("{name}.pem"))])
            .args(more)
            .output()
            .expect("starting openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of text").to_owned()
}
