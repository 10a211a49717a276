//! A daemon that does what a test tells it, frame by frame, in a thread of its own.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use kvd_client::{Client, Namespace, Options};
use kvd_proto::arena_offer::ArenaOffer;
use kvd_proto::frame::{PREFIX_BYTES, V2_FRAME_BYTES_MAX, parse_prefix};
use kvd_proto::ids::{Epoch, LeaseId, SessionId, TicketId};
use kvd_proto::pack::{Array, Pairs};
use kvd_proto::v2::fetch::{FetchedRow, FetchedRows};
use kvd_proto::v2::hello::{HelloAck, Limits};
use kvd_proto::v2::reserve::{ReservedRow, ReservedRows};
use kvd_proto::v2::resume::Resumed;
use kvd_proto::v2::stats::StatsReply;
use kvd_proto::v2::{Reply, Request, feature};
use kvd_shm::arena::{Arena, ArenaConfig};
use kvd_shm::descriptor::{receive_with_descriptors, send_with_descriptor};
use kvd_shm::numa::NumaPolicy;

pub(crate) const ARENA_BYTES: u64 = 1 << 20;
pub(crate) const SPACE: Namespace<'static> = Namespace { model: "m", compat_key: "c" };

/// Long enough for any machine: tests that use it do not expect it to pass.
pub(crate) const PLENTY: Duration = Duration::from_secs(60);

/// Short enough to wait for.
pub(crate) const MOMENT: Duration = Duration::from_millis(20);

pub(crate) struct ScriptedDaemon {
    folder: tempfile::TempDir,
    script: JoinHandle<()>,
}

impl ScriptedDaemon {
    pub(crate) fn run(script: impl FnOnce(&UnixListener) + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(socket_in(folder.path())).unwrap();
        let script = Builder::new().name("script".into()).spawn(move || script(&listener));
        Self { folder, script: script.unwrap() }
    }

    /// A client with plenty of time.
    pub(crate) fn client(&self) -> Client {
        let mut options = Options::new(socket_in(self.folder.path()), "scripted");
        options.deadline = PLENTY;
        options.connect_deadline = PLENTY;
        Client::new(options)
    }

    /// The same, attached: for tests with short deadlines, which the greeting could use up.
    pub(crate) fn attached_client(&self) -> Client {
        let client = self.client();
        client.attach().unwrap();
        client
    }

    /// Waits for the script's end; its failed assertions become the test's.
    pub(crate) fn end(self) {
        if let Err(panic) = self.script.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

pub(crate) fn socket_in(folder: &Path) -> PathBuf {
    folder.join("kvd.sock")
}

pub(crate) fn arena() -> Arena {
    let numa = NumaPolicy::Interleave;
    Arena::create(ArenaConfig { bytes: ARENA_BYTES, hugetlb: false, numa, pin: false }).unwrap()
}

/// The daemon's end of one connection.
pub(crate) struct Session {
    pub(crate) stream: UnixStream,
}

pub(crate) fn accept(listener: &UnixListener) -> Session {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PLENTY)).unwrap();
    Session { stream }
}

/// Accepts and greets as an orderly daemon of this epoch, session and arena.
pub(crate) fn attach(listener: &UnixListener, epoch: u64, session: u64, arena: &Arena) -> Session {
    attach_as(listener, arena, ack(epoch, session, Some(arena.bytes())))
}

/// As [`attach`], of a daemon that has every ability.
pub(crate) fn attach_able(
    listener: &UnixListener,
    epoch: u64,
    session: u64,
    arena: &Arena,
) -> Session {
    let features = Array::Slice(&feature::ALL);
    attach_as(listener, arena, HelloAck { features, ..ack(epoch, session, Some(arena.bytes())) })
}

/// Accepts and greets with this answer.
pub(crate) fn attach_as(listener: &UnixListener, arena: &Arena, ack: HelloAck<'_>) -> Session {
    let mut peer = accept(listener);
    peer.hear_hello();
    peer.send(&Reply::HelloAck(ack));
    peer.pass(arena.descriptor());
    peer
}

pub(crate) fn ack(epoch: u64, session: u64, arena_bytes: Option<u64>) -> HelloAck<'static> {
    HelloAck {
        server_id: "kvd-00000001",
        protocol_version: 2,
        shared_arena: arena_bytes.map(|size_bytes| ArenaOffer {
            size_bytes,
            slot_size_bytes: 0,
            server_pid: 1,
        }),
        epoch: Epoch(epoch),
        session: SessionId(session),
        features: Array::Slice(&[]),
        limits: Limits {
            keys_max: 4096,
            frame_bytes_max: V2_FRAME_BYTES_MAX.into(),
            leases_max: 1 << 16,
            tickets_max: 4096,
            in_flight_bytes_max: ARENA_BYTES,
            value_bytes_max: ARENA_BYTES,
        },
    }
}

impl Session {
    /// Reads the first frame; returns whether a descriptor of the client came with it.
    pub(crate) fn hear_hello(&mut self) -> bool {
        let (body, passed) = self.hear_first();
        assert!(matches!(Request::decode(&body), Ok(Request::Hello(_))));
        passed == 1
    }

    /// Reads the first frame: its body.
    pub(crate) fn hear_hello_body(&mut self) -> Vec<u8> {
        self.hear_first().0
    }

