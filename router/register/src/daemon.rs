//! Asking this host's cache daemon for the name under which it publishes.

use std::convert::Infallible;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::client::conn::http1::handshake;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// It is on this host, and answers from memory.
const PATIENCE: Duration = Duration::from_secs(1);
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The daemon's `host_id`.
///
/// # Errors
/// Nobody listens at `socket`, we may not ask, it publishes nothing, or does not answer in time.
pub(crate) async fn host_id(socket: &Path) -> Result<String, String> {
    let asked = timeout(PATIENCE, ask(socket)).await;
    let asked =
        asked.unwrap_or_else(|_elapsed| Err(format!("no answer within {PATIENCE:?}").into()));
    let body = asked.map_err(|error| format!("{}: {error}", socket.display()))?;
    let said = serde_json::from_slice::<Value>(&body).ok();
    let id = said.as_ref().and_then(|said| said.get("host_id")?.as_str());
    id.filter(|id| !id.is_empty()).map(str::to_owned).ok_or("it says no host_id".to_owned())
}

async fn ask(socket: &Path) -> Result<Bytes, Box<dyn Error + Send + Sync>> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let question = Request::get("/v1/events").header(HOST, "kvd").body(Empty::<Bytes>::new())?;
    let answered = async {
        let answer = sender.send_request(question).await?;
        if !answer.status().is_success() {
            return Err(format!("status {}", answer.status()).into());
        }
        Ok(Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await?.to_bytes())
    };
    let carried = async {
        // How it ended is seen by who waits for the answer.
        drop(connection.await);
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        answer = answered => answer,
        never = carried => match never {},
    }
}
