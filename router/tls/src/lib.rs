//! The way to engines: plain for `http://`, encrypted for `https://`, and then only to who has a certificate that is trusted.

#![forbid(unsafe_code)]

mod trust;

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

pub use self::trust::Trust;

/// Connects, and greets whoever is encrypted, within a time.
#[derive(Debug, Clone)]
pub struct Connector {
    inner: HttpsConnector<HttpConnector>,
    patience: Duration,
}

type Failed = Box<dyn Error + Send + Sync>;
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, Failed>> + Send>>;

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = Failed;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, patience) = (self.inner.call(uri), self.patience);
        // The connector's own limit ends with the connection: one that accepts and says nothing would be waited for.
        let late = move || {
            io::Error::new(io::ErrorKind::TimedOut, format!("no greeting within {patience:?}"))
        };
        Box::pin(async move {
            timeout(patience, connecting).await.unwrap_or_else(|_elapsed| Err(late().into()))
        })
    }
}
