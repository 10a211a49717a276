//! Bytes that no client should send, and clients that send too much or read nothing: a clear answer or a closed
//! connection, and nobody else notices.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::io::IoSlice;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use kvd_tests::client::ClientProcess;
use kvd_tests::content::{Random, bytes_of};
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of, store, store_blocks};
use kvd_tests::figures::{check_space, figure, wait_idle, wait_no_leak, wait_warm};
use kvd_tests::until::until_true;
use kvd_tests::wire::{Message, Value, Wire, column, frame, key_columns, message};
use kvd_tests::{Daemon, Launch, PATIENCE};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

const SMALL: &[&str] = &["--max-bytes", "32M"];
/// Odd frames per protocol.
const FRAMES: usize = 10_000;
/// What a daemon may keep for itself after any of these cases: buffers, not what was claimed.
const GROWTH_KIB: u64 = 8 << 10;

fn warm_daemon() -> Daemon {
    let daemon = Daemon::start(SMALL);
    wait_warm(&daemon);
    daemon
}

fn hello(version: u64) -> Vec<u8> {
    message(
        "hello",
        &[
            ("client_id", Value::from("odd")),
            ("protocol_version", Value::from(version)),
            ("prefers_shared_arena", Value::from(true)),
        ],
    )
}

/// A right message of each kind of protocol 1.
fn right_messages_v1() -> Vec<Vec<u8>> {
    let keys = || Value::Array(vec![Value::from(&b"a"[..]), Value::from(&b"b"[..])]);
    let texts = |text: &str| Value::Array(vec![Value::from(text), Value::from(text)]);
    let maps = || Value::Array(vec![Value::Map(vec![]), Value::Map(vec![])]);
    let key = ("key", Value::from(&b"some key"[..]));
    let set =
        [key.clone(), ("value", Value::from(vec![7; 300])), ("retention", Value::from("long"))];
    let batch = [
        ("keys", keys()),
        ("values", keys()),
        ("retentions", texts("short")),
        ("metadatas", maps()),
    ];
    let commit = [("lease_token", Value::from(1)), key.clone(), ("length", Value::from(10))];
    vec![
        message("hello", &[("client_id", Value::from("odd"))]),
        message("get", &[key.clone(), ("model", Value::from("m"))]),
        message("batch_get", &[("keys", keys()), ("compat_key", Value::from("c"))]),
        message("set", &set),
        message("batch_set", &batch),
        message("set_reserve", &[("size", Value::from(5_000))]),
        message("set_commit", &commit),
        message("set_cancel", &[("lease_token", Value::from(1))]),
        message("prefetch_hint", &[("keys", keys()), ("deadline_ms", Value::from(5))]),
        message("exists", &[("keys", keys())]),
        message("clear", &[("model", Value::from("nobody's"))]),
        message("stats", &[]),
    ]
}

/// A right message of each kind of protocol 2.
fn right_messages_v2() -> Vec<Vec<u8>> {
    let (lens, keys) = key_columns(&[b"a", b"bb"]);
    let named = |id: u64| {
        vec![
            ("id", Value::from(id)),
            ("model", Value::from("m")),
            ("compat_key", Value::from("c")),
            ("key_lens", lens.clone()),
            ("keys", keys.clone()),
        ]
    };
    let locate = [named(1), vec![("prefix", Value::from(false))]].concat();
    let fetch = [locate.clone(), vec![("deadline_ms", Value::from(100))]].concat();
    let epoch = ("epoch", Value::from(1));
    let commit = [
        named(2),
        vec![
            epoch.clone(),
            ("retention", Value::from("short")),
            ("ttl_ms", Value::from(0)),
            ("tickets", column(&[1, 2])),
            ("lens", column(&[3, 4])),
            ("lineages", Value::Nil),
        ],
    ]
    .concat();
    let reserve = [
        ("id", Value::from(3)),
        ("retention", Value::from("short")),
        ("lens", column(&[100, 200_000])),
    ];
    let clear = [
        ("id", Value::from(4)),
        ("model", Value::from("nobody's")),
        ("compat_key", Value::Nil),
        ("everything", Value::from(false)),
    ];
    let cancel = [("id", Value::from(5)), epoch.clone(), ("tickets", column(&[1, 2]))];
    vec![
        hello(2),
        message("locate", &locate),
        message("fetch", &fetch),
        message("release", &[epoch, ("leases", column(&[1, 2, 3]))]),
        message("reserve", &reserve),
        message("commit", &commit),
        message("cancel", &cancel),
        message("clear", &clear),
        message("stats", &[("id", Value::from(6))]),
    ]
}

