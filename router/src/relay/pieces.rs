//! The body of a request in pieces, so that a long one is not copied to put something beside it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// What is left to be sent.
#[derive(Debug)]
pub(super) struct Pieces {
    pieces: vec::IntoIter<Bytes>,
    bytes: u64,
}

impl From<Vec<Bytes>> for Pieces {
    fn from(pieces: Vec<Bytes>) -> Self {
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces: pieces.into_iter(), bytes }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.pieces.find(|piece| !piece.is_empty());
        self.bytes -= next.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn their_length_is_known_and_nothing_is_lost() {
        for pieces in [&[][..], &[""], &["ab", "", "c"], &["", "abc"]] {
            let all = pieces.concat();
            let body = Pieces::from(pieces.iter().copied().map(Bytes::from).collect::<Vec<_>>());
            assert_eq!(body.size_hint().exact(), Some(all.len() as u64));
            assert_eq!(body.is_end_stream(), all.is_empty());
            assert_eq!(body.collect().await.unwrap().to_bytes(), all.as_bytes());
        }
    }
}
