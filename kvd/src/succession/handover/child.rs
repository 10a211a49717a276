//! A successor that the running daemon starts itself: the program that is installed now, with the same arguments.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::line::Line;
use super::{AT_STANDARD_INPUT, PREDECESSOR};

/// What the service manager says to one process alone.
const OF_THIS_PROCESS: [&str; 4] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"];

/// Starts it; it finds this daemon at its standard input.
///
/// # Errors
/// As `execve(2)`.
pub fn start(program: &Path) -> io::Result<(Child, Line)> {
    let (near, far) = UnixStream::pair()?;
    let mut command = Command::new(installed(program));
    command.args(std::env::args_os().skip(1)).stdin(Stdio::from(OwnedFd::from(far)));
    command.env(PREDECESSOR, AT_STANDARD_INPUT);
    for name in OF_THIS_PROCESS {
        command.env_remove(name);
    }
    Ok((command.spawn()?, Line::new(near)))
}

/// The daemon that started this process to be succeeded, if one did.
///
/// # Errors
/// Standard input cannot be used.
pub fn parent() -> io::Result<Option<Line>> {
    if std::env::var_os(PREDECESSOR).is_none_or(|place| place != AT_STANDARD_INPUT) {
        return Ok(None);
    }
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Whatever is there has to be a socket.
    stream.local_addr()?;
    Ok(Some(Line::new(stream)))
}

/// Of a program whose file was replaced the kernel says so behind its path.
fn installed(program: &Path) -> PathBuf {
    let bytes = program.as_os_str().as_bytes();
    let path = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    PathBuf::from(OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_took_the_place_is_started() {
        assert_eq!(installed(Path::new("/usr/bin/kvd (deleted)")), Path::new("/usr/bin/kvd"));
        assert_eq!(installed(Path::new("/usr/bin/kvd")), Path::new("/usr/bin/kvd"));
    }
}
