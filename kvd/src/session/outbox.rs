//! Replies that wait to be written: small ones are gathered, so that a pipelining client costs one
//! system call for many answers; block bytes go from the arena to the socket without a copy.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

/// Gathered replies above this are written before the next one is built.
const GATHER_BYTES: usize = 256 << 10;
/// The buffer is given back when one reply made it larger than this.
const KEEP_BYTES: usize = 1 << 20;

/// The reply buffer of one session.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
}

impl Outbox {
    /// The buffer to append an encoded reply to.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Whether enough has gathered that it should be written now.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= GATHER_BYTES
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes everything, or until a nudge comes and `gives_way` says so; what is left waits. The socket's send timeout
    /// bounds each step: a client that reads nothing for that long is an error of kind `WouldBlock`.
    ///
    /// Returns the number of bytes written.
    pub(crate) fn flush(
        &mut self,
        mut stream: &UnixStream,
        gives_way: impl Fn() -> bool,
    ) -> io::Result<usize> {
        let mut sent = 0;
        while sent < self.bytes.len() {
            match stream.write(&self.bytes[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(some) => sent += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if gives_way() {
                        self.bytes.drain(..sent);
                        return Ok(sent);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        if self.bytes.capacity() > KEEP_BYTES {
            self.bytes = Vec::new();
        }
        Ok(sent)
    }
}
