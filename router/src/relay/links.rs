//! The way to workers: connections that wait for the next request, and new ones.

use std::collections::BTreeMap;
use std::error::Error;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::header::{HOST, HeaderValue};
use hyper::http::response;
use hyper::rt::{Read, Write};
use hyper::{Request, Uri};
use router_tls::Connector;
use tokio::time::{Instant, interval};
use tower_service::Service;

use super::link::{Flow, Link};
use super::pieces::Pieces;
use crate::phase::{self, Phase};

/// Connections to one worker that wait for the next request, and how long: less than the 5 s after which engines
/// close them, so that no request meets a connection that is being closed.
const IDLE_MAX: usize = 256;
const IDLE_PATIENCE: Duration = Duration::from_secs(4);

/// What a connection is made on.
pub(super) type Stream = <Connector as Service<Uri>>::Response;

/// Connections to workers.
#[derive(Debug)]
pub(super) struct Links {
    connector: Connector,
    idle: Arc<Idle<Stream>>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    /// Nothing was sent.
    #[error("no connection")]
    Unreached(#[source] Box<dyn Error + Send + Sync>),
    /// Something may have been.
    #[error("no answer")]
    Unanswered(#[source] hyper::Error),
}

impl Links {
    pub(super) fn new(connector: Connector) -> Self {
        Self { connector, idle: Arc::default() }
    }

    /// Sends a request with an absolute URI, and waits for the head of the answer.
    ///
    /// # Errors
    /// None came.
    pub(super) async fn ask(
        &self,
        mut request: Request<Pieces>,
    ) -> Result<(response::Parts, Flow<Stream>), Failed> {
        let uri = std::mem::take(request.uri_mut());
        *request.uri_mut() = path_of(&uri);
        if let Ok(host) = HeaderValue::try_from(host_of(&uri)) {
            request.headers_mut().insert(HOST, host);
        }
        let to = uri.scheme_str().zip(uri.authority());
        let to = to.map(|(scheme, authority)| format!("{scheme}://{authority}"));
        let place = Place { to: to.unwrap_or_default(), idle: Arc::clone(&self.idle) };
        loop {
            let kept = place.take();
            let is_kept = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => self.connect(uri.clone()).await?,
            };
            let mut error = match link.ask(request).await {
                Ok(answer) => {
                    let (head, body) = answer.into_parts();
                    return Ok((head, Flow::new(body, link, place)));
                }
                Err(error) => error,
            };
            // It was closed while it waited.
            match error.take_message().filter(|_| is_kept) {
                Some(unsent) => request = unsent,
                None => return Err(Failed::Unanswered(error.into_error())),
            }
        }
    }

    async fn connect(&self, uri: Uri) -> Result<Link<Stream>, Failed> {
        let mut connector = self.connector.clone();
        poll_fn(|context| connector.poll_ready(context)).await.map_err(Failed::Unreached)?;
        let stream = connector.call(uri).await.map_err(Failed::Unreached)?;
        Link::greet(stream).await.map_err(|error| Failed::Unreached(error.into()))
    }

    /// Closes connections that nobody has asked for, until the process is closing.
    pub(super) fn tend(&self, mut phase: phase::Current) -> impl Future<Output = ()> + use<> {
        let idle = Arc::clone(&self.idle);
        async move {
            let mut ticks = interval(IDLE_PATIENCE);
            loop {
                tokio::select! {
                    _ = ticks.tick() => idle.forget_old(Instant::now()),
                    () = phase::reached(&mut phase, Phase::Closing) => return,
                }
            }
        }
    }
}

fn path_of(uri: &Uri) -> Uri {
    uri.path_and_query().cloned().map(Uri::from).unwrap_or_default()
}

/// As workers are told whom they are taken for: without a port that goes without saying.
fn host_of(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    match uri.port_u16().filter(|port| *port != usual) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Connections that wait.
#[derive(Debug)]
struct Idle<S: Read + Write + Unpin>(Mutex<Waiting<S>>);

/// By where they lead, and since when.
type Waiting<S> = BTreeMap<String, Vec<(Instant, Link<S>)>>;

impl<S: Read + Write + Unpin> Default for Idle<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S: Read + Write + Unpin> Idle<S> {
    fn links(&self) -> MutexGuard<'_, Waiting<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_old(&self, now: Instant) {
        self.links().retain(|_, links| {
            links.retain(|(since, _)| now.duration_since(*since) < IDLE_PATIENCE);
            !links.is_empty()
        });
    }
}

/// Where connections to one worker wait.
#[derive(Debug)]
pub(super) struct Place<S: Read + Write + Unpin> {
    to: String,
    idle: Arc<Idle<S>>,
}

impl<S: Read + Write + Unpin> Place<S> {
    /// The one that waits for the shortest time, if it is still good.
    fn take(&self) -> Option<Link<S>> {
        loop {
            let (since, mut link) = self.idle.links().get_mut(&self.to)?.pop()?;
            if since.elapsed() < IDLE_PATIENCE && link.is_free() {
                return Some(link);
            }
        }
    }

