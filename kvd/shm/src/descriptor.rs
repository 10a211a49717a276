//! Descriptors over a Unix socket (`SCM_RIGHTS`): sent with the first byte, received in exact numbers,
//! never leaked, always close-on-exec.

#![expect(unsafe_code, reason = "recvmsg and its control messages")]

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// The most descriptors that one call sends or can be asked to accept.
pub const DESCRIPTORS_MAX: usize = 8;

/// Why nothing was received. No descriptor is left open by any of these.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The peer attached more descriptors than the caller accepts.
    #[error("the peer sent more than {max} descriptors")]
    TooMany {
        /// How many the caller accepts.
        max: usize,
    },
    /// The socket failed or timed out.
    #[error("receiving from the socket")]
    Socket(#[source] io::Error),
}

/// Sends bytes with one descriptor attached to the first of them, in one `sendmsg`. Returns how many
/// bytes were sent; the descriptor went with the first, so the rest is sent plainly.
///
/// # Errors
/// If the socket fails or times out. A closed peer is an error, never a signal.
///
/// # Panics
/// If there is no byte to attach the descriptor to.
pub fn send_with_descriptor(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
) -> io::Result<usize> {
    send_with_descriptors(socket, bytes, &[descriptor])
}

/// As [`send_with_descriptor`], with several of them or none, in their order.
///
/// # Errors
/// As there.
///
/// # Panics
/// If there is no byte to attach them to, or there are more than [`DESCRIPTORS_MAX`].
pub fn send_with_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    assert!(!bytes.is_empty(), "a descriptor travels with a byte");
    assert!(descriptors.len() <= DESCRIPTORS_MAX, "{} descriptors", descriptors.len());
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let attached = if numbers.is_empty() { &[][..] } else { &rights[..] };
    loop {
        let vectors = [IoSlice::new(bytes)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        match sendmsg::<()>(socket.as_raw_fd(), &vectors, attached, flags, None) {
            Ok(sent) => return Ok(sent),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives up to `buffer.len()` bytes and at most `max` descriptors, close-on-exec. Zero bytes mean
/// the end of the stream.
///
/// # Errors
/// If more descriptors were attached (all are closed then), or if the socket fails or times out.
///
/// # Panics
/// If `max` is above [`DESCRIPTORS_MAX`].
pub fn receive_with_descriptors(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    max: usize,
) -> Result<(usize, Vec<OwnedFd>), ReceiveError> {
    assert!(max <= DESCRIPTORS_MAX, "{max} descriptors in one message");
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = [0_u64; CONTROL_WORDS];
    loop {
        let mut message = libc::msghdr {
            msg_name: std::ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: &raw mut vector,
            msg_iovlen: 1,
            msg_control: control.as_mut_ptr().cast(),
            msg_controllen: control_bytes(max),
            msg_flags: 0,
        };
        // SAFETY: `message` points at `vector`, which is the caller's buffer, and at `control`, of
        // which it names no more than there is; all outlive the call.
        let received =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match Errno::result(received) {
            Ok(received) => {
                // Taken in any case, so that an error closes them.
                let descriptors = take_descriptors(&message);
                if message.msg_flags & libc::MSG_CTRUNC != 0 {
                    return Err(ReceiveError::TooMany { max });
                }
                return Ok((received.unsigned_abs(), descriptors));
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(ReceiveError::Socket(errno.into())),
        }
    }
}

const CONTROL_WORDS: usize =
    size_of::<libc::cmsghdr>() / 8 + DESCRIPTORS_MAX * size_of::<RawFd>() / 8;

/// Exactly the bytes for `max` descriptors. The usual rounding up to eight bytes would let the
/// kernel put one more into the gap.
fn control_bytes(max: usize) -> usize {
    if max == 0 { 0 } else { size_of::<libc::cmsghdr>() + max * size_of::<RawFd>() }
}

/// Every descriptor that the kernel put into the control buffer, owned from here on.
fn take_descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    // SAFETY: `message` was filled by `recvmsg` and its control buffer is alive and aligned.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !at.is_null() {
        // SAFETY: non-null results of the header functions are aligned headers in the buffer.
        let header = unsafe { at.read() };
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            let count = (header.cmsg_len - size_of::<libc::cmsghdr>()) / size_of::<RawFd>();
            // SAFETY: `at` is a header in the buffer, so its data start right behind it.
            let data = unsafe { libc::CMSG_DATA(at) };
            for index in 0..count {
                // SAFETY: `index < count`, and the kernel wrote `count` descriptors there.
                let place = unsafe { data.add(index * size_of::<RawFd>()) };
                // SAFETY: `place` holds a descriptor that the kernel wrote; alignment is not
                // assumed.
                let raw = unsafe { place.cast::<RawFd>().read_unaligned() };
                // SAFETY: the kernel opened it in this process for this message; nobody else
                // knows it, so it is ours to close.
                descriptors.push(unsafe { OwnedFd::from_raw_fd(raw) });
            }
        }
        // SAFETY: `at` is a header in the buffer of `message`.
        at = unsafe { libc::CMSG_NXTHDR(message, at) };
    }
    descriptors
}
