//! Clients that live through deaths of the daemon: what they still hold stays theirs, what they hold no more is free while
//! they go on, and nobody has a say in what other processes hold.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::os::fd::AsFd as _;

use kvd_client::{Client, ClientError, Commit, Retention, Ticket, View};
use kvd_tests::client::ClientProcess;
use kvd_tests::content::bytes_of;
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of, store, store_blocks};
use kvd_tests::figures::{figure, wait_idle, wait_warm};
use kvd_tests::supervisor::Supervisor;
use kvd_tests::until::until_true;
use kvd_tests::wire::{Message, Value, Wire, column};
use kvd_tests::{Daemon, Launch, PATIENCE};
use nix::sys::stat::fstat;

const LEN: usize = 300_000;

/// In two such lives and a half, everything would be pinned by what is held in one.
fn launch() -> Launch {
    Launch::new().args(["--max-bytes", "32M"])
}

fn views(client: &Client, from: u64, to: u64) -> Vec<View> {
    let keys: Vec<_> = (from..to).map(key_of).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    client.fetch(NAMESPACE, &keys, false, PATIENCE).items.into_iter().map(Result::unwrap).collect()
}

fn tickets(client: &Client, count: usize) -> Vec<Ticket> {
    let granted = client.reserve(&vec![LEN as u64; count], Retention::Short, PATIENCE).unwrap();
    let tickets: Vec<_> = granted.into_iter().map(Result::unwrap).collect();
    tickets.iter().for_each(|ticket| ticket.write(0, &[0xEE; LEN]).unwrap());
    tickets
}

fn held(daemon: &Daemon) -> [u64; 3] {
    ["leases", "tickets", "quarantined_bytes"].map(|name| figure(daemon, &format!("/held/{name}")))
}

/// Stores more than the arena holds; how many bytes of that are there in the end, all of them right.
fn usable(client: &Client) -> usize {
    let keys: Vec<_> = (1_000..1_150).map(key_of).collect();
    keys.iter().for_each(|key| store(client, key, LEN));
    let found = keys.iter().filter_map(|key| Some((key, client.get(NAMESPACE, key).ok()?)));
    found.inspect(|(key, bytes)| assert!(*bytes == bytes_of(key, LEN), "{key:?}")).count() * LEN
}

/// How often the daemon is killed: 20 times, or `KVD_KILL_ROUNDS`.
fn kill_rounds() -> u64 {
    std::env::var("KVD_KILL_ROUNDS").map_or(20, |rounds| rounds.parse().unwrap())
}

#[test]
fn a_small_arena_stays_usable_over_the_deaths_that_its_client_lives_through() {
    let supervisor = Supervisor::new();
    let mut daemon = supervisor.start(launch());
    wait_warm(&daemon);
    let client = client_at(daemon.socket());
    store_blocks(&client, 4, LEN);
    let kept = views(&client, 0, 4);
    let writing = tickets(&client, 1);
    for round in 0..kill_rounds() {
        (4..29).for_each(|index| store(&client, &key_of(index), LEN));
        let mut read = views(&client, 4, 29);
        let mut written = tickets(&client, 15);
        daemon.kill();
        // A part goes while there is no daemon, a part after it is back.
        read.truncate(15);
        written.truncate(10);
        daemon = supervisor.start(launch());
        assert!(figure(&daemon, "/held/quarantined_bytes") > 40 * LEN as u64, "round {round}");
        check(&client, &key_of(4), LEN);
        until_true("only what it has is held", || held(&daemon) == [4 + 15, 1 + 10, 0]);
        drop(read);
        drop(written);
        until_true("what it dropped is free", || held(&daemon) == [4, 1, 0]);
        let usable = usable(&client);
        assert!(usable > 30_000_000, "{usable} bytes of the arena can be used in round {round}");
        // Written by whoever has the ticket, and by nobody else.
        writing[0].write(0, &[0xDD; LEN]).unwrap();
        for (index, view) in (0..).zip(&kept) {
            assert!(view.to_vec() == bytes_of(&key_of(index), LEN), "view {index}, round {round}");
        }
    }
    drop((kept, writing, client));
    wait_idle(&daemon, PATIENCE);
    assert!(daemon.stop().success());
}

/// The same without a word: what it costs not to come back.
#[test]
fn a_client_that_says_nothing_keeps_all_until_its_process_ends() {
    let supervisor = Supervisor::new();
    let mut daemon = supervisor.start(launch());
    wait_warm(&daemon);
    let mut pinned = 0;
    for _ in 0..2 {
        let mut attached = daemon.connect().attach(2);
        let reserved = reserve(&mut attached.wire, 40);
        assert_eq!(reserved.bytes("outcomes"), Some(&[0; 40][..]));
        daemon.kill();
        daemon = supervisor.start(launch());
        let now = figure(&daemon, "/held/quarantined_bytes");
        assert!(now >= pinned + 40 * LEN as u64);
        pinned = now;
    }
    let granted = reserve(&mut daemon.connect().attach(2).wire, 40);
    assert_ne!(granted.bytes("outcomes"), Some(&[0; 40][..]), "there was room");
    assert!(daemon.stop().success());
}

fn reserve(wire: &mut Wire, count: usize) -> Message {
    let lens = column(&vec![LEN as u64; count]);
    wire.ask("reserve", &[("id", Value::from(1)), ("retention", "short".into()), ("lens", lens)])
}

fn resume(wire: &mut Wire, rights: &[u64], sessions: &[u64]) -> (u64, u64) {
    let fields = [
        ("id", Value::from(2)),
        ("leases", column(rights)),
        ("tickets", column(&[])),
        ("sessions", column(sessions)),
    ];
    let answer = wire.ask("resume", &fields);
    assert_eq!((answer.op(), answer.u64("id")), ("resumed", 2));
    (answer.u64("rights"), answer.u64("sessions"))
}

