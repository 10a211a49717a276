//! `GET /v1/events`: where events are published. `GET /v1/events/snapshot?model=&compat_key=&tier=`: everything that can
//! be read, as a stream of msgpack maps (`docs/events.md`). The snapshot is also served by TCP, on a thread of its own,
//! because routers are on other hosts; from there it takes a token. So do their hints ([`super::prefetch`]).

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use kvd_proto::events::CacheTier;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::answer::{Refused, Shared};
use super::{READERS_MAX, READERS_PATIENCE, routes, serve};
use crate::daemon::Daemon;
use crate::events::Endpoints;
use crate::events::keys::secret_text;
use crate::events::snapshot::{Snapshot, Wanted};

/// How long the address is waited for, at a time.
const RETRY: Duration = Duration::from_millis(50);
/// Least characters of a token.
const TOKEN_LEN_MIN: usize = 16;

/// Whose events, of which life, and where.
#[derive(Debug, Serialize)]
pub(super) struct Where {
    host_id: String,
    epoch: u64,
    /// Absent until the sockets are there.
    #[serde(flatten)]
    endpoints: Option<Endpoints>,
    snapshot_address: Option<SocketAddr>,
    /// The last message.
    seq: u64,
}

/// Answers where events are.
pub(super) async fn places(State(daemon): State<Shared>) -> Result<Json<Where>, Refused> {
    let Some(settings) = &daemon.settings.events else {
        return Err(Refused::not_found("events are not published: there is no --events-listen"));
    };
    Ok(Json(Where {
        host_id: settings.host_id.clone(),
        epoch: daemon.events.epoch,
        endpoints: daemon.events.endpoints.get().cloned(),
        snapshot_address: daemon.snapshot_at.get().copied(),
        seq: daemon.events.published.load(Ordering::Acquire),
    }))
}

/// What of everything is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    model: Option<String>,
    compat_key: Option<String>,
    tier: Option<String>,
}

/// Answers with everything.
pub(super) async fn answer(
    State(daemon): State<Shared>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Refused> {
    if daemon.settings.events.is_none() {
        return Err(Refused::not_found("events are not published: there is no --events-listen"));
    }
    let Query(Asked { model, compat_key, tier }) = asked?;
    let tier = tier.map(|tier| {
        let tier = CacheTier::parse(&tier);
        let known = tier.filter(|tier| matches!(tier, CacheTier::L2 | CacheTier::L3));
        known.ok_or_else(|| Refused::bad_request("tier is l2 or l3"))
    });
    let wanted = Wanted { model, compat_key, tier: tier.transpose()? };
    // The next piece is made when the one before is on its way: a reader that is slow holds one piece.
    let pieces =
        stream::unfold((Snapshot::new(wanted), daemon), |(mut snapshot, daemon)| async move {
            let reading = tokio::task::spawn_blocking(move || {
                let piece = snapshot.next_piece(&daemon)?;
                Some((Ok::<_, Infallible>(piece), (snapshot, daemon)))
            });
            reading.await.ok().flatten()
        });
    Ok(([(CONTENT_TYPE, "application/msgpack")], Body::from_stream(pieces)).into_response())
}

/// Serves snapshots by TCP, if that is wanted. If `patience` is not over, an address that is taken is waited for.
///
/// # Errors
/// The address can't be bound, the token can't be used, or the thread can't start.
pub fn start(daemon: &Arc<Daemon>, patience: Duration) -> io::Result<Option<JoinHandle<()>>> {
    let settings = daemon.settings.events.as_ref();
    let Some((settings, address)) =
        settings.and_then(|settings| Some((settings, settings.snapshot_listen?)))
    else {
        return Ok(None);
    };
    let token = settings.token_file.as_deref().map(secret_text).transpose();
    let token = token.map_err(|why| io::Error::other(format!("--events-token-file {why}")))?;
    let token: Option<Arc<str>> = token.map(|token| token.trim().into());
    if token.as_ref().is_some_and(|token| token.len() < TOKEN_LEN_MIN) {
        let why = format!("--events-token-file: a token has at least {TOKEN_LEN_MIN} characters");
        return Err(io::Error::other(why));
    }
    let bound = if patience.is_zero() { Some(bind(address)?) } else { None };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(READERS_MAX)
        .thread_name("kvd-snap-read")
        .build()?;
    let daemon = Arc::clone(daemon);
    let thread = Builder::new().name("kvd-snapshot".into()).spawn(move || {
        let until = Instant::now() + patience;
        let Some(listener) = bound.or_else(|| bind_when_free(&daemon, address, until)) else {
            return;
        };
        let served = runtime.block_on(run(&daemon, listener, token));
        if let Err(error) = served {
            tracing::error!(%error, "snapshots are not served");
        }
        runtime.shutdown_timeout(READERS_PATIENCE);
    })?;
    Ok(Some(thread))
}

async fn run(
    daemon: &Arc<Daemon>,
    listener: TcpListener,
    token: Option<Arc<str>>,
) -> io::Result<()> {
    let _first = daemon.snapshot_at.set(listener.local_addr()?);
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (stop, stopped) = watch::channel(false);
    let router = routes::for_routers(Arc::clone(daemon), token);
    let until_stopped = async {
        while !daemon.stop.is_raised() {
            tokio::time::sleep(RETRY).await;
        }
        stop.send_replace(true);
    };
    tokio::join!(serve::run(listener, router, stopped), until_stopped);
    Ok(())
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let refused = |error: io::Error| {
        let why = format!("--events-snapshot-listen {address}: {error}; choose another address");
        io::Error::new(error.kind(), why)
    };
    let listener = TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn bind_when_free(daemon: &Daemon, address: SocketAddr, until: Instant) -> Option<TcpListener> {
    loop {
        match bind(address) {
            Ok(listener) => return Some(listener),
            Err(error) if Instant::now() >= until => {
                tracing::error!(%error, "snapshots are not served");
                return None;
            }
            Err(_taken) => {}
        }
        if daemon.stop.wait(RETRY) {
            return None;
        }
    }
}

/// Lets requests with the token pass.
pub(super) async fn admit(token: Arc<str>, request: Request, next: Next) -> Response {
    let given = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
    let given = given.and_then(|value| value.strip_prefix(b"Bearer "));
    if given.is_some_and(|given| is_same(given, token.as_bytes())) {
        next.run(request).await
    } else {
        Refused::unauthorized().into_response()
    }
}

/// Takes as long for every text of the same length.
fn is_same(given: &[u8], wanted: &[u8]) -> bool {
    let differences = given.iter().zip(wanted).fold(0, |all, (one, other)| all | (one ^ other));
    given.len() == wanted.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn only_the_whole_token_is_the_token() {
        assert!(is_same(b"secret", b"secret"));
        for other in [&b""[..], b"secre", b"secrets", b"secreT"] {
            assert!(!is_same(other, b"secret"));
        }
    }
}
