//! Bodies of requests, taken in whole: each up to a length, none slower than can be waited for, and all that are held at
//! the same time up to a bound, whoever sends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use tokio::time::{Instant, timeout_at};

use crate::refusal::Refusal;

/// A client that sends nothing of its body for this long is turned away.
const SILENCE: Duration = Duration::from_secs(60);
/// And so is one that, after as long, has sent less than this in a second: else a few bytes a minute would keep a place.
const BYTES_PER_SECOND_MIN: u64 = 4 << 10;
/// Of all bodies together.
const ALL_BYTES_MAX: u64 = 4 << 30;

/// Takes bodies in.
#[derive(Debug)]
pub struct Bodies {
    bytes_max: usize,
    room: Arc<Room>,
}

impl Bodies {
    /// Bodies of up to so many bytes each.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        // One has room in any case.
        let all_max = ALL_BYTES_MAX.max(bytes_max as u64);
        Self { bytes_max, room: Arc::new(Room { bytes_max: all_max, taken: AtomicU64::new(0) }) }
    }

    /// The head of a request, and all of its body, which has its part of the room until the last of its bytes is dropped.
    ///
    /// # Errors
    /// The body is too large or too slow, it broke off, or there is no room for it.
    pub async fn take(&self, request: Request) -> Result<(Parts, Bytes), Refusal> {
        let (parts, body) = request.into_parts();
        let announced = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let announced: usize = announced.and_then(|length| length.parse().ok()).unwrap_or(0);
        if announced > self.bytes_max {
            return Err(Refusal::BodyTooLarge(self.bytes_max));
        }
        Ok((parts, self.take_in(body).await?))
    }

    /// Memory is taken as bytes come, not as announced.
    async fn take_in<B>(&self, mut body: B) -> Result<Bytes, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let began = Instant::now();
        let mut share = Share { room: Arc::clone(&self.room), bytes: 0 };
        let mut taken = BytesMut::new();
        loop {
            let owed = Duration::from_secs(taken.len() as u64 / BYTES_PER_SECOND_MIN);
            let until = (Instant::now() + SILENCE).min(began + SILENCE + owed);
            let frame = timeout_at(until, body.frame()).await;
            let frame = match frame.map_err(|_elapsed| Refusal::BodyTooSlow)? {
                None => {
                    return Ok(Bytes::from_owner(Held { bytes: taken.freeze(), _share: share }));
                }
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return Err(Refusal::BadRequest(format!("the body broke off: {error}")));
                }
            };
            if let Some(data) = frame.data_ref() {
                if data.len() > self.bytes_max - taken.len() {
                    return Err(Refusal::BodyTooLarge(self.bytes_max));
                }
                if !share.grow(data.len() as u64) {
                    return Err(Refusal::Overloaded);
                }
                taken.extend_from_slice(data);
            }
        }
    }
}

/// For all bodies.
#[derive(Debug)]
struct Room {
    bytes_max: u64,
    taken: AtomicU64,
}

/// What one body has of the room, given back when it is dropped.
#[derive(Debug)]
struct Share {
    room: Arc<Room>,
    bytes: u64,
}

impl Share {
    /// Takes so much more; false if there is not as much.
    fn grow(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        self.room.taken.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.room.bytes_max
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A body and its share.
struct Held {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt as _, stream};
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use tokio::time::sleep;

    use super::*;

    /// So many pieces of a length, each after a pause.
    fn slow(
        count: usize,
        bytes: usize,
        pause: Duration,
    ) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let pieces = stream::iter(0..count).then(move |_| async move {
            sleep(pause).await;
            Ok(Frame::data(Bytes::from(vec![b' '; bytes])))
        });
        StreamBody::new(Box::pin(pieces))
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_nothing_or_hardly_anything_is_turned_away() {
        let bodies = Bodies::new(64 << 20);
        let after = async |count, bytes, seconds| {
            let (began, pause) = (Instant::now(), Duration::from_secs(seconds));
            let taken = bodies.take_in(slow(count, bytes, pause)).await;
            (taken.map(|body| body.len()), began.elapsed().as_secs())
        };
        assert_eq!(after(1, 10, 61).await, (Err(Refusal::BodyTooSlow), 60));
        // A byte now and then keeps no place.
        assert_eq!(after(1_000, 1, 5).await, (Err(Refusal::BodyTooSlow), 60));
        assert_eq!(after(1_000, 4 << 10, 2).await.0, Err(Refusal::BodyTooSlow));
        // Who is only slow is waited for.
        assert_eq!(after(1_000, 16 << 10, 3).await, (Ok(16_000 << 10), 3_000));
        assert_eq!(after(3, 1, 15).await, (Ok(3), 45));
    }

    #[tokio::test]
    async fn all_bodies_together_have_so_much_room_until_they_are_dropped() {
        let body = |bytes: usize| Full::new(Bytes::from(vec![b'x'; bytes]));
        let mut bodies = Bodies::new(60);
        bodies.room = Arc::new(Room { bytes_max: 100, taken: AtomicU64::new(0) });
        let first = bodies.take_in(body(60)).await.unwrap();
        assert_eq!(bodies.take_in(body(41)).await, Err(Refusal::Overloaded));
        let second = bodies.take_in(body(40)).await.unwrap();
        // Any part of it keeps all of it.
        let part = first.slice(..1);
        drop(first);
        assert_eq!(bodies.take_in(body(1)).await, Err(Refusal::Overloaded));
        drop(part);
        assert_eq!(bodies.take_in(body(60)).await.unwrap().len(), 60);
        assert_eq!(bodies.take_in(body(61)).await, Err(Refusal::BodyTooLarge(60)));
        drop(second);
        assert_eq!(bodies.room.taken.load(Ordering::Relaxed), 0);
    }
}