#[test]
fn no_process_gives_back_what_another_one_holds() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    store_blocks(&client_at(daemon.socket()), 8, 1_000);
    let holder = ClientProcess::start(daemon.socket(), &["hold", "5", "300000", "8"]);
    let _holding = holder.heard("holding");
    let reserved = reserve(&mut daemon.connect().attach(2).wire, 2);
    // Every name that a right can have had by now, and every session.
    let names: Vec<u64> =
        (1..=16).flat_map(|uses| (0..250).map(move |place| uses << 32 | place)).collect();
    let own = reserved.column("tickets");
    assert!(own.len() == 2 && own.iter().all(|name| names.contains(name)));
    let all: Vec<u64> = (0..4_096).collect();
    let attack = |daemon: &Daemon| {
        let mut wire = daemon.connect().attach(2).wire;
        let (rights, _) = resume(&mut wire, &names, &[]);
        let (_, sessions) = resume(&mut wire, &[], &all);
        assert_eq!(held(daemon)[..2], [8, 5 + rights]);
        (rights, sessions)
    };
    // The holder is still connected, and this process holds two tickets of a connection that is closed.
    until_true("they are closed", || held(&daemon)[2] >= 2 * LEN as u64);
    assert_eq!(attack(&daemon), (2, 0), "its own, and by that its own session");
    daemon.kill();
    let daemon = supervisor.start(launch());
    assert!(held(&daemon)[2] >= 7 * LEN as u64, "it is closed now, too");
    assert_eq!(attack(&daemon), (2, 0));
    // Its own ones are free by one word.
    let mut wire = daemon.connect().attach(2).wire;
    until_true("the attacker's connection is closed", || held(&daemon)[2] >= 7 * LEN as u64);
    assert_eq!(resume(&mut wire, &[], &all), (0, 1));
    assert_eq!(held(&daemon)[..2], [8, 5]);
    let _gone = holder.kill();
    until_true("it is gone", || held(&daemon) == [0, 0, 0]);
    assert!(daemon.stop().success());
}

/// How often this process has mapped the arena that is kept, and by how many bytes.
fn mapped(supervisor: &Supervisor) -> (usize, u64) {
    let arena = supervisor.descriptors("kvd-arena").remove(0);
    let inode = fstat(arena.as_fd()).unwrap().st_ino.to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_it = maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&inode));
    let sizes = of_it.map(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        u64::from_str_radix(to, 16).unwrap() - u64::from_str_radix(from, 16).unwrap()
    });
    sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size))
}

#[test]
fn a_client_maps_an_arena_once_however_many_daemons_serve_it() {
    const ONCE: (usize, u64) = (1, 32 << 20);
    let supervisor = Supervisor::new();
    let mut daemon = supervisor.start(launch());
    let client = client_at(daemon.socket());
    store_blocks(&client, 2, LEN);
    let kept = views(&client, 0, 1).remove(0);
    let place = views(&client, 1, 2)[0].as_ptr();
    assert_eq!(mapped(&supervisor), ONCE);
    for _ in 0..5 {
        daemon.kill();
        daemon = supervisor.start(launch());
        assert_eq!(views(&client, 1, 2)[0].as_ptr(), place);
        assert_eq!(mapped(&supervisor), ONCE);
    }
    // Without a view it waits for the next daemon as well.
    drop(kept);
    daemon.kill();
    let daemon = supervisor.start(launch());
    assert_eq!(views(&client, 1, 2)[0].as_ptr(), place);
    assert_eq!(mapped(&supervisor), ONCE);
    drop(client);
    assert_eq!(mapped(&supervisor), (0, 0));
    assert!(daemon.stop().success());
}

#[test]
fn a_ticket_of_an_earlier_life_can_only_be_given_back() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    let client = client_at(daemon.socket());
    let ticket = tickets(&client, 1).remove(0);
    daemon.kill();
    let daemon = supervisor.start(launch());
    let _present = client.locate(NAMESPACE, &[b"x"], false);
    until_true("it is held still", || held(&daemon) == [0, 1, 0]);
    let commits = vec![Commit { ticket, key: b"x", len_bytes: 9, lineage: None }];
    let refused = client.commit(NAMESPACE, commits, Retention::Short, None).unwrap_err();
    assert!(matches!(refused, ClientError::StaleEpoch { .. }), "{refused:?}");
    until_true("it is given back", || held(&daemon) == [0, 0, 0]);
    assert!(daemon.stop().success());
}

/// Sessions and rights of another arena have the same names.
#[test]
fn nothing_of_an_arena_that_is_gone_is_said_of_the_next_one() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    let former = client_at(daemon.socket());
    store_blocks(&former, 1, LEN);
    let old = views(&former, 0, 1).remove(0);
    daemon.kill();
    supervisor.lose("kvd-arena");
    supervisor.lose("kvd-ledger");
    let daemon = supervisor.start(launch());
    let latter = client_at(daemon.socket());
    store_blocks(&latter, 1, LEN);
    let new = views(&latter, 0, 1).remove(0);
    // The former client comes back, and lets go of what it had.
    check(&former, &key_of(0), LEN);
    assert!(old.to_vec() == bytes_of(&key_of(0), LEN));
    drop(old);
    check(&former, &key_of(0), LEN);
    until_true("only the new view is held", || held(&daemon) == [1, 0, 0]);
    assert!(new.to_vec() == bytes_of(&key_of(0), LEN));
    drop((new, former, latter));
    wait_idle(&daemon, PATIENCE);
    assert!(daemon.stop().success());
}
