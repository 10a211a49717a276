//! A connection to a worker. It has no task of its own: whoever waits for the answer moves it on. So an event costs one turn
//! of one task, and what has come is there all at once.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper::{Request, Response};

use super::links::Place;
use super::pieces::Pieces;

/// A connection, and the way to ask something on it.
#[derive(Debug)]
pub(super) struct Link<S: Read + Write> {
    to: SendRequest<Pieces>,
    /// Nothing once it is over.
    connection: Option<Box<http1::Connection<S, Pieces>>>,
}

impl<S: Read + Write + Unpin> Link<S> {
    /// Speaks HTTP on `stream`.
    ///
    /// # Errors
    /// It can't.
    pub(super) async fn greet(stream: S) -> hyper::Result<Self> {
        let (to, connection) = http1::handshake(stream).await?;
        Ok(Self { to, connection: Some(Box::new(connection)) })
    }

    /// Sends `request` and waits for the head of the answer.
    ///
    /// # Errors
    /// None came. The request is given back if nothing of it was sent.
    pub(super) async fn ask(
        &mut self,
        request: Request<Pieces>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Pieces>>> {
        let mut answer = pin!(self.to.try_send_request(request));
        let connection = &mut self.connection;
        std::future::poll_fn(|context| {
            move_on(connection, context);
            answer.as_mut().poll(context)
        })
        .await
    }

    /// Whether it can be asked something now.
    pub(super) fn is_free(&mut self) -> bool {
        move_on(&mut self.connection, &mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.to.is_ready()
    }
}

/// Reads and writes what can be read and written. An error is told by the answer as well.
fn move_on<S: Read + Write + Unpin>(
    connection: &mut Option<Box<http1::Connection<S, Pieces>>>,
    context: &mut Context<'_>,
) {
    if let Some(open) = connection
        && Pin::new(open).poll(context).is_ready()
    {
        *connection = None;
    }
}

/// The body of an answer, which moves its connection on.
#[derive(Debug)]
pub(super) struct Flow<S: Read + Write + Unpin> {
    body: Incoming,
    /// Nothing once it was given back.
    link: Option<Link<S>>,
    /// Where it goes when it is free again.
    place: Place<S>,
    bell: Arc<Bell>,
    /// Rings it.
    waker: Waker,
}

impl<S: Read + Write + Unpin> Flow<S> {
    /// What follows a head that came by `link`.
    pub(super) fn new(body: Incoming, link: Link<S>, place: Place<S>) -> Self {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        Self { body, link: Some(link), place, bell, waker }
    }
}

impl<S: Read + Write + Unpin> Body for Flow<S> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        this.bell.task.register(context.waker());
        // Whoever asks for a frame for the first time calls the connection by it.
        for _ in 0..2 {
            if !this.bell.begin() {
                return Poll::Pending;
            }
            if let Some(link) = &mut this.link {
                move_on(&mut link.connection, &mut Context::from_waker(&this.waker));
            }
            // The connection is its only source, and it was looked at just now.
            let next = Pin::new(&mut this.body).poll_frame(&mut Context::from_waker(Waker::noop()));
            if next.is_ready() {
                this.bell.more();
                return next;
            }
            if this.bell.end() {
                return Poll::Pending;
            }
        }
        // The runtime wants others to have their turn.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: Read + Write + Unpin> Drop for Flow<S> {
    /// A connection on which nothing more comes is used again, any other one is closed.
    fn drop(&mut self) {
        if let Some(mut link) = self.link.take()
            && link.is_free()
        {
            self.place.put(link);
        }
    }
}

/// Calls the task that waits, unless it is looking anyway: what it does rings as well.
#[derive(Debug)]
struct Bell {
    task: AtomicWaker,
    state: AtomicU8,
}

/// All was seen, and nothing has come since.
const QUIET: u8 = 0;
const LOOKING: u8 = 1;
/// There may be something to see.
const RUNG: u8 = 2;

impl Default for Bell {
    fn default() -> Self {
        Self { task: AtomicWaker::new(), state: AtomicU8::new(RUNG) }
    }
}

impl Bell {
    /// The task looks, if there may be something to see.
    fn begin(&self) -> bool {
        let is_rung = self.state.load(Ordering::Acquire) != QUIET;
        if is_rung {
            self.state.store(LOOKING, Ordering::Release);
        }
        is_rung
    }

    /// There was something, and there may be more.
    fn more(&self) {
        self.state.store(RUNG, Ordering::Release);
    }

    /// There was nothing. False if that may have changed meanwhile.
    fn end(&self) -> bool {
        let looked =
            self.state.compare_exchange(LOOKING, QUIET, Ordering::AcqRel, Ordering::Acquire);
        looked.is_ok()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(RUNG, Ordering::AcqRel) == QUIET {
            self.task.wake();
        }
    }
}
