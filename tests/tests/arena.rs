//! A client that does what it likes with the arena that it maps: it can spoil bytes, and nothing else. No decision of
//! the daemon is read back from there.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::os::fd::OwnedFd;

use kvd_tests::client::{ClientLaunch, Ended};
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of, keys_of, store, store_blocks};
use kvd_tests::figures::{check_space, figure, wait_idle, wait_no_leak, wait_warm};
use kvd_tests::wire::{Value, Wire};
use kvd_tests::{Daemon, PATIENCE};

const SMALL: &[&str] = &["--max-bytes", "32M"];
const BLOCKS: u64 = 64;
const LEN: usize = 70_000;

/// Takes the descriptor on its standard input, and does what its arguments say; each line tells how that went.
const VANDAL: &str = r#"
import ctypes, ctypes.util, errno, fcntl, mmap, os, sys

libc = ctypes.CDLL(None, use_errno=True)
size = os.fstat(0).st_size

def tell(what, attempt):
    try:
        attempt()
        print(what, "ok")
    except OSError as trouble:
        print(what, errno.errorcode[trouble.errno])

def called(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "")

def address(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))

def fallocate(mode):
    called(libc.fallocate(0, mode, ctypes.c_long(0), ctypes.c_long(size)))

if sys.argv[1] == "resize":
    tell("shrink", lambda: os.ftruncate(0, size // 2))
    tell("empty", lambda: os.ftruncate(0, 0))
    tell("grow", lambda: os.ftruncate(0, size * 2))
    tell("unseal", lambda: fcntl.fcntl(0, 1033, 0x0010))
elif sys.argv[1] == "scribble":
    memory = mmap.mmap(0, size)
    tell("unwritable", lambda: called(libc.mprotect(ctypes.c_void_p(address(memory)), size, 1)))
    tell("writable", lambda: called(libc.mprotect(ctypes.c_void_p(address(memory)), size, 3)))
    for at in range(0, size, 1 << 20):
        memory[at:at + (1 << 20)] = bytes([int(sys.argv[2])]) * (1 << 20)
    tell("unmapped", lambda: called(libc.munmap(ctypes.c_void_p(address(memory)), size)))
    os._exit(0)
elif sys.argv[1] == "punch":
    tell("punch", lambda: fallocate(0x03))
    memory = mmap.mmap(0, size)
    tell("remove", lambda: memory.madvise(9))
"#;

/// The arena's descriptor, as any client gets it.
fn descriptor(daemon: &Daemon) -> OwnedFd {
    let mut wire: Wire = daemon.connect();
    let hello = [
        ("client_id", Value::from("vandal")),
        ("protocol_version", Value::from(2)),
        ("prefers_shared_arena", Value::from(true)),
    ];
    assert_eq!(wire.ask("hello", &hello).op(), "hello_ack");
    wire.receive_descriptor()
}

fn vandalise(daemon: &Daemon, words: &[&str]) -> Ended {
    let words = ["-c", VANDAL].iter().chain(words).copied();
    let vandal = ClientLaunch::program("python3", words).input(descriptor(daemon)).start();
    let ended = vandal.finish();
    assert!(ended.status.success(), "{:?}", ended.said);
    ended
}

fn filled_daemon() -> Daemon {
    let daemon = Daemon::start(SMALL);
    wait_warm(&daemon);
    store_blocks(&client_at(daemon.socket()), BLOCKS, LEN);
    wait_idle(&daemon, PATIENCE);
    daemon
}

/// What `smaps` says of the daemon's mapping of the arena: the flags of it, two letters each.
fn flags_of_arena(daemon: &Daemon) -> Vec<String> {
    let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", daemon.pid())).unwrap();
    let arena = &smaps[smaps.find("/memfd:").expect("the arena is a memfd")..];
    let flags = arena.lines().find_map(|line| line.strip_prefix("VmFlags:"));
    flags.expect("its flags").split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_arena_stays_out_of_core_dumps_and_of_children_and_is_pinned_if_asked() {
    let daemon = Daemon::start(SMALL);
    wait_warm(&daemon);
    let flags = flags_of_arena(&daemon);
    assert!(flags.contains(&"dd".to_owned()) && !flags.contains(&"lo".to_owned()), "{flags:?}");
    let arenas = || {
        let all = kvd_tests::process::descriptors(daemon.pid());
        all.iter().filter(|target| target.contains("memfd:")).count()
    };
    assert_eq!(arenas(), 1);
    // However many map it, the daemon has it once.
    let attached: Vec<_> = (0..5).map(|_| daemon.connect().attach(2)).collect();
    assert_eq!((arenas(), attached.len()), (1, 5));
    let pinned = Daemon::start(&["--max-bytes", "32M", "--shared-arena-pin"]);
    wait_warm(&pinned);
    let flags = flags_of_arena(&pinned);
    assert!(flags.contains(&"lo".to_owned()), "root may lock memory: {flags:?}");
    assert_eq!(pinned.admin_json("/v1/stats")["memory"]["pinned"], true);
}

#[test]
fn without_a_pool_of_huge_pages_it_says_so_and_serves() {
    let pool = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap();
    assert_eq!(pool.trim(), "0", "this case is about a host without a pool");
    let mut daemon = Daemon::start(&["--max-bytes", "32M", "--shared-arena-hugetlb"]);
    daemon.announce("no huge page pool");
    wait_warm(&daemon);
    let client = client_at(daemon.socket());
    store_blocks(&client, BLOCKS, LEN);
    keys_of(BLOCKS).iter().for_each(|key| check(&client, key, LEN));
    assert_eq!(daemon.log().count("no huge page pool"), 1);
    let kind = daemon.admin_json("/v1/stats")["memory"]["page_kind"].clone();
    assert_ne!(kind, "hugetlb");
    assert!(daemon.stop().success());
}

#[test]
fn nobody_resizes_the_arena() {
    let daemon = filled_daemon();
    let before = daemon.facts();
    let ended = vandalise(&daemon, &["resize"]);
    assert_eq!(ended.said, ["shrink EPERM", "empty EPERM", "grow EPERM", "unseal EPERM"]);
    let client = client_at(daemon.socket());
    keys_of(BLOCKS).iter().for_each(|key| check(&client, key, LEN));
    drop(client);
    wait_no_leak(&daemon, &before);
}

/// All that the daemon can be asked about its rows, and that must follow from its own books alone.
fn books(daemon: &Daemon) -> serde_json::Value {
    let mut stats = daemon.admin_json("/v1/stats");
    check_space(&stats);
    let memory = stats["memory"].take();
    let rows = daemon.admin_json("/v1/ls?limit=1000");
    serde_json::json!({ "memory": memory, "host": stats["tiers"]["host"], "rows": rows["rows"] })
}

fn without_ages(mut books: serde_json::Value) -> serde_json::Value {
    for row in books["rows"].as_array_mut().expect("rows") {
        if let Some(row) = row.as_object_mut() {
            row.retain(|name, _| !name.contains("promised") && !name.contains("age"));
        }
    }
    books
}

fn goes_on_after(words: &[&str], spoilt: u8) {
    let daemon = filled_daemon();
    let client = client_at(daemon.socket());
    // A ticket and a lease, held while it happens.
    let ticket = client.reserve(&[LEN as u64], kvd_client::Retention::Short, PATIENCE).unwrap();
    let leased = client.fetch(NAMESPACE, &[&key_of(0)], false, PATIENCE);
    let before = without_ages(books(&daemon));
    assert_eq!(before["rows"].as_array().unwrap().len() as u64, BLOCKS);
    let _ended = vandalise(&daemon, words);
    assert_eq!(without_ages(books(&daemon)), before);
    // The lengths, the places and the versions of blocks were never looked up in there.
    let found = client.fetch(NAMESPACE, &[&key_of(1), b"no such key"], false, PATIENCE);
    assert_eq!(found.items[0].as_ref().unwrap().to_vec(), vec![spoilt; LEN]);
    assert_eq!(found.items[1].as_ref().err(), Some(&kvd_client::MissReason::NeverStored));
    let mut inline = daemon.connect();
    let get = [
        ("key", Value::from(key_of(2))),
        ("model", Value::from(NAMESPACE.model)),
        ("compat_key", Value::from(NAMESPACE.compat_key)),
    ];
    assert_eq!(inline.ask("get", &get).bytes("value"), Some(&vec![spoilt; LEN][..]));
    // The rights are as good as before, and new bytes are right wherever they land.
    drop((ticket, leased, found));
    for index in 0..8 * BLOCKS {
        store(&client, &key_of(index), LEN);
        check(&client, &key_of(index), LEN);
    }
    assert!(figure(&daemon, "/totals/evictions") > 0);
    check_space(&daemon.admin_json("/v1/stats"));
    assert!(daemon.stop().success());
}

#[test]
fn a_client_that_writes_everywhere_spoils_bytes_and_nothing_else() {
    goes_on_after(&["scribble", "255"], 255);
}

#[test]
fn odd_and_even_headers_of_a_vandal_are_never_believed() {
    goes_on_after(&["scribble", "2"], 2);
}

#[test]
fn a_client_that_takes_the_memory_away_spoils_bytes_and_nothing_else() {
    goes_on_after(&["punch"], 0);
}

#[test]
fn a_reader_of_protocol_1_sees_that_a_block_was_spoilt() {
    // It has the header to look at; the daemon's answer still names the version that was published.
    let daemon = filled_daemon();
    let mut attached = daemon.connect().attach(1);
    let get = [
        ("key", Value::from(key_of(0))),
        ("model", Value::from(NAMESPACE.model)),
        ("compat_key", Value::from(NAMESPACE.compat_key)),
    ];
    let header_of = |attached: &kvd_tests::wire::Attached, offset: u64| {
        let mut header = [0; 4];
        attached.arena.copy_out(offset - 16, &mut header);
        u64::from(u32::from_le_bytes(header))
    };
    let right = attached.wire.ask("get", &get);
    assert_eq!(header_of(&attached, right.u64("slot_offset")), right.u64("version"));
    let _ended = vandalise(&daemon, &["scribble", "7"]);
    let again = attached.wire.ask("get", &get);
    assert_eq!(again.u64("version"), right.u64("version"));
    assert_ne!(header_of(&attached, again.u64("slot_offset")), again.u64("version"));
    // Stored again, it is right again.
    store(&client_at(daemon.socket()), &key_of(0), LEN);
    let fresh = attached.wire.ask("get", &get);
    assert_eq!(header_of(&attached, fresh.u64("slot_offset")), fresh.u64("version"));
    assert_ne!(fresh.u64("version"), right.u64("version"));
}
