//! Arena bytes to and from a socket without a copy in this process: the kernel reads and writes the
//! arena itself.

#![expect(unsafe_code, reason = "recv and sendmsg at addresses of the mapping")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::Mapping;

/// A transfer that ended early: by an error, a timeout of the socket (`WouldBlock`), or the end of
/// the stream (`UnexpectedEof`).
#[derive(Debug, thiserror::Error)]
#[error("transfer stopped after {done} bytes")]
pub struct Stopped {
    /// Bytes that did get through; the transfer may be resumed behind them.
    pub done: usize,
    /// Why it stopped.
    #[source]
    pub source: io::Error,
}

impl From<Stopped> for io::Error {
    fn from(stopped: Stopped) -> Self {
        stopped.source
    }
}

/// A part of what is sent in one go.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Bytes of this process.
    Bytes(&'a [u8]),
    /// Bytes of the arena.
    Arena {
        /// Where they start.
        offset: u64,
        /// How many.
        len: usize,
    },
}

/// Pieces handed to the kernel at once; its own limit is 1024.
const PIECES_MAX: usize = 64;

impl Mapping {
    /// Fills `len` bytes of the arena from a stream socket, however many reads that takes.
    ///
    /// # Errors
    /// If the stream ends, fails or times out before; the bytes that arrived are in place.
    pub fn receive_into(
        &self,
        socket: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Result<(), Stopped> {
        let start = self.writable(offset, len);
        let mut done = 0;
        while done < len {
            let rest = len - done;
            let to = self.region.at(start + done, rest).as_ptr();
            // SAFETY: `to` is valid for writes of `rest` bytes (checked by `at` and `writable`) and
            // stays mapped during the call, because `self` is borrowed.
            let got = unsafe { libc::recv(socket.as_raw_fd(), to.cast(), rest, libc::MSG_WAITALL) };
            match Errno::result(got) {
                Ok(0) => {
                    return Err(Stopped { done, source: io::ErrorKind::UnexpectedEof.into() });
                }
                Ok(got) => done += got.unsigned_abs(),
                Err(Errno::EINTR) => {}
                Err(errno) => {
                    return Err(Stopped { done, source: errno.into() });
                }
            }
        }
        Ok(())
    }

    /// Sends all pieces to a stream socket in order, with as few system calls as the socket allows:
    /// the head of a frame, its values from the arena, and its tail.
    ///
    /// # Errors
    /// If the socket fails or times out before everything is sent. A closed peer is an error, never
    /// a signal.
    pub fn send_pieces(&self, socket: BorrowedFd<'_>, pieces: &[Piece<'_>]) -> Result<(), Stopped> {
        self.send_pieces_unless(socket, pieces, || false).map(drop)
    }

    /// As [`Mapping::send_pieces`], but stops where it is if a signal comes and `gives_way` says so; how many bytes were
    /// sent.
    ///
    /// # Errors
    /// As there.
    pub fn send_pieces_unless(
        &self,
        socket: BorrowedFd<'_>,
        pieces: &[Piece<'_>],
        gives_way: impl Fn() -> bool,
    ) -> Result<usize, Stopped> {
        let mut done = 0;
        for group in pieces.chunks(PIECES_MAX) {
            let mut vectors =
                [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES_MAX];
            for (vector, piece) in vectors.iter_mut().zip(group) {
                *vector = self.vector_of(piece);
            }
            let mut unsent = &mut vectors[..group.len()];
            loop {
                unsent = skip_empty(unsent);
                if unsent.is_empty() {
                    break;
                }
                match send_some(socket, unsent) {
                    Ok(sent) => {
                        done += sent;
                        unsent = advance(unsent, sent);
                    }
                    Err(Errno::EINTR) if gives_way() => return Ok(done),
                    Err(Errno::EINTR) => {}
                    Err(errno) => {
                        return Err(Stopped { done, source: errno.into() });
                    }
                }
            }
        }
        Ok(done)
    }

    /// An address and a length for the kernel to read; it never writes there.
    fn vector_of(&self, piece: &Piece<'_>) -> libc::iovec {
        let (base, len) = match *piece {
            Piece::Bytes(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
            Piece::Arena { offset, len } => {
                (self.region.at(self.readable(offset, len), len).as_ptr(), len)
            }
        };
        libc::iovec { iov_base: base.cast(), iov_len: len }
    }
}

/// One `sendmsg`. The vectors were made by `vector_of` from what the caller still borrows.
fn send_some(socket: BorrowedFd<'_>, vectors: &mut [libc::iovec]) -> Result<usize, Errno> {
    let message = libc::msghdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: vectors.as_mut_ptr(),
        msg_iovlen: vectors.len(),
        msg_control: std::ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    };
    // SAFETY: `message` has no name and no control data, and its vectors are live ranges that the
    // kernel only reads.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    Errno::result(sent).map(isize::unsigned_abs)
}

fn skip_empty(vectors: &mut [libc::iovec]) -> &mut [libc::iovec] {
    let empty = vectors.iter().take_while(|vector| vector.iov_len == 0).count();
    &mut vectors[empty..]
}

/// Drops the first `sent` bytes.
fn advance(vectors: &mut [libc::iovec], mut sent: usize) -> &mut [libc::iovec] {
    let mut finished = 0;
    for vector in vectors.iter_mut() {
        if sent < vector.iov_len {
            vector.iov_base = vector.iov_base.wrapping_byte_add(sent);
            vector.iov_len -= sent;
            break;
        }
        sent -= vector.iov_len;
        finished += 1;
    }
    &mut vectors[finished..]
}
