//! Frames over one Unix stream, with absolute deadlines.
//!
//! In the common case a call costs one `send` and one `recv`. Sending never blocks: only a full
//! socket makes it poll. Receiving blocks in slices of [`SLICE`], set once on the socket, and looks
//! at the deadline after each; only the end of a deadline, which must not be overslept, is polled
//! for. Whatever was sent or received when a deadline passes stays here, so that the stream remains
//! in step for the next call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use kvd_proto::frame;
use kvd_shm::descriptor::{self, ReceiveError};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, setsockopt, socket,
};
use nix::sys::time::TimeVal;

use crate::deadline::Deadline;
use crate::error::Breach;

/// How long one `recv` may block before the deadline is looked at again.
const SLICE: Duration = Duration::from_millis(10);

/// What the receive buffer starts with; it grows only for a frame that is longer.
const INBOX_BYTES: usize = 64 * 1024;

/// Why a frame did not get through.
#[derive(Debug)]
pub(crate) enum WireFault {
    /// The deadline passed; the stream is still in step.
    Deadline,
    /// The stream has ended or failed.
    Lost(io::Error),
    /// The peer sent what it must not.
    Breach(Breach),
}

#[derive(Debug)]
pub(crate) struct Wire {
    stream: UnixStream,
    /// Initialised throughout; received and not yet consumed bytes are `start..end`.
    inbox: Vec<u8>,
    start: usize,
    end: usize,
    /// Length of the frame handed out last, prefix included; it is consumed by the next wait.
    current: usize,
    /// Whether bytes beyond the current frame may be read. Not while a descriptor may follow it: the
    /// descriptor would be lost.
    greedy: bool,
    frame_bytes_max: u32,
    outbox: Vec<u8>,
    /// How much of the outbox has been sent.
    sent: usize,
}

