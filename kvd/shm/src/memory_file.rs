//! The anonymous file behind the arena: `memfd_create`, its length, its seals.

use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};
use nix::unistd::ftruncate;

/// Bytes of one huge page, from the pool or transparent.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of one ordinary page.
pub(crate) const PAGE_BYTES: usize = 4 << 10;

/// `MFD_NOEXEC_SEAL`: not yet among nix's flags.
const NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);

/// A new file of `bytes` bytes, close-on-exec, still open to seals.
///
/// The second value is the kernel's reason when it does not know `MFD_NOEXEC_SEAL`.
pub(crate) fn create(
    name: &str,
    bytes: usize,
    from_pool: bool,
) -> Result<(OwnedFd, Option<Errno>), Errno> {
    let mut flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    if from_pool {
        flags |= MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB;
    }
    let (file, refusal) = match memfd_create(name, flags | NOEXEC_SEAL) {
        Ok(file) => (file, None),
        Err(refusal) => (memfd_create(name, flags)?, Some(refusal)),
    };
    ftruncate(&file, i64::try_from(bytes).map_err(|_too_large| Errno::EFBIG)?)?;
    Ok((file, refusal))
}

/// Fixes the length for ever, for every holder of the descriptor, and allows no further seal.
pub(crate) fn seal_length(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(file, FcntlArg::F_ADD_SEALS(seals)).map(drop)
}

/// Whether the file has a length for ever, as [`seal_length`] leaves it. No ordinary file has.
pub(crate) fn is_sealed(file: BorrowedFd<'_>) -> bool {
    let wanted = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(file, FcntlArg::F_GET_SEALS)
        .is_ok_and(|seals| SealFlag::from_bits_retain(seals).contains(wanted))
}

/// Whether the file can never become shorter: only then is reading a mapping of it safe.
///
/// Files that know no seals answer no.
pub(crate) fn cannot_shrink(file: BorrowedFd<'_>) -> bool {
    fcntl(file, FcntlArg::F_GET_SEALS)
        .is_ok_and(|seals| SealFlag::from_bits_retain(seals).contains(SealFlag::F_SEAL_SHRINK))
}

/// The file's length in bytes.
pub(crate) fn length(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    u64::try_from(fstat(file)?.st_size).map_err(|_negative| Errno::EINVAL)
}

/// Which file of this host it is: file system and inode, little-endian. The kernel makes each memory file on its own
/// inode, whose number comes again only after 2^32 others.
pub(crate) fn id(file: BorrowedFd<'_>) -> Result<[u8; 16], Errno> {
    let status = fstat(file)?;
    let mut id = [0; 16];
    id[..8].copy_from_slice(&status.st_dev.to_le_bytes());
    id[8..].copy_from_slice(&status.st_ino.to_le_bytes());
    Ok(id)
}

/// Whether the file's pages come from the huge page pool.
pub(crate) fn is_from_pool(file: BorrowedFd<'_>) -> bool {
    fstatfs(file).is_ok_and(|status| status.filesystem_type() == HUGETLBFS_MAGIC)
}
