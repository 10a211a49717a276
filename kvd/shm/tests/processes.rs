//! Who is at the other end, and when it is gone: with real processes that are really killed.

#![expect(unsafe_code, reason = "pidfd_open, to watch children that have no socket to ask")]
#![expect(clippy::unwrap_used, reason = "test code")]

use std::io::Write;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kvd_shm::exit_watch::ExitWatch;
use kvd_shm::peer::{self, NoPidfd, NotThePeer, PeerCredentials};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// Long enough for the slowest machine, and never waited out unless a test fails.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// A process that lives until it is killed or its input ends.
fn child() -> Child {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

fn pidfd_of(child: &Child) -> OwnedFd {
    // SAFETY: takes two integers and touches no memory of ours.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    let raw = RawFd::try_from(raw).unwrap();
    assert!(raw >= 0, "no descriptor of our own child");
    // SAFETY: the kernel opened it for this call; nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

#[test]
fn a_killed_process_is_reported_once() {
    let watch = ExitWatch::new().unwrap();
    let mut doomed = child();
    let mut other = child();
    watch.watch(pidfd_of(&doomed), 7).unwrap();
    watch.watch(pidfd_of(&other), 8).unwrap();
    assert!(watch.wait(AT_ONCE).unwrap().is_empty(), "both are alive");
    doomed.kill().unwrap();
    // Not reaped yet: the report does not depend on the parent.
    assert_eq!(watch.wait(PATIENCE).unwrap(), [7]);
    assert!(watch.wait(AT_ONCE).unwrap().is_empty(), "reported once");
    assert!(!watch.unwatch(7), "the report ended the watch");
    assert_eq!(watch.watched(), 1);
    doomed.wait().unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(watch.wait(PATIENCE).unwrap(), [8]);
    assert_eq!(watch.watched(), 0);
}

#[test]
fn a_process_that_is_gone_already_is_reported_too() {
    let watch = ExitWatch::new().unwrap();
    let mut gone = child();
    let pidfd = pidfd_of(&gone);
    gone.kill().unwrap();
    gone.wait().unwrap();
    watch.watch(pidfd, 0).unwrap();
    assert_eq!(watch.wait(PATIENCE).unwrap(), [0]);
}

#[test]
fn an_unwatched_process_is_not_reported() {
    let watch = ExitWatch::new().unwrap();
    let mut gone = child();
    let pidfd = pidfd_of(&gone);
    // A duplicate keeps the kernel's file alive, so that closing ours alone would not do.
    let duplicate = pidfd.try_clone().unwrap();
    watch.watch(pidfd, 3).unwrap();
    assert!(watch.unwatch(3));
    assert!(!watch.unwatch(3));
    gone.kill().unwrap();
    gone.wait().unwrap();
    assert!(watch.wait(AT_ONCE).unwrap().is_empty());
    // The token is free again, and the old process is not taken for the new one.
    let mut alive = child();
    watch.watch(pidfd_of(&alive), 3).unwrap();
    assert!(watch.wait(AT_ONCE).unwrap().is_empty(), "the one that is watched now is alive");
    alive.kill().unwrap();
    assert_eq!(watch.wait(PATIENCE).unwrap(), [3]);
    alive.wait().unwrap();
    drop(duplicate);
}

#[test]
fn more_exits_than_one_report_holds() {
    let watch = ExitWatch::new().unwrap();
    let mut gone = child();
    let pidfd = pidfd_of(&gone);
    for token in 0..150 {
        watch.watch(pidfd.try_clone().unwrap(), token).unwrap();
    }
    gone.kill().unwrap();
    gone.wait().unwrap();
    let mut reported = Vec::new();
    while watch.watched() > 0 {
        reported.extend(watch.wait(PATIENCE).unwrap());
    }
    reported.sort_unstable();
    assert!(reported.into_iter().eq(0..150));
}

#[test]
fn a_wake_ends_the_wait() {
    let watch = ExitWatch::new().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| watch.wait(None).unwrap());
        watch.wake().unwrap();
        assert!(waiting.join().unwrap().is_empty());
    });
    // A wake before the wait counts, two of them once.
    watch.wake().unwrap();
    watch.wake().unwrap();
    assert!(watch.wait(None).unwrap().is_empty());
    assert!(watch.wait(AT_ONCE).unwrap().is_empty());
}

#[test]
fn a_short_wait_ends_by_itself() {
    let watch = ExitWatch::new().unwrap();
    assert!(watch.wait(Some(Duration::from_nanos(1))).unwrap().is_empty());
}