    fn hear_first(&mut self) -> (Vec<u8>, usize) {
        let mut first = [0; 1];
        let (received, passed) =
            receive_with_descriptors(self.stream.as_fd(), &mut first, 1).unwrap();
        assert_eq!(received, 1);
        let mut prefix = [first[0], 0, 0, 0];
        self.stream.read_exact(&mut prefix[1..]).unwrap();
        (self.body(prefix), passed.len())
    }

    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let mut prefix = [0; PREFIX_BYTES];
        self.stream.read_exact(&mut prefix).unwrap();
        self.body(prefix)
    }

    fn body(&mut self, prefix: [u8; PREFIX_BYTES]) -> Vec<u8> {
        let len = parse_prefix(prefix, V2_FRAME_BYTES_MAX).unwrap();
        let mut body = vec![0; len as usize];
        self.stream.read_exact(&mut body).unwrap();
        body
    }

    /// Reads a fetch: its number and how many keys it asks for.
    pub(crate) fn hear_fetch(&mut self) -> (u64, usize) {
        let body = self.receive();
        match Request::decode(&body) {
            Ok(Request::Fetch(fetch)) => (fetch.id, fetch.keys.len()),
            other => panic!("not a fetch: {other:?}"),
        }
    }

    /// Reads a reserve: its number and the lengths.
    pub(crate) fn hear_reserve(&mut self) -> (u64, Vec<u64>) {
        let body = self.receive();
        match Request::decode(&body) {
            Ok(Request::Reserve(reserve)) => (reserve.id, reserve.lens.iter().collect()),
            other => panic!("not a reserve: {other:?}"),
        }
    }

    /// Reads a stats request: its number.
    pub(crate) fn hear_stats(&mut self) -> u64 {
        let body = self.receive();
        match Request::decode(&body) {
            Ok(Request::Stats(stats)) => stats.id,
            other => panic!("not stats: {other:?}"),
        }
    }

    /// Reads a release: the leases.
    pub(crate) fn hear_release(&mut self) -> Vec<u64> {
        let body = self.receive();
        match Request::decode(&body) {
            Ok(Request::Release(release)) => release.leases.iter().collect(),
            other => panic!("not a release: {other:?}"),
        }
    }

    /// Reads a cancel: its number and the tickets.
    pub(crate) fn hear_cancel(&mut self) -> (u64, Vec<u64>) {
        let body = self.receive();
        match Request::decode(&body) {
            Ok(Request::Cancel(cancel)) => (cancel.id, cancel.tickets.iter().collect()),
            other => panic!("not a cancel: {other:?}"),
        }
    }

    /// Reads what the client says of earlier connections: leases, tickets, sessions. Answers if `answers`.
    pub(crate) fn hear_resume(&mut self, answers: bool) -> [Vec<u64>; 3] {
        let body = self.receive();
        let Ok(Request::Resume(resume)) = Request::decode(&body) else {
            panic!("not a resume: {:?}", Request::decode(&body));
        };
        if answers {
            self.send(&Reply::Resumed(Resumed { id: resume.id, rights: 0, sessions: 0 }));
        }
        [resume.leases, resume.tickets, resume.sessions].map(|column| column.iter().collect())
    }

    pub(crate) fn send(&mut self, reply: &Reply<'_>) {
        self.send_bytes(&encoded(reply));
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn pass(&mut self, descriptor: BorrowedFd<'_>) {
        assert_eq!(send_with_descriptor(self.stream.as_fd(), b"F", descriptor).unwrap(), 1);
    }

    /// Answers the next request, which must be stats, with one figure.
    pub(crate) fn answer_stats(&mut self, figure: u64) {
        let id = self.hear_stats();
        self.send(&Reply::Stats(StatsReply { id, values: Pairs::Slice(&[("figure", figure)]) }));
    }

    /// Waits until the client has closed the connection; nothing else may come before.
    pub(crate) fn hear_end(&mut self) {
        let mut rest = Vec::new();
        // A reset is an end too: it means that the client left bytes unread.
        if self.stream.read_to_end(&mut rest).is_ok() {
            assert_eq!(rest, b"");
        }
    }
}

pub(crate) fn encoded(reply: &Reply<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    reply.encode(&mut frame);
    frame
}

/// An answer to a fetch: a hit of `len_bytes` at each offset, with leases counted from `lease`.
pub(crate) fn fetched(id: u64, lease: u64, offsets: &[u64], len_bytes: u64) -> Vec<u8> {
    let mut rows = FetchedRows::default();
    for (lease, &offset) in (lease..).zip(offsets) {
        rows.push(FetchedRow::Hit { lease: LeaseId(lease), offset, len_bytes });
    }
    encoded(&Reply::Fetched(rows.reply(id)))
}

/// An answer to a reserve: an extent at each offset, with tickets counted from `ticket`.
pub(crate) fn reserved(id: u64, ticket: u64, offsets: &[u64]) -> Vec<u8> {
    let mut rows = ReservedRows::default();
    for (ticket, &offset) in (ticket..).zip(offsets) {
        rows.push(ReservedRow::Granted { ticket: TicketId(ticket), offset });
    }
    encoded(&Reply::Reserved(rows.reply(id)))
}

/// The one figure of an answer to stats.
pub(crate) fn figure(client: &Client) -> u64 {
    client.stats().unwrap()[0].1
}
