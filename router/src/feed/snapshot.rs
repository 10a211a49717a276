//! Everything that a daemon holds, by HTTP: read here, piece by piece, and handed to the thread that has the view.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::header::AUTHORIZATION;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::{Chunked, Command, FeedId};

/// A daemon that sends nothing for so long is given up.
const SILENCE: Duration = Duration::from_secs(10);
/// A snapshot takes at most so long.
const PATIENCE: Duration = Duration::from_secs(300);

/// Tells one reading from an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attempt(pub(super) u64);

/// Bytes, nothing for the end, or why there is none.
pub(super) type Piece = Chunked;

/// Reads the snapshot at `url` after `pause`, and hands it on. Ends early if nobody takes it any more.
pub(super) async fn read(
    (url, token): (String, Option<Arc<str>>),
    pause: Duration,
    (feed, attempt): (FeedId, Attempt),
    thread: mpsc::WeakSender<Command>,
) {
    sleep(pause).await;
    let reading = pieces(&url, token.as_deref(), |piece| {
        let thread = thread.upgrade();
        async move {
            let thread = thread.ok_or_else(|| "the router ends".to_owned())?;
            let command = Command::Snapshot(feed, attempt, Ok(Some(piece)));
            thread.send(command).await.map_err(|_closed| "the router ends".to_owned())
        }
    });
    let end = match timeout(PATIENCE, reading).await {
        Ok(Ok(())) => Ok(None),
        Ok(Err(why)) => Err(why),
        Err(_elapsed) => Err(format!("not whole within {PATIENCE:?}")),
    };
    if let Some(thread) = thread.upgrade() {
        // Closed only at the end of the router.
        drop(thread.send(Command::Snapshot(feed, attempt, end)).await);
    }
}

async fn pieces<F>(
    url: &str,
    token: Option<&str>,
    mut take: impl FnMut(Bytes) -> F,
) -> Result<(), String>
where
    F: Future<Output = Result<(), String>>,
{
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::get(url);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
    let answer = timeout(SILENCE, client.request(request)).await;
    let answer = answer.map_err(|_elapsed| "no answer")?.map_err(|error| error.to_string())?;
    if !answer.status().is_success() {
        return Err(format!("status {}", answer.status()));
    }
    let mut body = answer.into_body();
    loop {
        let frame = timeout(SILENCE, body.frame()).await.map_err(|_elapsed| "it stalled")?;
        let Some(frame) = frame else { return Ok(()) };
        let frame = frame.map_err(|error| error.to_string())?;
        if let Ok(data) = frame.into_data() {
            take(data).await?;
        }
    }
}
