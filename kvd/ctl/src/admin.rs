//! Questions to the daemon's admin socket: one HTTP request per connection.

use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use kvd_client::{Client, Options};
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::deadline::DEADLINE;

/// Longest answer that is read; a full page of rows has a few MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Admin {
    socket: PathBuf,
    runtime: Runtime,
}

/// An admin socket answers in milliseconds. After this it is looked at whether it is one, and waited on.
const SUSPICION: Duration = Duration::from_millis(500);

/// The step that fails where no daemon is, and the socket.
#[derive(Debug)]
pub(crate) struct Connecting(pub(crate) PathBuf);

impl fmt::Display for Connecting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("connecting")
    }
}

/// What listens is a daemon, at its other socket.
#[derive(Debug)]
pub(crate) struct EngineSocket;

impl fmt::Display for EngineSocket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("this is the socket that engines use, not the admin socket")
    }
}

impl std::error::Error for EngineSocket {}

/// How the daemon says that it will not answer.
#[derive(Debug, serde::Deserialize)]
struct Refusal {
    error: Reason,
}

#[derive(Debug, serde::Deserialize)]
struct Reason {
    code: String,
    message: String,
}

impl Admin {
    pub(crate) fn new(socket: PathBuf) -> Result<Self> {
        Ok(Self { socket, runtime: Builder::new_current_thread().enable_all().build()? })
    }

    /// Asks for `path` and reads the JSON answer.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T> {
        self.ask(&Method::GET, path, query)
    }

    /// Has something done and reads the JSON answer.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T> {
        self.ask(&Method::POST, path, query)
    }

    /// Asks for `path` and hands on its answer piece by piece, however long it is.
    pub(crate) fn stream(
        &self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.runtime.block_on(async {
            let stream = timeout(DEADLINE, UnixStream::connect(&self.socket)).await?;
            let stream = stream.with_context(|| Connecting(self.socket.clone()))?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            let request = Request::builder().uri(path).header("host", "kvd");
            let request = request.body(Empty::<Bytes>::new())?;
            let exchange = async move {
                let answer = timeout(DEADLINE, sender.send_request(request)).await??;
                let (status, mut body) = (answer.status(), answer.into_body());
                anyhow::ensure!(status == StatusCode::OK, "the daemon answered {status}");
                while let Some(frame) = timeout(DEADLINE, body.frame()).await? {
                    if let Some(piece) = frame?.data_ref() {
                        take(piece)?;
                    }
                }
                anyhow::Ok(())
            };
            let (_, taken) = tokio::join!(connection, exchange);
            taken
        })
    }

    /// Lets time pass between two questions.
    pub(crate) fn pause(&self, length: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(length).await });
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T> {
        let target = target(path, query);
        let answer = self
            .runtime
            .block_on(async { timeout(DEADLINE, self.sceptical(method, &target)).await })
            .with_context(|| format!("no answer from {}", self.socket.display()))?;
        let (status, body) =
            answer.with_context(|| format!("admin socket {}", self.socket.display()))?;
        if status != StatusCode::OK {
            match serde_json::from_slice::<Refusal>(&body) {
                Ok(Refusal { error }) => bail!("{} ({})", error.message, error.code),
                Err(_) => bail!("the daemon answered {status}"),
            }
        }
        serde_json::from_slice(&body).with_context(|| format!("answer to {path}"))
    }

    /// The exchange; where it fails or takes long, the reason may be that this is the engines' socket, which takes HTTP
    /// for the beginning of a long message.
    async fn sceptical(&self, method: &Method, target: &str) -> Result<(StatusCode, Bytes)> {
        let mut exchange = pin!(self.exchange(method, target));
        match timeout(SUSPICION, &mut exchange).await {
            Ok(Err(error)) if !error.is::<Connecting>() && self.is_for_engines() => {
                Err(EngineSocket.into())
            }
            Ok(outcome) => outcome,
            Err(_) if self.is_for_engines() => Err(EngineSocket.into()),
            Err(_) => exchange.await,
        }
    }

    fn is_for_engines(&self) -> bool {
        let mut options = Options::new(&self.socket, "kvdctl");
        options.deadline = SUSPICION;
        options.shares_arena = false;
        Client::new(options).attach().is_ok()
    }

    async fn exchange(&self, method: &Method, target: &str) -> Result<(StatusCode, Bytes)> {
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.with_context(|| Connecting(self.socket.clone()))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::builder().method(method).uri(target).header("host", "kvd");
        let request = request.body(Empty::<Bytes>::new())?;
        let exchange = async move {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(anyhow::Error::from_boxed)?;
            anyhow::Ok((status, body.to_bytes()))
        };
        // The connection is driven until the exchange, which owns the sender, is over. Its own
        // errors are the exchange's, too.
        let (_, answer) = tokio::join!(connection, exchange);
        answer
    }
}

fn target(path: &str, query: &[(&str, &str)]) -> String {
    let mut target = path.to_owned();
    for (index, (name, value)) in query.iter().enumerate() {
        target.push(if index == 0 { '?' } else { '&' });
        target.push_str(name);
        target.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    target.push(char::from(byte));
                }
                _ => target.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_carry_any_text() {
        assert_eq!(target("/v1/top", &[]), "/v1/top");
        let query = [("model", "org/M 1&b=ü"), ("limit", "5")];
        assert_eq!(target("/v1/ls", &query), "/v1/ls?model=org%2FM%201%26b%3D%C3%BC&limit=5");
    }
}
