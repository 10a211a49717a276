//! Accepting connections with everything bounded: how many at once, how large and how slow a head may be, how
//! long a silent peer is believed to be there.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::phase::{self, Phase};

/// Connections at once; one more waits in the kernel's queue.
const CONNECTIONS_MAX: usize = 16_384;
/// A request's head must arrive within this time; an idle connection is closed after it.
const HEAD_DEADLINE: Duration = Duration::from_secs(60);
/// Longest head, and most headers in it.
const HEAD_BYTES_MAX: usize = 256 << 10;
const HEADERS_MAX: usize = 128;
/// A client that is gone without a word is noticed after about this long, whether it owes us or we it.
const SILENCE_S: u32 = 15;
const PROBES: u32 = 3;
/// Errors of accept, like too many open files, pass; they must not be met as fast as the processor allows.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long answers may take to be cut off.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves `routes` until the process is closing, then lets answers in flight go on until it is ending.
pub async fn run(listener: TcpListener, routes: Router, mut phase: phase::Current) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let for_connections = phase.clone();
    loop {
        let next = async {
            let permit = Arc::clone(&free).acquire_owned().await;
            (listener.accept().await, permit)
        };
        tokio::select! {
            (accepted, permit) = next => match accepted {
                Ok((stream, _peer)) => {
                    let served = serve(stream, routes.clone(), for_connections.clone());
                    connections.spawn(async move {
                        served.await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = phase::reached(&mut phase, Phase::Closing) => break,
        }
    }
    drop(listener);
    let mut all_left = Box::pin(async move { while connections.join_next().await.is_some() {} });
    tokio::select! {
        () = &mut all_left => return,
        () = phase::reached(&mut phase, Phase::Ending) => {}
    }
    // Dropped after that, and with it whatever is left.
    if timeout(FAREWELL, all_left).await.is_err() {
        tracing::warn!("connections were cut that did not take the end of their answers");
    }
}

async fn serve(stream: TcpStream, routes: Router, mut phase: phase::Current) {
    if let Err(error) = tune(&stream) {
        tracing::debug!(%error, "a connection could not be tuned");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        // Events are small: to copy them costs less than to list their parts.
        .writev(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = phase::reached(&mut phase, Phase::Closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Chunks go out at once, and a peer that has vanished is noticed.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &SILENCE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &SILENCE_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &PROBES)?;
    let unacknowledged_ms = SILENCE_S * (PROBES + 1) * 1_000;
    setsockopt(stream, sockopt::TcpUserTimeout, &unacknowledged_ms)?;
    Ok(())
}
