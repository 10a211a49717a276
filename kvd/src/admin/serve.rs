//! Accepting HTTP connections with everything bounded: how many at once, how large and how slow a
//! request may be, how long a connection lives.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Connections of one listener at once; one more is closed at once.
const CONNECTIONS_MAX: usize = 32;
/// A request's head must arrive within this time; an idle connection is closed after it.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// Longest request head.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// A connection is closed after this long, so that one that reads nothing does not stay for ever.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(120);
/// How long requests in flight may take once the daemon ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves `router` on `listener` until `stopped` turns true.
pub(super) async fn run<L: Listener>(
    mut listener: L,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let for_connections = stopped.clone();
    loop {
        tokio::select! {
            (stream, _) = listener.accept() => {
                let Ok(permit) = Arc::clone(&free).try_acquire_owned() else {
                    tracing::warn!(limit = CONNECTIONS_MAX, "admin connection refused: too many");
                    continue;
                };
                let served = serve(stream, router.clone(), for_connections.clone());
                connections.spawn(async move {
                    served.await;
                    drop(permit);
                });
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
    }
    drop(listener);
    let all_left = async { while connections.join_next().await.is_some() {} };
    if timeout(FAREWELL, all_left).await.is_err() {
        connections.shutdown().await;
    }
}

async fn serve<S>(stream: S, router: Router, mut stopped: watch::Receiver<bool>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let whole = async {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    match timeout(CONNECTION_DEADLINE, whole).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an admin connection ended early"),
        Err(_elapsed) => tracing::debug!("an admin connection was open for too long"),
    }
}