    /// Keeps `link` for the next request.
    pub(super) fn put(&self, link: Link<S>) {
        let mut all = self.idle.links();
        let links = all.entry(self.to.clone()).or_default();
        if links.len() < IDLE_MAX {
            links.push((Instant::now(), link));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use bytes::Bytes;
    use hyper::body::Body as _;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::advance;

    use super::*;

    type Local = TokioIo<DuplexStream>;

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    const END: &[u8] = b"0\r\n\r\n";

    /// How often a task was called.
    #[derive(Debug, Default)]
    struct Calls(AtomicUsize);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An answer that has begun.
    struct Begun {
        flow: Flow<Local>,
        worker: DuplexStream,
        idle: Arc<Idle<Local>>,
        calls: Arc<Calls>,
    }

    fn place(idle: &Arc<Idle<Local>>) -> Place<Local> {
        Place { to: "http://w".to_owned(), idle: Arc::clone(idle) }
    }

    async fn begun() -> Begun {
        let (ours, mut worker) = duplex(1 << 10);
        let mut link = Link::greet(TokioIo::new(ours)).await.unwrap();
        let request = Request::post("/").header(HOST, "w").body(Pieces::from(vec![])).unwrap();
        let answers = async {
            let mut request = [0; 256];
            assert!(worker.read(&mut request).await.unwrap() > 0);
            worker.write_all(HEAD).await.unwrap();
        };
        let (answer, ()) = tokio::join!(link.ask(request), answers);
        let idle = Arc::<Idle<Local>>::default();
        let flow = Flow::new(answer.unwrap().into_body(), link, place(&idle));
        Begun { flow, worker, idle, calls: Arc::default() }
    }

    impl Begun {
        /// What is there.
        fn look(&mut self) -> Poll<Option<Bytes>> {
            let waker = Waker::from(Arc::clone(&self.calls));
            let next = Pin::new(&mut self.flow).poll_frame(&mut Context::from_waker(&waker));
            next.map(|next| next.map(|frame| frame.unwrap().into_data().unwrap()))
        }

        fn calls(&self) -> usize {
            self.calls.0.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn an_event_calls_once_and_none_is_missed() {
        let mut begun = begun().await;
        assert!(begun.look().is_pending());
        for event in 1..100 {
            begun.worker.write_all(b"1\r\na\r\n").await.unwrap();
            assert_eq!(begun.calls(), event);
            assert_eq!(begun.look(), Poll::Ready(Some(Bytes::from_static(b"a"))));
            assert!(begun.look().is_pending());
            assert!(begun.look().is_pending());
            assert_eq!(begun.calls(), event, "what the task did itself does not call it");
        }
        // All that has come is there at once.
        begun.worker.write_all(b"1\r\nb\r\n1\r\nc\r\n").await.unwrap();
        for event in [b"b", b"c"] {
            assert_eq!(begun.look(), Poll::Ready(Some(Bytes::from_static(event))));
        }
        assert!(begun.look().is_pending());
        drop(begun.worker);
        assert_eq!(begun.calls.0.load(Ordering::Relaxed), 101, "the end as well");
        let end = Pin::new(&mut begun.flow).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(end, Poll::Ready(Some(Err(_)))), "{end:?}");
    }

    #[tokio::test]
    async fn a_connection_is_used_again_after_a_whole_answer_only() {
        for (last, is_kept) in [(END, true), (b"", false), (b"5\r\nab", false)] {
            let mut begun = begun().await;
            begun.worker.write_all(last).await.unwrap();
            if is_kept {
                assert_eq!(begun.look(), Poll::Ready(None));
            }
            let Begun { flow, mut worker, idle, .. } = begun;
            drop(flow);
            assert_eq!(place(&idle).take().is_some(), is_kept, "{last:?}");
            assert!(place(&idle).take().is_none(), "one has it at a time");
            assert_eq!(worker.read(&mut [0; 8]).await.unwrap(), 0, "whoever had it is gone");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_waited_for_long_or_was_closed_is_not_used() {
        let kept = async || {
            let mut begun = begun().await;
            begun.worker.write_all(END).await.unwrap();
            assert_eq!(begun.look(), Poll::Ready(None));
            drop(begun.flow);
            (begun.worker, begun.idle)
        };
        let (worker, idle) = kept().await;
        drop(worker);
        assert!(place(&idle).take().is_none());
        let (_worker, idle) = kept().await;
        advance(IDLE_PATIENCE).await;
        assert!(place(&idle).take().is_none());
        let (mut worker, idle) = kept().await;
        idle.forget_old(Instant::now());
        assert_eq!(idle.links().len(), 1);
        advance(IDLE_PATIENCE).await;
        idle.forget_old(Instant::now());
        assert_eq!(idle.links().len(), 0);
        assert_eq!(worker.read(&mut [0; 8]).await.unwrap(), 0, "it is closed");
    }
}
