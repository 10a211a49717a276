//! Servers with TLS: an etcd, and a door in front of whoever has none.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use kvd_tests::router::etcd::free_port;
use kvd_tests::until::until_true;
use tempfile::TempDir;

use crate::authority::{Authority, Identity};

/// A process that ends with this value.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _may_be_gone = self.0.kill();
        let _killed = self.0.wait();
    }
}

/// An etcd that lets in who has a certificate of `authority`, and nobody else.
#[derive(Debug)]
pub(crate) struct SecureEtcd {
    _process: Process,
    address: SocketAddr,
    _folder: TempDir,
}

impl SecureEtcd {
    pub(crate) fn start(authority: &Authority) -> Self {
        let folder = tempfile::Builder::new().prefix("secure-etcd-").tempdir().expect("a folder");
        let Identity { cert, key } = authority.identity("IP:127.0.0.1");
        let (client, peer) = (free_port(), free_port());
        let (clients, peers) = (format!("https://{client}"), format!("http://{peer}"));
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .args(["--cert-file", &cert, "--key-file", &key])
            .args(["--trusted-ca-file", &authority.file(), "--client-cert-auth"])
            .args(["--unsafe-no-fsync", "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starting etcd: is the package etcd-server installed?");
        let etcd = Self { _process: Process(child), address: client, _folder: folder };
        until_true("etcd listens", || TcpStream::connect(client).is_ok());
        etcd
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A door in front of a server on this host.
#[derive(Debug)]
pub(crate) struct Door {
    _process: Process,
    port: u16,
}

impl Door {
    pub(crate) fn to(server: SocketAddr, identity: &Identity) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/tls_door.py");
        let mut child = Command::new("python3")
            .arg(script)
            .args([&identity.cert, &identity.key, &server.port().to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("starting a door");
        let mut line = String::new();
        let out = child.stdout.take().expect("its standard output");
        let process = Process(child);
        BufReader::new(out).read_line(&mut line).expect("the line with its port");
        Self { _process: process, port: line.trim().parse().expect("a port") }
    }

    pub(crate) fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.authority())
    }
}
