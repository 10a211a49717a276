//! Why an operation did not do what it was asked for.

use nix::errno::Errno;

use crate::operation::FileId;

/// An operation's trouble. What the memory of a failed read holds is undefined; how much of a
/// failed write reached the file is unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The kernel said no.
    #[error("{}", Errno::from_raw(*.0).desc())]
    Errno(i32),
    /// A read went past the end of the file.
    #[error("the file ends after {transferred} of {asked} bytes at {offset}")]
    EndOfFile {
        /// Where the read started, in bytes.
        offset: u64,
        /// How many bytes came.
        transferred: u64,
        /// How many bytes were asked for.
        asked: u64,
    },
    /// The kernel took no byte of a write and gave no reason, again and again.
    #[error("no progress after {transferred} of {asked} bytes at {offset}")]
    NoProgress {
        /// Where the write started, in bytes.
        offset: u64,
        /// How many bytes went.
        transferred: u64,
        /// How many bytes were to go.
        asked: u64,
    },
    /// The operation names a file that is not attached.
    #[error("file {file} is not attached")]
    NotAttached {
        /// The file it names.
        file: FileId,
    },
}

impl Fault {
    /// Whether the device or the user's share of it is full: nothing is broken, and the same
    /// write may succeed later.
    #[must_use]
    pub fn is_no_space(self) -> bool {
        self == Self::Errno(libc::ENOSPC) || self == Self::Errno(libc::EDQUOT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_read_well() {
        assert_eq!(Fault::Errno(libc::EIO).to_string(), "I/O error");
        let short = Fault::EndOfFile { offset: 4096, transferred: 512, asked: 8192 };
        assert_eq!(short.to_string(), "the file ends after 512 of 8192 bytes at 4096");
        assert_eq!(Fault::NotAttached { file: FileId(7) }.to_string(), "file 7 is not attached");
    }

    #[test]
    fn only_a_full_device_is_no_space() {
        assert!(Fault::Errno(libc::ENOSPC).is_no_space());
        assert!(Fault::Errno(libc::EDQUOT).is_no_space());
        assert!(!Fault::Errno(libc::EIO).is_no_space());
        assert!(!Fault::NotAttached { file: FileId(0) }.is_no_space());
    }
}