/// Random bytes with a right length before them, or a right message with something wrong about it.
fn odd_frame(random: &mut Random, right: &[Vec<u8>]) -> Vec<u8> {
    let len = random.below(200);
    if random.below(5) == 0 {
        return frame(&random.bytes(len));
    }
    let mut odd = right[random.below(right.len())].clone();
    for _ in 0..random.below(3) {
        let at = 4 + random.below(odd.len() - 4);
        match random.below(6) {
            0 => odd[at] ^= 1 << random.below(8),
            1 => odd[at] = [0xC0, 0xC1, 0xC6, 0xDB, 0xDD, 0xDF, 0xFF, 0x00][random.below(8)],
            2 => odd.truncate(at + 1),
            3 => {
                let more = random.bytes(len);
                odd.splice(at..at, more);
            }
            4 => {
                let other = &right[random.below(right.len())];
                odd.extend_from_slice(&other[4..]);
            }
            // Nothing wrong, so that odd frames meet a daemon that has something to lose.
            _ => {}
        }
    }
    // One of eight keeps a length that is wrong for its body.
    if random.below(8) > 0 {
        let body = odd.split_off(4);
        odd = frame(&body);
    }
    odd
}

/// Sends one odd frame on a connection of its own and reads all answers to their end.
fn send_odd(daemon: &Daemon, greeting: Option<&[u8]>, odd: &[u8]) -> Vec<Message> {
    let mut wire = daemon.connect();
    if let Some(hello) = greeting {
        wire.send(hello);
        assert_eq!(wire.receive().map(|ack| ack.op().to_owned()).as_deref(), Some("hello_ack"));
        drop(wire.receive_descriptor());
    }
    // The daemon may close before it has read all of it.
    if wire.try_send(odd).is_ok() {
        let _may_be_closed = wire.stream().shutdown(std::net::Shutdown::Write);
    }
    std::iter::from_fn(|| wire.receive()).collect()
}

/// What a client of its own sees while odd frames come in.
fn witness(daemon: &Daemon) {
    let client = client_at(daemon.socket());
    check(&client, &key_of(0), 10_000);
    store(&client, &key_of(1), 100_000);
    check(&client, &key_of(1), 100_000);
}

fn outlives_odd_frames(seed: u64, right: &[Vec<u8>], greeting: Option<&[u8]>) {
    // A line for each session that is closed would bury what matters.
    let daemon = Launch::new()
        .args(["--max-bytes", "32M", "--log-level", "WARNING"])
        .announce("quarantine released by hand")
        .start();
    wait_warm(&daemon);
    store_blocks(&client_at(daemon.socket()), 2, 10_000);
    wait_idle(&daemon, PATIENCE);
    let before = daemon.facts();
    let mut random = Random::seeded(seed);
    let mut answered = 0;
    for number in 0..FRAMES {
        let odd = odd_frame(&mut random, right);
        let answers = send_odd(&daemon, greeting, &odd);
        answered += usize::from(!answers.is_empty());
        if number.is_multiple_of(500) {
            witness(&daemon);
            // Tickets that odd frames got belong to this process, which lives; it may not leave too many behind.
            assert_eq!(daemon.admin_post("/v1/quarantine/release").status, 200);
        }
    }
    witness(&daemon);
    // Many were understood, many were not: the frames are neither all noise nor all right.
    assert!(answered > FRAMES / 10 && answered < FRAMES * 99 / 100, "{answered}");
    until_true("all sessions are gone", || figure(&daemon, "/sessions_connected") == 0);
    assert_eq!(daemon.admin_post("/v1/quarantine/release").status, 200);
    wait_idle(&daemon, PATIENCE);
    wait_no_leak(&daemon, &before);
    let growth = daemon.facts().private_kib.saturating_sub(before.private_kib);
    assert!(growth <= GROWTH_KIB, "grew by {growth} KiB");
    assert!(daemon.stop().success());
}

