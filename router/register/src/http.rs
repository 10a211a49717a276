//! Asking an engine over HTTP: each question has a deadline, each answer a size.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use router_tls::{Connector, Trust};
use serde_json::Value;
use tokio::time::timeout;

/// An engine that computes may answer late; one that hangs never does.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Largest answer: `/metrics` of many ranks.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Nobody listens.
    Refused,
    /// It is there and says no.
    Status(StatusCode),
    /// Anything else.
    Other(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => out.write_str("nobody listens"),
            Self::Status(status) => write!(out, "status {status}"),
            Self::Other(reason) => out.write_str(reason),
        }
    }
}

/// Asks one engine.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: Client<Connector, Full<Bytes>>,
    authorization: Option<HeaderValue>,
}

impl Http {
    /// `key`: what the engine wants to see, if anything; nothing if it can't stand in a header.
    pub(crate) fn new(key: Option<&str>, trust: &Trust) -> Option<Self> {
        let connector = trust.connector(HttpConnector::new(), CONNECT_PATIENCE);
        // A connection that is kept would be found closed when it is needed.
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        let authorization = match key {
            None => None,
            Some(key) => {
                let mut value = HeaderValue::try_from(format!("Bearer {key}")).ok()?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Some(Self { client, authorization })
    }

    /// The body of a good answer.
    pub(crate) async fn get(&self, url: &str) -> Result<Bytes, Failed> {
        self.ask(Method::GET, url, Bytes::new()).await
    }

    /// The same as text.
    pub(crate) async fn text(&self, url: &str) -> Result<String, Failed> {
        Ok(String::from_utf8_lossy(&self.get(url).await?).into_owned())
    }

    /// The same as JSON.
    pub(crate) async fn json(&self, url: &str) -> Result<Value, Failed> {
        parsed(&self.get(url).await?)
    }

    /// Sends JSON and gets some.
    pub(crate) async fn post(&self, url: &str, body: &Value) -> Result<Value, Failed> {
        parsed(&self.ask(Method::POST, url, body.to_string().into()).await?)
    }

    async fn ask(&self, method: Method, url: &str, body: Bytes) -> Result<Bytes, Failed> {
        let mut request = Request::builder().method(method).uri(url);
        request = request.header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(body)).map_err(|error| other(&error))?;
        let answer = async {
            let answer = self.client.request(request).await.map_err(|error| failed(&error))?;
            let status = answer.status();
            if !status.is_success() {
                return Err(Failed::Status(status));
            }
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok(body.map_err(|error| other(error.as_ref()))?.to_bytes())
        };
        let late = || Failed::Other(format!("no answer within {ANSWER_PATIENCE:?}"));
        timeout(ANSWER_PATIENCE, answer).await.map_err(|_elapsed| late())?
    }
}

fn parsed(body: &[u8]) -> Result<Value, Failed> {
    serde_json::from_slice(body).map_err(|error| other(&error))
}

fn other(error: &(dyn Error + 'static)) -> Failed {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    Failed::Other(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

fn failed(error: &(dyn Error + 'static)) -> Failed {
    let is_refusal = |error: &(dyn Error + 'static)| {
        let io = error.downcast_ref::<io::Error>();
        io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused)
    };
    let mut causes = std::iter::successors(Some(error), |error| (*error).source());
    if causes.any(is_refusal) { Failed::Refused } else { other(error) }
}
