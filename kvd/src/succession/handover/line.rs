//! Messages and descriptors over a socket to the other daemon. Every wait has a deadline.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use kvd_shm::descriptor::{ReceiveError, receive_with_descriptors, send_with_descriptors};
use kvd_shm::peer::{self, PeerCredentials};

use super::note::{HEAD_BYTES, Head, Note, NoteFault};

/// Why the other side was not understood, or not reached.
#[derive(Debug, thiserror::Error)]
pub enum LineFault {
    /// It is gone.
    #[error("the other daemon has closed the connection")]
    Closed,
    /// It takes too long.
    #[error("the other daemon did not answer in time")]
    TooLate,
    /// It does not want to.
    #[error("the other daemon refuses: {0}")]
    Refused(String),
    /// It says something else than what is due.
    #[error("the other daemon said something that does not belong here")]
    OutOfTurn,
    /// It cannot be believed.
    #[error(transparent)]
    Note(#[from] NoteFault),
    /// Descriptors could not be received.
    #[error(transparent)]
    Descriptors(#[from] ReceiveError),
    /// The socket failed.
    #[error("talking to the other daemon: {0}")]
    Socket(#[source] io::Error),
}

impl From<io::Error> for LineFault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TooLate,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Socket(error),
        }
    }
}

/// A connection between two daemons.
#[derive(Debug)]
pub struct Line {
    stream: UnixStream,
}

impl Line {
    /// Talks over `stream`.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// Who is at the other end.
    ///
    /// # Errors
    /// As `getsockopt(2)`.
    pub fn peer(&self) -> io::Result<PeerCredentials> {
        peer::credentials(&self.stream)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`LineFault`]: the other side is gone, or does not read until `deadline`.
    pub fn send(
        &mut self,
        note: &Note,
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), LineFault> {
        let bytes = note.encode(descriptors.len());
        self.stream.set_write_timeout(Some(left(deadline)?))?;
        let sent = send_with_descriptors(self.stream.as_fd(), &bytes, descriptors)?;
        let mut rest = &bytes[sent..];
        while !rest.is_empty() {
            self.stream.set_write_timeout(Some(left(deadline)?))?;
            match self.stream.write(rest) {
                Ok(0) => return Err(LineFault::Closed),
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The next message, and what came with it.
    ///
    /// # Errors
    /// [`LineFault`], a refusal of the other side among them.
    pub fn receive(&mut self, deadline: Instant) -> Result<(Note, Vec<OwnedFd>), LineFault> {
        let mut head_bytes = [0; HEAD_BYTES];
        self.stream.set_read_timeout(Some(left(deadline)?))?;
        let (got, descriptors) = receive_with_descriptors(
            self.stream.as_fd(),
            &mut head_bytes,
            super::note::DESCRIPTORS_MAX,
        )
        .map_err(|fault| match fault {
            ReceiveError::Socket(error) => error.into(),
            too_many @ ReceiveError::TooMany { .. } => LineFault::Descriptors(too_many),
        })?;
        if got == 0 {
            return Err(LineFault::Closed);
        }
        self.fill(&mut head_bytes[got..], deadline)?;
        let head = Head::decode(&head_bytes)?;
        if head.descriptors != descriptors.len() {
            return Err(NoteFault::Damaged.into());
        }
        let mut body = vec![0; head.body_bytes];
        self.fill(&mut body, deadline)?;
        match Note::decode(head, &head_bytes, &body)? {
            Note::Refusal(words) => Err(LineFault::Refused(words)),
            note => Ok((note, descriptors)),
        }
    }

    /// The next message, which has to be this one and to come alone.
    ///
    /// # Errors
    /// As [`Line::receive`].
    pub fn expect(&mut self, wanted: &Note, deadline: Instant) -> Result<(), LineFault> {
        let (note, descriptors) = self.receive(deadline)?;
        if note == *wanted && descriptors.is_empty() { Ok(()) } else { Err(LineFault::OutOfTurn) }
    }

    /// Waits until the other side closes; whether it did.
    pub fn wait_closed(&mut self, deadline: Instant) -> bool {
        loop {
            match self.receive(deadline) {
                Err(LineFault::Closed) => return true,
                Err(_) => return false,
                Ok(_) => {}
            }
        }
    }

    fn fill(&mut self, mut to: &mut [u8], deadline: Instant) -> Result<(), LineFault> {
        while !to.is_empty() {
            self.stream.set_read_timeout(Some(left(deadline)?))?;
            match self.stream.read(to) {
                Ok(0) => return Err(LineFault::Closed),
                Ok(got) => to = &mut to[got..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn left(deadline: Instant) -> Result<Duration, LineFault> {
    let left = deadline.saturating_duration_since(Instant::now());
    // A timeout of zero would mean none.
    if left < Duration::from_micros(1) { Err(LineFault::TooLate) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use kvd_proto::ids::SessionId;

    use super::*;

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn pair() -> (Line, Line) {
        let (one, other) = UnixStream::pair().unwrap();
        (Line::new(one), Line::new(other))
    }

    #[test]
    fn descriptors_stay_with_their_message() {
        let (mut near, mut far_end) = pair();
        let (mut read, write) = io::pipe().unwrap();
        near.send(&Note::Ready, &[], far()).unwrap();
        near.send(&Note::Watch(SessionId(3)), &[write.as_fd()], far()).unwrap();
        near.send(&Note::Yours, &[], far()).unwrap();
        drop(write);
        far_end.expect(&Note::Ready, far()).unwrap();
        let (note, mut descriptors) = far_end.receive(far()).unwrap();
        assert_eq!((note, descriptors.len()), (Note::Watch(SessionId(3)), 1));
        let mut passed = io::PipeWriter::from(descriptors.pop().unwrap());
        passed.write_all(&[9]).unwrap();
        let mut byte = [0];
        read.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [9]);
        far_end.expect(&Note::Yours, far()).unwrap();
    }

    #[test]
    fn silence_garbage_and_an_end_are_told_apart() {
        let (mut near, far_end) = pair();
        assert!(matches!(near.receive(Instant::now()), Err(LineFault::TooLate)));
        let soon = Instant::now() + Duration::from_millis(5);
        assert!(matches!(near.receive(soon), Err(LineFault::TooLate)));
        let mut raw = far_end.stream;
        raw.write_all(&[b'x'; 40]).unwrap();
        assert!(matches!(near.receive(far()), Err(LineFault::Note(NoteFault::Foreign))));
        drop(raw);
        let (mut near, mut far_end) = pair();
        far_end.send(&Note::Refusal("no".into()), &[], far()).unwrap();
        far_end.send(&Note::Ready, &[], far()).unwrap();
        assert!(matches!(near.receive(far()), Err(LineFault::Refused(words)) if words == "no"));
        assert!(matches!(near.expect(&Note::Yours, far()), Err(LineFault::OutOfTurn)));
        far_end.stream.write_all(&Note::Yours.encode(0)[..20]).unwrap();
        drop(far_end);
        assert!(matches!(near.receive(far()), Err(LineFault::Closed)));
    }
}