#[test]
fn ten_thousand_odd_frames_of_protocol_1() {
    outlives_odd_frames(1, &right_messages_v1(), None);
}

#[test]
fn ten_thousand_odd_frames_of_protocol_1_with_the_arena() {
    outlives_odd_frames(2, &right_messages_v1(), Some(&hello(1)));
}

#[test]
fn ten_thousand_odd_frames_of_protocol_2() {
    outlives_odd_frames(3, &right_messages_v2(), Some(&hello(2)));
}

#[test]
fn a_length_that_cannot_be_ends_the_session_at_once() {
    let daemon = warm_daemon();
    let before = daemon.facts();
    for length in [u32::MAX, (2 << 30) + 1, 0] {
        let mut wire = daemon.connect();
        wire.send(&length.to_be_bytes());
        wire.expect_closed();
        let mut wire = daemon.connect().attach(2).wire;
        wire.send(&length.to_be_bytes());
        let error = wire.receive().expect("a reason first");
        let code = if length == 0 { "bad_frame" } else { "frame_too_large" };
        assert_eq!((error.op(), error.text("code")), ("error", code), "{length}");
        assert!(!error.text("message").is_empty());
        wire.expect_closed();
    }
    wait_no_leak(&daemon, &before);
}

#[test]
fn a_length_alone_takes_no_memory() {
    let daemon = warm_daemon();
    let before = daemon.facts();
    let claims: Vec<Wire> = (0..64)
        .map(|_| {
            let mut wire = daemon.connect();
            // The largest that is allowed, and the beginning of a batch that could have it.
            wire.send(&(2_u32 << 30).to_be_bytes());
            wire.send(b"\x85\xa2op\xa9batch_set\xa4keys\xdd\x00\xff\xff\xff");
            wire
        })
        .collect();
    until_true("all are being read", || figure(&daemon, "/sessions_connected") == 64);
    witness_of_nothing(&daemon);
    let growth = daemon.facts().private_kib.saturating_sub(before.private_kib);
    assert!(growth <= GROWTH_KIB, "grew by {growth} KiB");
    drop(claims);
    wait_no_leak(&daemon, &before);
}

/// Somebody else is served.
fn witness_of_nothing(daemon: &Daemon) {
    assert_eq!(daemon.connect().ask("stats", &[]).op(), "stats_response");
    check_space(&daemon.admin_json("/v1/stats"));
}

/// Sends bytes with `count` descriptors attached.
fn send_with(wire: &Wire, bytes: &[u8], count: usize) {
    let null = std::fs::File::open("/dev/null").unwrap();
    let attached = vec![null.as_raw_fd(); count];
    let vectors = [IoSlice::new(bytes)];
    let rights = [ControlMessage::ScmRights(&attached)];
    let stream = wire.stream().as_raw_fd();
    let sent = sendmsg::<()>(stream, &vectors, &rights, MsgFlags::MSG_NOSIGNAL, None);
    assert_eq!(sent, Ok(bytes.len()));
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    let daemon = warm_daemon();
    let before = daemon.facts();
    let stats = message("stats", &[]);
    let mut wires = Vec::new();
    for _ in 0..50 {
        // One with the first word could be that of the peer's process, and is not; later ones could be nothing.
        let mut wire = daemon.connect();
        for count in [1, 1, 7, 100] {
            send_with(&wire, &stats, count);
            assert_eq!(wire.receive().expect("an answer").op(), "stats_response");
        }
        wires.push(wire);
        // More than one with the first word is no client of ours.
        let mut wire = daemon.connect();
        send_with(&wire, &stats, 2);
        wire.expect_closed();
    }
    until_true("all but the sockets are closed", || {
        daemon.facts().descriptors <= before.descriptors + 2 * wires.len()
    });
    drop(wires);
    wait_no_leak(&daemon, &before);
}