#[test]
#[should_panic(expected = "watched already")]
fn a_token_is_used_once_at_a_time() {
    let watch = ExitWatch::new().unwrap();
    watch.watch(peer::own_pidfd().unwrap(), 1).unwrap();
    drop(watch.watch(peer::own_pidfd().unwrap(), 1));
}

#[test]
fn the_peer_of_a_pair_is_this_process() {
    let (socket, _peer) = UnixStream::pair().unwrap();
    let found = peer::credentials(&socket).unwrap();
    assert_eq!(found.pid.map(i32::unsigned_abs), Some(std::process::id()));
    assert_eq!(found.uid, nix::unistd::geteuid().as_raw());
    assert_eq!(found.gid, nix::unistd::getegid().as_raw());
}

/// A process that connects to a listening socket and keeps the connection until it is killed.
fn connected_child() -> (Child, UnixStream) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let script = "import socket, sys\n\
                  s = socket.socket(socket.AF_UNIX)\n\
                  s.connect(sys.argv[1])\n\
                  sys.stdin.read()\n";
    let child = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let (socket, _address) = listener.accept().unwrap();
    (child, socket)
}

#[test]
fn the_kernel_names_the_peer_and_tells_its_exit() {
    let (mut child, mut socket) = connected_child();
    let credentials = peer::credentials(&socket).unwrap();
    assert_eq!(credentials.pid.map(i32::unsigned_abs), Some(child.id()));
    let pidfd = match peer::pidfd(&socket) {
        Ok(pidfd) => pidfd,
        // A kernel before 6.5: then the client passes one.
        Err(NoPidfd::Unavailable(_)) => pidfd_of(&child),
        Err(NoPidfd::Exited) => panic!("it is alive"),
    };
    let flags = fcntl(&pidfd, FcntlArg::F_GETFD).unwrap();
    assert!(FdFlag::from_bits_retain(flags).contains(FdFlag::FD_CLOEXEC));
    peer::verify_pidfd(pidfd.as_fd(), &credentials).unwrap();
    let kept = pidfd.try_clone().unwrap();
    let watch = ExitWatch::new().unwrap();
    watch.watch(pidfd, 1).unwrap();
    assert!(watch.wait(AT_ONCE).unwrap().is_empty());
    child.kill().unwrap();
    assert_eq!(watch.wait(PATIENCE).unwrap(), [1]);
    child.wait().unwrap();
    let refused = peer::verify_pidfd(kept.as_fd(), &credentials).unwrap_err();
    assert!(matches!(refused, NotThePeer::Exited), "{refused:?}");
    assert!(socket.write_all(b"anybody there?").is_err());
}

#[test]
fn a_peer_that_is_gone_is_known_to_be_gone() {
    let (mut child, socket) = connected_child();
    child.kill().unwrap();
    child.wait().unwrap();
    match peer::pidfd(&socket) {
        // Newer kernels still give a descriptor, of a process that has exited.
        Ok(pidfd) => {
            let watch = ExitWatch::new().unwrap();
            watch.watch(pidfd, 1).unwrap();
            assert_eq!(watch.wait(PATIENCE).unwrap(), [1]);
        }
        Err(NoPidfd::Exited | NoPidfd::Unavailable(_)) => {}
    }
}

#[test]
fn a_passed_descriptor_must_stand_for_the_peer() {
    let (socket, _peer) = UnixStream::pair().unwrap();
    let credentials = peer::credentials(&socket).unwrap();
    let own = peer::own_pidfd().unwrap();
    let flags = fcntl(&own, FcntlArg::F_GETFD).unwrap();
    assert!(FdFlag::from_bits_retain(flags).contains(FdFlag::FD_CLOEXEC));
    peer::verify_pidfd(own.as_fd(), &credentials).unwrap();

    let mut other = child();
    let refused = peer::verify_pidfd(pidfd_of(&other).as_fd(), &credentials).unwrap_err();
    assert!(
        matches!(refused, NotThePeer::Another { found, .. } if found.unsigned_abs() == other.id())
    );
    other.kill().unwrap();
    other.wait().unwrap();

    let file = tempfile::tempfile().unwrap();
    let refused = peer::verify_pidfd(file.as_fd(), &credentials).unwrap_err();
    assert!(matches!(refused, NotThePeer::NotAPidfd), "{refused:?}");

    let elsewhere = PeerCredentials { pid: None, ..credentials };
    let refused = peer::verify_pidfd(own.as_fd(), &elsewhere).unwrap_err();
    assert!(matches!(refused, NotThePeer::Invisible), "{refused:?}");
}
