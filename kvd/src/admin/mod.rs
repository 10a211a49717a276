//! The operators' door: HTTP on a Unix socket (mode 0600), and health and metrics on an optional
//! TCP address. One thread of its own runs it on tokio; engines never wait for it.
//!
//! `serve` accepts and bounds connections, `routes` says what is served where, and each answer has
//! a file. Reading the store happens on a small pool of blocking threads, in slices, so that a
//! store that is stuck is seen by `/healthz` instead of silencing it.

mod answer;
mod devices;
mod drain;
mod entries;
mod health;
mod ls;
mod metrics;
mod prefetch;
mod quarantine;
mod routes;
mod serve;
pub mod snapshot;
mod stats;
mod top;
mod why;

#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::config::Settings;
use crate::daemon::Daemon;
use crate::listen::Claim;

/// Permissions of the admin socket: its owner only. It can release quarantined memory.
const SOCKET_MODE: u32 = 0o600;
/// Threads that read the store for the admin interface.
const READERS_MAX: usize = 4;
/// How long the end of the daemon waits for a reader.
const READERS_PATIENCE: Duration = Duration::from_secs(1);

/// The running admin interface.
#[derive(Debug)]
pub struct Admin {
    thread: JoinHandle<()>,
    stop: watch::Sender<bool>,
    sockets: Sockets,
}

/// Where operators and their tools connect.
#[derive(Debug)]
pub struct Sockets {
    /// The admin socket.
    pub admin: Claim,
    /// Health and metrics by TCP.
    pub metrics: Option<TcpListener>,
}

impl Sockets {
    /// Claims the admin socket and binds the TCP address if there is one, but for what is at hand already: what was handed
    /// over and is what `settings` ask for.
    ///
    /// # Errors
    /// The socket belongs to somebody else, or the address can't be bound.
    pub fn open(
        settings: &Settings,
        admin: Option<Claim>,
        metrics: Option<TcpListener>,
    ) -> io::Result<Self> {
        let admin = match admin.filter(|claim| claim.path() == settings.admin_socket) {
            Some(claim) => claim,
            None => {
                Claim::new(&settings.admin_socket, SOCKET_MODE, None).map_err(io::Error::other)?
            }
        };
        let is_wanted = |listener: &TcpListener| {
            listener.local_addr().is_ok_and(|bound| Some(bound) == settings.metrics_listen)
        };
        let metrics = match metrics.filter(is_wanted) {
            Some(listener) => Some(listener),
            None => settings.metrics_listen.map(bind).transpose()?,
        };
        Ok(Self { admin, metrics })
    }
}

impl Admin {
    /// Serves these sockets.
    ///
    /// # Errors
    /// The thread can't start.
    pub fn start(daemon: Arc<Daemon>, sockets: Sockets) -> io::Result<Self> {
        let tcp = sockets.metrics.as_ref().map(TcpListener::try_clone).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(READERS_MAX)
            .thread_name("kvd-admin-read")
            .build()?;
        let unix = UnixListener::from(sockets.admin.as_fd().try_clone_to_owned()?);
        let (stop, stopped) = watch::channel(false);
        let thread = Builder::new().name("kvd-admin".into()).spawn(move || {
            run(runtime, daemon, unix, tcp, stopped);
        })?;
        Ok(Self { thread, stop, sockets })
    }

    /// Its sockets.
    #[must_use]
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Finishes the requests in flight, removes the socket (but for one that is handed over) and joins the thread.
    pub fn stop(self) {
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the admin thread panicked");
        }
    }
}

fn bind(address: std::net::SocketAddr) -> io::Result<TcpListener> {
    let refused = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("--metrics-listen {address}: {error}; choose another address"),
        )
    };
    let listener = TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn run(
    runtime: Runtime,
    daemon: Arc<Daemon>,
    unix: UnixListener,
    tcp: Option<TcpListener>,
    stopped: watch::Receiver<bool>,
) {
    let served: io::Result<()> = runtime.block_on(async {
        let unix = tokio::net::UnixListener::from_std(unix)?;
        let on_unix = serve::run(unix, routes::all(Arc::clone(&daemon)), stopped.clone());
        match tcp {
            None => on_unix.await,
            Some(tcp) => {
                let tcp = tokio::net::TcpListener::from_std(tcp)?;
                let on_tcp = serve::run(tcp, routes::public(daemon), stopped);
                tokio::join!(on_unix, on_tcp);
            }
        }
        Ok(())
    });
    if let Err(error) = served {
        tracing::error!(%error, "the admin interface could not be served");
    }
    runtime.shutdown_timeout(READERS_PATIENCE);
}