#[test]
fn protocol_2_answers_odd_requests_with_a_code_and_goes_on() {
    let daemon = warm_daemon();
    let mut wire = daemon.connect().attach(2).wire;
    let id = ("id", Value::from(77));
    let unknown = wire.ask("levitate", std::slice::from_ref(&id));
    assert_eq!((unknown.op(), unknown.text("code")), ("error", "unknown_op"));
    let (lens, keys) = key_columns(&[b"a", b"b"]);
    let fetch = |lens: Value, keys: Value| {
        [
            id.clone(),
            ("model", Value::from("m")),
            ("compat_key", Value::from("c")),
            ("key_lens", lens),
            ("keys", keys),
            ("prefix", Value::from(false)),
            ("deadline_ms", Value::from(5)),
        ]
    };
    let too_long = vec![b'k'; 257];
    let (long_lens, long_keys) = key_columns(&[&too_long]);
    let many = vec![&b"k"[..]; 4097];
    let (many_lens, many_keys) = key_columns(&many);
    let odd = [
        // Fewer bytes than the lengths say, half a length, a key too long, too many keys, no columns.
        fetch(lens.clone(), Value::Binary(b"a".to_vec())),
        fetch(Value::Binary(vec![1, 0, 1]), keys.clone()),
        fetch(long_lens, long_keys),
        fetch(many_lens, many_keys),
        fetch(Value::from("text"), keys.clone()),
    ];
    for fields in odd {
        let error = wire.ask("fetch", &fields);
        assert_eq!((error.op(), error.text("code")), ("error", "bad_field"), "{error:?}");
        assert_eq!(error.u64("id"), 77);
    }
    let missing = wire.ask("fetch", &fetch(lens.clone(), keys.clone())[..4]);
    assert_eq!(missing.text("code"), "bad_field");
    let right = wire.ask("fetch", &fetch(lens, keys));
    assert_eq!((right.op(), right.bytes("outcomes")), ("fetched", Some(&[1, 1][..])));
    assert_eq!(figure(&daemon, "/sessions_connected"), 1);
}

#[test]
fn a_client_that_never_reads_is_closed_and_an_idle_one_never() {
    const LEN: usize = 8 << 20;
    let daemon = Launch::new().args(["--max-bytes", "32M", "--write-stall", "300ms"]).start();
    wait_warm(&daemon);
    let mut idle = daemon.connect();
    let mut inside = daemon.connect();
    inside.send(&message("stats", &[])[..3]);
    let client = client_at(daemon.socket());
    store(&client, &key_of(0), LEN);
    let stalled = || daemon.metric(r#"infera_kvd_sessions_ended_total{reason="write_stall"}"#);
    assert_eq!(stalled(), Some(0.0));
    let get = message(
        "get",
        &[
            ("key", Value::from(key_of(0))),
            ("model", Value::from(NAMESPACE.model)),
            ("compat_key", Value::from(NAMESPACE.compat_key)),
        ],
    );
    let before = daemon.facts();
    for count in 1..=3 {
        let mut deaf = daemon.connect();
        deaf.send(&get);
        // Others are served meanwhile, and what it does not read is not piled up.
        check(&client, &key_of(0), LEN);
        until_true("the daemon gave it up", || stalled() == Some(f64::from(count)));
        // What was on its way can be read; then comes the end, inside the frame.
        let mut rest = Vec::new();
        let read = std::io::Read::read_to_end(&mut deaf.stream(), &mut rest);
        assert!(read.is_err() || rest.len() < LEN, "{} bytes arrived", rest.len());
    }
    let growth = daemon.facts().private_kib.saturating_sub(before.private_kib);
    assert!(growth <= GROWTH_KIB, "grew by {growth} KiB");
    // Both waited for longer than the stall, and are as welcome as before.
    assert_eq!(idle.ask("stats", &[]).u64("entries"), 1);
    inside.send(&message("stats", &[])[3..]);
    assert_eq!(inside.receive().expect("an answer").u64("entries"), 1);
}

#[test]
fn a_slow_reader_is_no_stalled_one() {
    const LEN: usize = 4 << 20;
    let daemon = Launch::new().args(["--max-bytes", "32M", "--write-stall", "2s"]).start();
    wait_warm(&daemon);
    store(&client_at(daemon.socket()), &key_of(0), LEN);
    let mut slow = daemon.connect();
    slow.send(&message(
        "get",
        &[
            ("key", Value::from(key_of(0))),
            ("model", Value::from(NAMESPACE.model)),
            ("compat_key", Value::from(NAMESPACE.compat_key)),
        ],
    ));
    // In pieces, with something else between them, for longer than the daemon waits for any one of them.
    let began = Instant::now();
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 << 10];
    while bytes.len() < LEN {
        let next =
            began + Duration::from_millis(3_000) * u32::try_from(bytes.len() >> 10).unwrap() / 4096;
        until_true("time for the next piece", || Instant::now() >= next);
        let read = std::io::Read::read(&mut slow.stream(), &mut piece).unwrap();
        assert!(read > 0, "closed after {} bytes", bytes.len());
        bytes.extend_from_slice(&piece[..read]);
    }
    assert!(began.elapsed() > Duration::from_secs(2));
    let expected = bytes_of(&key_of(0), LEN);
    let head = bytes.windows(64).position(|part| part == &expected[..64]).expect("the value");
    assert!(bytes[head..].iter().zip(&expected).all(|(read, right)| read == right));
}

