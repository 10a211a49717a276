//! The body of an answer, what has come in short succession joined: one write to the client in place of many.
//!
//! A worker's connection hands on one frame at a time, and the server writes whenever there is no more at once. Without
//! this, each event is a write of its own even if many wait, and a router with much to do gets even more.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};

/// No more is joined once there is this much.
const JOINED_BYTES_MIN: usize = 16 << 10;
/// How often more is looked for. Others have their turn in between: the server looks twice before it lets them.
const LOOKS: u8 = 2;
/// A look costs others their turn. Where it found nothing, so many frames pass before the next one is tried.
const FRAMES_UNLOOKED: u8 = 15;

/// What a body gives next.
type Next<E> = Option<Result<Frame<Bytes>, E>>;

/// A body whose frames are joined if they are there already; nothing is waited for.
#[derive(Debug)]
pub(super) struct Gathered<B: Body> {
    body: B,
    joined: Joined,
    looks_left: u8,
    /// Frames that pass without a look behind them.
    unlooked_left: u8,
    /// What came after that and is no data.
    then: Option<Next<B::Error>>,
}

/// Data that has come.
#[derive(Debug, Default)]
enum Joined {
    #[default]
    Nothing,
    One(Bytes),
    Many(BytesMut),
}

impl<B: Body<Data = Bytes> + Unpin> Gathered<B> {
    pub(super) fn new(body: B) -> Self {
        Self { body, joined: Joined::Nothing, looks_left: 0, unlooked_left: 0, then: None }
    }

    /// The next frame.
    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Next<B::Error>> {
        if self.then.is_none() && self.joined.len() < JOINED_BYTES_MIN {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        self.joined.push(data);
                        if self.joined.len() < JOINED_BYTES_MIN && self.pays_to_look() {
                            self.looks_left = LOOKS;
                            return look_again(context);
                        }
                    }
                    Err(trailers) => self.then = Some(Some(Ok(trailers))),
                },
                Poll::Ready(end) => self.then = Some(end),
                Poll::Pending if self.looks_left > 0 => {
                    self.looks_left -= 1;
                    return look_again(context);
                }
                // It was for nothing.
                Poll::Pending if matches!(self.joined, Joined::One(_)) => {
                    self.unlooked_left = FRAMES_UNLOOKED;
                }
                Poll::Pending => {}
            }
        }
        match (self.joined.take(), self.then.take()) {
            (Some(data), then) => {
                self.then = then;
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            (None, Some(next)) => Poll::Ready(next),
            (None, None) => Poll::Pending,
        }
    }
}

impl<B: Body> Gathered<B> {
    /// Whether more may come at once behind the frame that has just come.
    fn pays_to_look(&mut self) -> bool {
        let is_first = matches!(self.joined, Joined::One(_));
        let pays = !is_first || self.unlooked_left == 0;
        if !pays {
            self.unlooked_left -= 1;
        }
        pays
    }
}

/// Goes to the end of the queue: the task that reads from the worker comes before.
fn look_again<T>(context: &Context<'_>) -> Poll<T> {
    context.waker().wake_by_ref();
    Poll::Pending
}

impl Joined {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(data) => data.len(),
            Self::Many(data) => data.len(),
        }
    }

    fn push(&mut self, data: Bytes) {
        *self = match mem::take(self) {
            Self::Nothing => Self::One(data),
            Self::One(first) => {
                let mut all = BytesMut::with_capacity(2 * (first.len() + data.len()));
                all.extend_from_slice(&first);
                all.extend_from_slice(&data);
                Self::Many(all)
            }
            Self::Many(mut all) => {
                all.extend_from_slice(&data);
                Self::Many(all)
            }
        };
    }

    fn take(&mut self) -> Option<Bytes> {
        match mem::take(self) {
            Self::Nothing => None,
            Self::One(data) => Some(data),
            Self::Many(data) => Some(data.freeze()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    /// What is polled, one after the other; at the end of the list the body waits.
    #[derive(Debug)]
    struct Script(VecDeque<Poll<Next<&'static str>>>);

    impl Body for Script {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Next<Self::Error>> {
            self.0.pop_front().unwrap_or(Poll::Pending)
        }
    }

    #[derive(Debug, Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn data(text: &[u8]) -> Poll<Next<&'static str>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(text)))))
    }

    /// The frames that come of it as text, polled as long as somebody asks to be: `.` before each that was waited for.
    fn frames(script: Vec<Poll<Next<&'static str>>>) -> Vec<String> {
        let mut body = Gathered::new(Script(script.into()));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let mut found = Vec::new();
        let mut asked = 0;
        loop {
            match body.poll_frame(&mut context) {
                Poll::Pending if wakes.0.load(Ordering::Relaxed) > asked => asked += 1,
                Poll::Pending => return found,
                Poll::Ready(None) => {
                    found.push("end".to_owned());
                    return found;
                }
                Poll::Ready(Some(Err(error))) => found.push(error.to_owned()),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => found.push(String::from_utf8(data.to_vec()).unwrap()),
                    Err(_trailers) => found.push("trailers".to_owned()),
                },
            }
        }
    }

    #[test]
    fn what_is_there_is_joined_and_nothing_is_waited_for() {
        let wait = || Poll::Pending;
        assert_eq!(frames(vec![data(b"a"), data(b"b"), data(b"c")]), ["abc"]);
        // Each has its looks.
        assert_eq!(frames(vec![data(b"a"), wait(), wait(), data(b"b")]), ["ab"]);
        assert_eq!(frames(vec![data(b"a")]), ["a"]);
        assert_eq!(frames(vec![wait(), data(b"never asked for")]), [""; 0]);
        assert_eq!(
            frames(vec![data(b"a"), wait(), wait(), wait(), data(b"b"), Poll::Ready(None)]),
            ["a", "b", "end"]
        );
    }

    #[test]
    fn where_nothing_follows_at_once_nothing_is_looked_for_for_a_while() {
        let wait = || Poll::Pending;
        let alone = || vec![data(b"a"), wait(), wait(), wait()];
        let unlooked = (0..FRAMES_UNLOOKED).map(|_| data(b"b"));
        let script = alone().into_iter().chain(unlooked).chain([data(b"c"), data(b"d")]);
        let mut wanted = vec!["a"];
        wanted.extend(["b"].repeat(FRAMES_UNLOOKED.into()));
        wanted.push("cd");
        assert_eq!(frames(script.collect()), wanted);
    }

    #[test]
    fn what_ends_a_body_comes_after_its_data() {
        let trailers = || Poll::Ready(Some(Ok(Frame::trailers(hyper::HeaderMap::new()))));
        assert_eq!(frames(vec![data(b"a"), data(b"b"), Poll::Ready(None)]), ["ab", "end"]);
        assert_eq!(frames(vec![data(b"a"), Poll::Ready(Some(Err("broken")))]), ["a", "broken"]);
        assert_eq!(
            frames(vec![data(b"a"), trailers(), Poll::Ready(None)]),
            ["a", "trailers", "end"]
        );
        assert_eq!(frames(vec![Poll::Ready(None)]), ["end"]);
    }

    #[test]
    fn much_goes_on_at_once() {
        let large = vec![b'x'; JOINED_BYTES_MIN];
        let found = frames(vec![data(&large), data(b"a"), data(&large), data(b"b")]);
        let lengths: Vec<usize> = found.iter().map(String::len).collect();
        assert_eq!(lengths, [JOINED_BYTES_MIN, JOINED_BYTES_MIN + 1, 1]);
    }
}