impl Wire {
    /// Connects; waits for room in the listener's backlog until the deadline at most.
    pub(crate) fn connect(path: &Path, deadline: Deadline) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let descriptor = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        // The kernel applies the send timeout to a connect that waits for the backlog; zero would
        // mean for ever.
        let patience = deadline.remaining().max(Duration::from_millis(1));
        let micros = i64::try_from(patience.as_micros()).unwrap_or(i64::MAX);
        setsockopt(
            &descriptor,
            SendTimeout,
            &TimeVal::new(micros / 1_000_000, micros % 1_000_000),
        )?;
        connect(descriptor.as_raw_fd(), &UnixAddr::new(path)?)?;
        Self::over(UnixStream::from(descriptor))
    }

    fn over(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(SLICE))?;
        Ok(Self {
            stream,
            inbox: vec![0; INBOX_BYTES],
            start: 0,
            end: 0,
            current: 0,
            greedy: false,
            frame_bytes_max: frame::V2_FRAME_BYTES_MAX,
            outbox: Vec::new(),
            sent: 0,
        })
    }

    /// From now on no descriptor is expected: read as much as there is.
    pub(crate) fn read_ahead(&mut self) {
        self.greedy = true;
    }

    /// Where frames to send are appended.
    pub(crate) fn outbox(&mut self) -> &mut Vec<u8> {
        &mut self.outbox
    }

    /// Sends the beginning of the outbox together with a descriptor.
    pub(crate) fn flush_with(&mut self, passed: BorrowedFd<'_>) -> io::Result<()> {
        self.sent = descriptor::send_with_descriptor(self.stream.as_fd(), &self.outbox, passed)?;
        Ok(())
    }

    /// Sends everything in the outbox. What the deadline leaves unsent goes first next time.
    pub(crate) fn flush(&mut self, deadline: Deadline) -> Result<(), WireFault> {
        while !self.flush_now()? {
            if !self.ready(PollFlags::POLLOUT, deadline.remaining())? {
                return Err(WireFault::Deadline);
            }
        }
        Ok(())
    }

    /// Sends as much of the outbox as the socket takes at once; true when nothing is left.
    pub(crate) fn flush_now(&mut self) -> Result<bool, WireFault> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        while let Some(rest) = self.outbox.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match send(self.stream.as_raw_fd(), rest, flags) {
                Ok(sent) => self.sent += sent,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(false),
                Err(errno) => return Err(WireFault::Lost(errno.into())),
            }
        }
        self.outbox.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Waits for the next frame. Read it with [`Wire::frame`].
    pub(crate) fn await_frame(&mut self, deadline: Deadline) -> Result<(), WireFault> {
        self.consume();
        loop {
            let missing = self.missing()?;
            if missing == 0 {
                return Ok(());
            }
            if !self.receive(missing, deadline)? {
                return Err(WireFault::Deadline);
            }
        }
    }

    /// The body of the frame that was waited for last.
    pub(crate) fn frame(&self) -> &[u8] {
        &self.inbox[self.start..self.start + self.current][self.current.min(frame::PREFIX_BYTES)..]
    }

    /// Receives the one byte that carries a descriptor.
    pub(crate) fn await_descriptor(&mut self, deadline: Deadline) -> Result<OwnedFd, WireFault> {
        self.consume();
        if !self.ready(PollFlags::POLLIN, deadline.remaining())? {
            return Err(WireFault::Deadline);
        }
        let mut marker = [0];
        match descriptor::receive_with_descriptors(self.stream.as_fd(), &mut marker, 1) {
            Ok((0, _)) => Err(WireFault::Lost(io::ErrorKind::UnexpectedEof.into())),
            Ok((_, mut descriptors)) => {
                descriptors.pop().ok_or(WireFault::Breach(Breach::NoDescriptor))
            }
            Err(ReceiveError::TooMany { .. }) => Err(WireFault::Breach(Breach::NoDescriptor)),
            Err(ReceiveError::Socket(source)) => Err(WireFault::Lost(source)),
        }
    }

    fn consume(&mut self) {
        self.start += self.current;
        self.current = 0;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// How many bytes the next frame lacks; none means that it is current.
    fn missing(&mut self) -> Result<usize, WireFault> {
        let received = &self.inbox[self.start..self.end];
        let Some(prefix) = received.first_chunk::<{ frame::PREFIX_BYTES }>() else {
            return Ok(frame::PREFIX_BYTES - received.len());
        };
        let body = frame::parse_prefix(*prefix, self.frame_bytes_max)
            .map_err(|malformed| WireFault::Breach(Breach::Malformed(malformed)))?;
        let whole = frame::PREFIX_BYTES + body as usize;
        if received.len() >= whole {
            self.current = whole;
        }
        Ok(whole.saturating_sub(received.len()))
    }

    /// Receives at least one byte, of `missing` wanted ones; false when the deadline has passed.
    fn receive(&mut self, missing: usize, deadline: Deadline) -> Result<bool, WireFault> {
        self.make_room(missing);
        let until = if self.greedy { self.inbox.len() } else { self.end + missing };
        let until = until.min(self.inbox.len());
        loop {
            let remaining = deadline.remaining();
            let flags = if remaining > 2 * SLICE {
                MsgFlags::empty()
            } else {
                self.ready(PollFlags::POLLIN, remaining)?;
                MsgFlags::MSG_DONTWAIT
            };
            match recv(self.stream.as_raw_fd(), &mut self.inbox[self.end..until], flags) {
                Ok(0) => return Err(WireFault::Lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(received) => {
                    self.end += received;
                    return Ok(true);
                }
                Err(Errno::EAGAIN) if remaining.is_zero() => return Ok(false),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(errno) => return Err(WireFault::Lost(errno.into())),
            }
        }
    }

    /// Makes space behind `end`. The buffer doubles as bytes arrive, it never grows to a length that
    /// was only announced.
    fn make_room(&mut self, missing: usize) {
        if self.end + missing <= self.inbox.len() {
            return;
        }
        if self.start > 0 {
            self.inbox.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.inbox.len() {
            self.inbox.resize(2 * self.inbox.len(), 0);
        }
    }

    /// Waits until the socket is ready; false when `patience` ran out first.
    fn ready(&self, events: PollFlags, patience: Duration) -> Result<bool, WireFault> {
        // Rounded up: a wait must not end, and be repeated, just before its deadline.
        let millis = i32::try_from(patience.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        let mut watched = [PollFd::new(self.stream.as_fd(), events)];
        match poll(&mut watched, timeout) {
            Ok(count) => Ok(count > 0),
            Err(Errno::EINTR) => Ok(true),
            Err(errno) => Err(WireFault::Lost(errno.into())),
        }
    }
}
