//! What a daemon left in memory and on disk, kept in files, and put where another daemon finds it.
//!
//! Three words of a ledger tell this host from others: the identity of the arena's file and the PID namespace. They
//! are written anew, with the checksum over the first; every other byte stays as it was left.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use kvd_shm::checksum::Checksum;
use kvd_shm::peer::pid_namespace;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::disk::{Directory, OURS};
use crate::sparse;
use crate::supervisor::Supervisor;

/// The name under which the daemon leaves its arena.
pub const ARENA: &str = "kvd-arena";
/// The name under which the daemon leaves its ledger.
pub const LEDGER: &str = "kvd-ledger";

/// Where the state of the format that was landed first is kept.
#[must_use]
pub fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/state")
}

/// Keeps in `folder` what the service manager and a directory of the disk tier hold. No daemon may run.
///
/// # Panics
/// If something is missing, or cannot be read or written.
pub fn save(folder: &Path, supervisor: &Supervisor, directory: &Directory) {
    let disk = folder.join("disk");
    fs::create_dir_all(&disk).expect("a folder for the state");
    for name in [ARENA, LEDGER] {
        let left = File::from(supervisor.descriptors(name).remove(0));
        write_packed(&folder.join(name), &left);
    }
    for entry in fs::read_dir(directory.path().join(OURS)).expect("listing the directory") {
        let entry = entry.expect("an entry");
        // Names a process.
        if entry.file_name() != "lock" {
            write_packed(
                &disk.join(entry.file_name()),
                &File::open(entry.path()).expect("opening it"),
            );
        }
    }
}

fn write_packed(path: &Path, file: &File) {
    let packed = sparse::pack(file).expect("reading it");
    fs::write(path, packed).expect("writing it");
}

/// Gives the service manager arena and ledger of a state, as if a daemon of this host had left them.
///
/// # Panics
/// If there is no such state, or no memory.
pub fn leave_in_memory(folder: &Path, supervisor: &Supervisor) {
    let arena = memory_file(&folder.join(ARENA));
    let ledger = memory_file(&folder.join(LEDGER));
    let found = arena.metadata().expect("looking at the arena");
    let id = [found.dev().to_le_bytes(), found.ino().to_le_bytes()].concat();
    ledger.write_all_at(&id, 16).expect("writing the arena's identity");
    seal_header(&ledger);
    let namespace = pid_namespace().expect("this process's PID namespace");
    let front = ledger.metadata().expect("looking at the ledger").len() - 4096;
    ledger.write_all_at(&namespace.to_le_bytes(), front + 16).expect("writing the namespace");
    supervisor.keep(ARENA, arena);
    supervisor.keep(LEDGER, ledger);
}

/// Writes the checksum of a ledger's header anew.
///
/// # Panics
/// If it cannot be read or written.
pub fn seal_header(ledger: &File) {
    let mut header = [0; 80];
    ledger.read_exact_at(&mut header, 0).expect("reading the header");
    let mut checksum = Checksum::new();
    checksum.update(&header);
    ledger.write_all_at(&checksum.value().to_le_bytes(), 80).expect("writing its checksum");
}

/// Makes a directory of the disk tier out of a state.
///
/// # Panics
/// If there is no such state, or no room.
pub fn leave_on_disk(folder: &Path, directory: &Directory) {
    let ours = directory.path().join(OURS);
    fs::create_dir(&ours).expect("the daemon's own folder");
    for entry in fs::read_dir(folder.join("disk")).expect("listing the state") {
        let entry = entry.expect("an entry");
        let file = File::create(ours.join(entry.file_name())).expect("making a file");
        fill(&file, &fs::read(entry.path()).expect("reading it"));
    }
}

/// A file as the daemon makes them for arena and ledger: its length is sealed.
fn memory_file(packed: &Path) -> File {
    let packed = fs::read(packed).unwrap_or_else(|trouble| panic!("{packed:?}: {trouble}"));
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file: OwnedFd = memfd_create("kvd-tests-state", flags).expect("memory");
    let file = File::from(file);
    fill(&file, &packed);
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).expect("sealing it");
    file
}

fn fill(file: &File, packed: &[u8]) {
    file.set_len(sparse::len_bytes(packed)).expect("giving it its length");
    sparse::unpack(packed, file).expect("filling it");
}
