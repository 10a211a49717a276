//! A real etcd, and what workers do with it: they speak its JSON gateway.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::send;
use crate::PATIENCE;
use crate::until::until;

/// Where workers register.
pub const PREFIX: &str = "/infera/workers/";

/// An etcd with a folder of its own, removed with this value.
#[derive(Debug)]
pub struct Etcd {
    child: Option<Child>,
    client: SocketAddr,
    peer: SocketAddr,
    folder: TempDir,
}

impl Etcd {
    /// Starts one on free ports.
    ///
    /// # Panics
    /// If it is not installed (Debian: `etcd-server`), or does not answer.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("router-etcd-").tempdir().expect("a folder");
        let mut etcd = Self { child: None, client: free_port(), peer: free_port(), folder };
        etcd.resume();
        etcd
    }

    /// Where it serves clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.client
    }

    /// Stops it where it stands, or lets it go on: who is connected stays connected.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().expect("it runs").id();
        kill(Pid::from_raw(pid.cast_signed()), signal).expect("signalling etcd");
    }

    /// Ends it as a crash would.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("killing etcd");
        child.wait().expect("waiting for etcd");
    }

    /// Starts it again with what it knew.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn resume(&mut self) {
        let url = |address: SocketAddr| format!("http://{address}");
        let cluster = format!("default={}", url(self.peer));
        let started = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.folder.path().join("data"))
            .args(["--listen-client-urls", &url(self.client)])
            .args(["--advertise-client-urls", &url(self.client)])
            .args(["--listen-peer-urls", &url(self.peer)])
            .args(["--initial-advertise-peer-urls", &url(self.peer)])
            .args(["--initial-cluster", &cluster])
            .args(["--unsafe-no-fsync", "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(started.expect("starting etcd: is the package etcd-server installed?"));
        until("etcd answers", PATIENCE, || self.try_call("/v3/kv/range", &range()));
    }

    /// Starts it again without anything that it knew.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn resume_empty(&mut self) {
        let data = self.folder.path().join("data");
        std::fs::remove_dir_all::<&Path>(&data).expect("removing its data");
        self.resume();
    }

    fn try_call(&self, path: &str, body: &Value) -> Option<Value> {
        let mut reply = send(self.client, "POST", path, &[], &body.to_string()).ok()?;
        let body = String::from_utf8(reply.rest().ok()?).ok()?;
        (reply.status == 200).then(|| serde_json::from_str(&body).expect("JSON"))
    }

    fn call(&self, path: &str, body: &Value) -> Value {
        self.try_call(path, body).unwrap_or_else(|| panic!("{path} {body} was refused"))
    }

    /// Writes a worker's record, and answers with the revision.
    ///
    /// # Panics
    /// If it is refused.
    pub fn register(&self, id: &str, record: &Value) -> i64 {
        let put =
            json!({"key": base64(&format!("{PREFIX}{id}")), "value": base64(&record.to_string())});
        revision(&self.call("/v3/kv/put", &put))
    }

    /// A worker's record, and its lease.
    ///
    /// # Panics
    /// If it is no JSON, or etcd does not answer.
    #[must_use]
    pub fn record(&self, id: &str) -> Option<(Value, String)> {
        self.found(&format!("{PREFIX}{id}"))
    }

    fn found(&self, key: &str) -> Option<(Value, String)> {
        let answer = self.call("/v3/kv/range", &json!({"key": base64(key)}));
        let row = answer["kvs"].get(0)?;
        let value = from_base64(row["value"].as_str().expect("a value"));
        let lease = row["lease"].as_str().unwrap_or_default().to_owned();
        Some((serde_json::from_slice(&value).expect("JSON"), lease))
    }

    /// The value of any key.
    ///
    /// # Panics
    /// If it is no JSON, or etcd does not answer.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<Value> {
        self.found(key).map(|(value, _lease)| value)
    }

    /// Writes any key.
    ///
    /// # Panics
    /// If it is refused.
    pub fn put(&self, key: &str, value: &Value) {
        let put = json!({"key": base64(key), "value": base64(&value.to_string())});
        self.call("/v3/kv/put", &put);
    }

    /// Ends a lease, and the keys with it.
    ///
    /// # Panics
    /// If it is refused.
    pub fn revoke(&self, lease: &str) {
        self.call("/v3/lease/revoke", &json!({"ID": lease}));
    }

    /// Removes a worker's record.
    ///
    /// # Panics
    /// If it is refused.
    pub fn remove(&self, id: &str) {
        self.call("/v3/kv/deleterange", &json!({"key": base64(&format!("{PREFIX}{id}"))}));
    }

    /// Its revision.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn revision(&self) -> i64 {
        revision(&self.call("/v3/kv/range", &range()))
    }

    /// Forgets what was before `revision`.
    ///
    /// # Panics
    /// If it is refused.
    pub fn compact(&self, revision: i64) {
        let body = json!({"revision": revision.to_string(), "physical": true});
        self.call("/v3/kv/compaction", &body);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _may_be_gone = child.kill();
            let _killed = child.wait();
        }
    }
}

/// The record of a worker for the model `m`.
#[must_use]
pub fn record(worker: &super::Worker) -> Value {
    let id = worker.address().to_string();
    json!({"worker_id": id, "url": worker.url(), "model_name": "m", "engine": "vllm"})
}

fn range() -> Value {
    json!({"key": base64("x")})
}

fn revision(answer: &Value) -> i64 {
    answer["header"]["revision"].as_str().and_then(|text| text.parse().ok()).expect("a revision")
}

/// An address that nobody listens on.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address")
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn from_base64(text: &str) -> Vec<u8> {
    let (mut out, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte)) {
        bits = bits << 6 | u32::try_from(digit).expect("less than 64");
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 255).expect("a byte"));
        }
    }
    out
}

fn base64(text: &str) -> String {
    let mut out = String::new();
    for bytes in text.as_bytes().chunks(3) {
        let bits = bytes.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - bytes.len()));
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 63;
            out.push(if digit <= bytes.len() { char::from(DIGITS[index as usize]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded() {
        for (text, wanted) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(text), wanted);
            assert_eq!(from_base64(wanted), text.as_bytes());
        }
    }
}
