//! Where engines connect: what is at the socket's path, who listens there, and whether an engine gets in.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvd_proto::frame;
use kvd_proto::pack::{Array, Fields};
use kvd_proto::v2::PROTOCOL_VERSION;
use kvd_proto::v2::hello::{Hello, HelloAck};
use kvd_shm::peer;
use nix::unistd::{AccessFlags, access};

use crate::config::Settings;

/// How long whoever listens may take for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// More than an answer to a hello ever has.
const ANSWER_BYTES_MAX: u32 = 64 << 10;

/// The socket and the way to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Door {
    pub(super) place: Place,
    /// Folders on the way that people who are neither their owner nor in their group can't pass.
    pub(super) closed_folders: Vec<PathBuf>,
    /// Whether this process may give a file to the configured group.
    pub(super) may_give: bool,
    /// Whether the configured TCP address can be had; `None` without one.
    pub(super) metrics: Option<Result<(), String>>,
    /// Whether engines that are told nothing come to this socket.
    pub(super) is_default: bool,
}

/// What is at the path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing, or a socket that nobody listens on: the daemon can make its own.
    Free,
    /// Nothing, and the daemon can't make one either.
    Barred(String),
    /// Something that is no socket.
    Other,
    /// Somebody listens.
    Served { holder: Option<i32>, answer: Result<Attached, String> },
    /// Somebody listens who does not let this user in.
    Closed,
}

/// An attached session, as an engine has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attached {
    pub(super) server: String,
    pub(super) session: u64,
}

impl Door {
    pub(super) fn look(settings: &Settings) -> Self {
        let place = place(&settings.socket);
        let is_free = matches!(place, Place::Free);
        Self {
            closed_folders: closed_folders(&settings.socket),
            may_give: settings.socket_group.is_none_or(may_give),
            // Whoever serves the socket has the address already.
            metrics: settings.metrics_listen.filter(|_| is_free).map(|address| {
                std::net::TcpListener::bind(address).map(drop).map_err(|error| error.to_string())
            }),
            is_default: is_default(&settings.socket),
            place,
        }
    }
}

fn place(socket: &Path) -> Place {
    match fs::symlink_metadata(socket) {
        Ok(found) if !found.file_type().is_socket() => return Place::Other,
        Ok(_) => {}
        Err(_) => return room_for(socket),
    }
    match UnixStream::connect(socket) {
        Ok(stream) => {
            let holder = peer::credentials(&stream).ok().and_then(|peer| peer.pid);
            let answer = attach(stream).map_err(|error| error.to_string());
            Place::Served { holder, answer }
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Place::Closed,
        Err(_nobody) => room_for(socket),
    }
}

/// Whether the folder of a socket, or the nearest one that is there, can be written to.
fn room_for(socket: &Path) -> Place {
    let folder = nearest(socket.parent().unwrap_or(Path::new("/")));
    match access(folder, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Place::Free,
        Err(errno) => Place::Barred(format!("{}: {errno}", folder.display())),
    }
}

/// The path, or what is there of it.
pub(super) fn nearest(path: &Path) -> &Path {
    let mut ancestors = path.ancestors();
    ancestors.find(|folder| folder.is_dir()).unwrap_or(Path::new("/"))
}

/// Says hello as an engine does that does not want the arena, and leaves.
fn attach(mut stream: UnixStream) -> io::Result<Attached> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let hello = Hello {
        client_id: "infera-kvd doctor",
        protocol_version: PROTOCOL_VERSION,
        prefers_shared_arena: false,
        features: Array::Slice(&[]),
    };
    let mut asked = Vec::new();
    hello.encode(&mut asked);
    stream.write_all(&asked)?;
    let mut prefix = [0; frame::PREFIX_BYTES];
    stream.read_exact(&mut prefix)?;
    let length = frame::parse_prefix(prefix, ANSWER_BYTES_MAX).map_err(io::Error::other)?;
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body)?;
    let answer = Fields::parse(&body).and_then(|fields| HelloAck::decode(&fields));
    let answer = answer.map_err(io::Error::other)?;
    Ok(Attached { server: answer.server_id.to_owned(), session: answer.session.0 })
}

fn closed_folders(socket: &Path) -> Vec<PathBuf> {
    let folders = socket.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    let is_closed = |folder: &&Path| {
        fs::metadata(folder).is_ok_and(|found| found.is_dir() && found.mode() & 0o001 == 0)
    };
    folders.filter(is_closed).map(Path::to_path_buf).collect()
}

fn may_give(group: u32) -> bool {
    let is_member = |gid: &nix::unistd::Gid| gid.as_raw() == group;
    nix::unistd::geteuid().is_root()
        || is_member(&nix::unistd::getegid())
        || nix::unistd::getgroups().is_ok_and(|groups| groups.iter().any(is_member))
}

/// Whether the default path is this one or leads to it.
fn is_default(socket: &Path) -> bool {
    let default = Path::new(crate::config::DEFAULT_SOCKET);
    let is_same = |one: io::Result<PathBuf>, other: io::Result<PathBuf>| matches!((one, other), (Ok(one), Ok(other)) if one == other);
    socket == default || is_same(socket.canonicalize(), default.canonicalize())
}
