//! Whose memory the arena is: the daemon's alone, however small the room that its clients have; and never more than
//! there is.

use kvd_tests::client::{ClientLaunch, ClientProcess};
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of};
use kvd_tests::figures::{figure, wait_warm};
use kvd_tests::memory_group::MemoryGroup;
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, Launch, PATIENCE};

const MIB: u64 = 1 << 20;
/// What a client may have; the arena is four times that.
const ROOM: u64 = 64 * MIB;

fn in_group(group: &MemoryGroup, daemon: &Daemon, words: &[&str]) -> ClientProcess {
    ClientLaunch::new(daemon.socket(), words).under(group.wrapper()).start()
}

#[test]
fn a_client_of_64_mib_uses_an_arena_of_256() {
    let daemon = Daemon::start(&["--max-bytes", "256M"]);
    let group = MemoryGroup::new(ROOM);
    // From the first moment on, while the daemon still touches the arena: room comes only from what is touched.
    let words = ["fill", "200", "1000000"];
    let early = in_group(&group, &daemon, &words);
    let _stored = early.heard("stored=200");
    assert!(early.finish().status.success());
    wait_warm(&daemon);
    // On a busy machine the early ones may have evicted each other.
    let late = in_group(&group, &daemon, &words);
    let _stored = late.heard("stored=200");
    assert!(late.finish().status.success());
    // Then every byte of the arena, read and written.
    let thorough = in_group(&group, &daemon, &["touch-arena"]);
    assert!(thorough.heard("touched=").ends_with(&(256 * MIB).to_string()));
    assert!(thorough.finish().status.success());
    let reader = in_group(&group, &daemon, &["read-over-and-over", "200", "1000000"]);
    let _read = reader.heard("ready");
    assert!(reader.finish().status.success());
    let peak = group.peak_bytes();
    assert!(peak < ROOM * 3 / 4, "the arena was charged to its clients: {peak} bytes");
    check(&client_at(daemon.socket()), &key_of(199), 1_000_000);
}

#[test]
fn a_client_that_takes_more_than_64_mib_of_its_own_is_killed() {
    // The control of the case before: the bound does bind.
    let daemon = Daemon::start(&["--max-bytes", "32M"]);
    let group = MemoryGroup::new(ROOM);
    let greedy = in_group(&group, &daemon, &["take-memory", &(4 * ROOM).to_string()]);
    let ended = greedy.finish();
    assert!(!ended.status.success(), "{:?}", ended.said);
    assert!(!ended.said.iter().any(|line| line.contains("touched=")), "{:?}", ended.said);
}

#[test]
fn an_arena_larger_than_the_memory_is_refused_with_the_numbers() {
    let group = MemoryGroup::new(ROOM);
    for (size, asked) in [("65M", "65 MiB"), ("1G", "1024 MiB")] {
        let refused = Launch::new().args(["--max-bytes", size]).under(group.wrapper()).run();
        assert_eq!(refused.code, Some(1), "{}", refused.output);
        assert!(refused.output.contains(asked), "{}", refused.output);
        assert!(refused.output.contains("the 6"), "63 or 64 MiB are there: {}", refused.output);
        assert!(refused.output.contains("--max-bytes"), "{}", refused.output);
        // Nobody's memory was taken before the no.
        assert!(group.peak_bytes() < ROOM / 2, "{}", group.peak_bytes());
    }
    let whole_machine = Launch::new().args(["--max-bytes", "1000T"]).run();
    assert_eq!(whole_machine.code, Some(1), "{}", whole_machine.output);
    assert!(whole_machine.output.contains("memory"), "{}", whole_machine.output);
    // What fits is served from there.
    let daemon = Launch::new().args(["--max-bytes", "32M"]).under(group.wrapper()).start();
    wait_warm(&daemon);
    let client = client_at(daemon.socket());
    kvd_tests::engine::store_blocks(&client, 40, 1_000_000);
    check(&client, &key_of(39), 1_000_000);
    assert!(group.peak_bytes() > 32 * MIB, "its arena is charged to it");
    assert!(daemon.stop().success());
}

#[test]
fn the_socket_serves_before_the_arena_is_touched() {
    // Large enough that touching it takes a while; small enough for any machine that runs this.
    const ARENA: u64 = 512 * MIB;
    // All that is stored fits into the first piece that is touched.
    const BLOCKS: u64 = 1_000;
    let daemon = Daemon::start(&["--max-bytes", &ARENA.to_string()]);
    let mut wire = daemon.connect();
    assert_eq!(wire.ask("stats", &[]).op(), "stats_response");
    until_true("the daemon is complete", || daemon.log().count("serving") == 1);
    let client = client_at(daemon.socket());
    let mut stored = 0;
    // Everything that is granted meanwhile lies in what is touched, and nothing is evicted for want of the rest.
    while figure(&daemon, "/memory/arena_ready_bytes") < ARENA && stored < BLOCKS {
        kvd_tests::engine::store(&client, &key_of(stored), 10_000);
        stored += 1;
    }
    kvd_tests::engine::store(&client, &key_of(stored), 10_000);
    for index in 0..=stored {
        check(&client, &key_of(index), 10_000);
    }
    assert_eq!(figure(&daemon, "/totals/evictions"), 0);
    let found = client.fetch(NAMESPACE, &[b"no such block"], false, PATIENCE);
    assert!(found.items[0].is_err());
}
