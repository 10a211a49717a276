//! Direct I/O, really done: a nameless file, one aligned page written and read back.

#![expect(unsafe_code, reason = "statx, which no wrapper here offers with these fields")]

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;

use crate::buffer::{ALIGNMENT, AlignedBuffer};
use crate::operation::{FileId, Memory, Operation};
use crate::system;
use crate::transfer::{Step, Transfer};

/// What the probe writes.
const MARK: u8 = 0x5a;

/// Files are laid out in these units, so a coarser alignment cannot be kept.
const ALIGNMENT_MAX: u32 = 4096;

/// The alignment in bytes, or why it does not work.
pub(super) fn probe(directory: &Path) -> Result<u32, String> {
    let file = temporary(directory).map_err(|error| format!("opening a file: {error}"))?;
    let alignment_bytes = alignment(&file).unwrap_or(ALIGNMENT_MAX);
    if alignment_bytes > ALIGNMENT_MAX {
        return Err(format!("it wants multiples of {alignment_bytes} bytes"));
    }
    let mut page = AlignedBuffer::zeroed(ALIGNMENT);
    page.fill(MARK);
    let write = Operation::write(0, FileId(0), 0, Memory::Owned(page));
    carry_out(&file, &write).map_err(|error| format!("writing: {error}"))?;
    let page = Memory::Owned(AlignedBuffer::zeroed(ALIGNMENT));
    let read = Operation::read(0, FileId(0), 0, page);
    carry_out(&file, &read).map_err(|error| format!("reading: {error}"))?;
    let read = read.into_memory().map_or_else(Vec::new, |memory| memory.to_vec());
    let is_same = read.iter().all(|byte| *byte == MARK);
    if is_same { Ok(alignment_bytes) } else { Err("it reads other bytes than written".to_owned()) }
}

/// A file for direct I/O that is gone when it is closed.
fn temporary(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let nameless = options.clone().custom_flags(libc::O_TMPFILE | libc::O_DIRECT).open(directory);
    if nameless.is_ok() {
        return nameless;
    }
    // Not every file system has nameless files.
    let path = directory.join(format!(".infera-kvd-probe-{}", std::process::id()));
    let named = options.create_new(true).custom_flags(libc::O_DIRECT).open(&path);
    let is_ours = !matches!(&named, Err(error) if error.kind() == io::ErrorKind::AlreadyExists);
    // A refusal of the flag may come after the file was made. If there is none, that is fine too.
    let _gone = is_ours && std::fs::remove_file(&path).is_ok();
    named
}

fn carry_out(file: &File, operation: &Operation) -> io::Result<()> {
    let Step::Call(call) = Transfer::of(operation).begin() else { return Ok(()) };
    match system::carry_out(file, operation, call) {
        Ok(moved) if moved == call.len => Ok(()),
        Ok(moved) => Err(io::Error::other(format!("{moved} of {} bytes", call.len))),
        Err(errno) => Err(Errno::from_raw(errno).into()),
    }
}

/// What the kernel says that direct I/O on the file must be a multiple of; `None` if it does not
/// say (before 6.1, and some file systems).
fn alignment(file: &File) -> Option<u32> {
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty C string, which with this flag means the descriptor; the answer has
    // room for the whole struct.
    let failed = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            answer.as_mut_ptr(),
        )
    };
    // SAFETY: zeroes are a valid answer, and the kernel only writes valid ones over them.
    let answer = unsafe { answer.assume_init() };
    if failed != 0 || answer.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    let alignment = answer.stx_dio_mem_align.max(answer.stx_dio_offset_align);
    // Zero means that direct I/O is not supported; the write will say so better.
    (alignment > 0).then_some(alignment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let probed = probe(folder.path());
        if let Ok(alignment_bytes) = probed {
            assert!(alignment_bytes.is_power_of_two() && alignment_bytes <= 4096);
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_reason() {
        let refusal = probe(Path::new("/nonexistent/folder")).unwrap_err();
        assert!(refusal.starts_with("opening a file: No such file"), "{refusal}");
        let refusal = probe(Path::new("/proc")).unwrap_err();
        assert!(refusal.starts_with("opening a file"), "{refusal}");
    }
}