#[test]
fn a_flooder_slows_nobody_down_to_a_halt() {
    let daemon = warm_daemon();
    let client = client_at(daemon.socket());
    store_blocks(&client, 64, 1_000);
    let before = daemon.facts();
    let flooder = ClientProcess::start(daemon.socket(), &["flood", "1000"]);
    let _flooding = flooder.heard("ready");
    let began = Instant::now();
    for round in 0..500 {
        check(&client, &key_of(round % 64), 1_000);
    }
    let took = began.elapsed();
    let growth = daemon.facts().private_kib.saturating_sub(before.private_kib);
    let ended = flooder.finish();
    assert!(ended.status.success(), "{:?}", ended.said);
    assert!(ended.figure("answers") >= 1_000);
    // A round trip beside it takes as long as its turn for a core; a hundred times that is a daemon that favours it.
    assert!(took < Duration::from_secs(10), "500 round trips took {took:?}");
    assert!(growth <= GROWTH_KIB, "grew by {growth} KiB");
}

#[test]
fn a_flooder_that_never_reads_is_held_back_and_given_up() {
    let daemon = Launch::new().args(["--max-bytes", "32M", "--write-stall", "300ms"]).start();
    wait_warm(&daemon);
    let client = client_at(daemon.socket());
    store_blocks(&client, 1, 1_000);
    let before = daemon.facts();
    let mut deaf = daemon.connect();
    deaf.stream().set_write_timeout(Some(PATIENCE)).unwrap();
    let get = message(
        "get",
        &[
            ("key", Value::from(key_of(0))),
            ("model", Value::from(NAMESPACE.model)),
            ("compat_key", Value::from(NAMESPACE.compat_key)),
        ],
    );
    let burst = get.repeat(1_000);
    // Without an end to it, the daemon would have to keep a gigabyte of answers.
    let sent = (0..1_000).take_while(|_| deaf.try_send(&burst).is_ok()).count();
    assert!(sent < 1_000, "all of it was taken");
    check(&client, &key_of(0), 1_000);
    let growth = daemon.facts().private_kib.saturating_sub(before.private_kib);
    assert!(growth <= GROWTH_KIB, "grew by {growth} KiB");
    let stalled = daemon.metric(r#"infera_kvd_sessions_ended_total{reason="write_stall"}"#);
    assert_eq!(stalled, Some(1.0));
}
