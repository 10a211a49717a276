//! What is stored under which key, and what stays: sizes, namespaces, leases, promises, and reasons for misses.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use kvd_client::{ClearScope, Client, ClientError, MissReason, Namespace, Refusal, Retention};
use kvd_tests::content::{Random, bytes_of};
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of, keys_of, store, store_blocks};
use kvd_tests::figures::{check_space, figure, wait_idle, wait_warm};
use kvd_tests::until::until_true;
use kvd_tests::wire::{Attached, Message, Value};
use kvd_tests::{Daemon, Launch, PATIENCE};

const ARENA: u64 = 32 << 20;
const SMALL: &[&str] = &["--max-bytes", "32M"];

fn warm_daemon(arguments: &[&str]) -> Daemon {
    let daemon = Launch::new().args(arguments.iter().copied()).start();
    wait_warm(&daemon);
    daemon
}

fn fields<'a>(key: &[u8], more: &[(&'a str, Value)]) -> Vec<(&'a str, Value)> {
    let mut fields = vec![
        ("key", Value::from(key)),
        ("model", Value::from(NAMESPACE.model)),
        ("compat_key", Value::from(NAMESPACE.compat_key)),
    ];
    fields.extend_from_slice(more);
    fields
}

/// A protocol-1 `set`, its value in the place where reference clients have it.
fn set(attached: &mut Attached, key: &[u8], value: Vec<u8>) -> Message {
    let fields = [
        ("key", Value::from(key)),
        ("value", Value::from(value)),
        ("retention", Value::from("long")),
        ("model", Value::from(NAMESPACE.model)),
        ("compat_key", Value::from(NAMESPACE.compat_key)),
    ];
    attached.wire.ask("set", &fields)
}

/// A protocol-1 `get` by a client that maps the arena.
fn get(attached: &mut Attached, key: &[u8]) -> Option<Vec<u8>> {
    let answer = attached.wire.ask("get", &fields(key, &[]));
    if answer.op() == "get_response" {
        return answer.bytes("value").map(<[u8]>::to_vec);
    }
    let mut bytes = vec![0; usize::try_from(answer.u64("length")).unwrap()];
    attached.arena.copy_out(answer.u64("slot_offset"), &mut bytes);
    Some(bytes)
}

fn miss(client: &Client, namespace: Namespace<'_>, key: &[u8]) -> MissReason {
    match client.get(namespace, key) {
        Err(ClientError::Miss(reason)) => reason,
        other => panic!("{key:?} is no miss: {:?}", other.map(|bytes| bytes.len())),
    }
}

#[test]
fn equal_keys_in_different_namespaces_are_different_blocks() {
    let daemon = warm_daemon(SMALL);
    let client = client_at(daemon.socket());
    let spaces = [("m", "tp0"), ("m", "tp1"), ("n", "tp0"), ("m", ""), ("", "m"), ("mt", "p0")];
    let spaces = spaces.map(|(model, compat_key)| Namespace { model, compat_key });
    let value = |space: &Namespace<'_>| {
        bytes_of(format!("{}/{}", space.model, space.compat_key).as_bytes(), 5_000)
    };
    for space in &spaces {
        client.put(*space, b"same", &value(space), Retention::Short, None).unwrap();
    }
    assert_eq!(figure(&daemon, "/tiers/host/entries"), 6);
    for space in &spaces {
        assert_eq!(client.get(*space, b"same").unwrap(), value(space));
    }
    assert_eq!(client.clear(ClearScope::Namespace(spaces[1])).unwrap(), 1);
    for (index, space) in spaces.iter().enumerate() {
        if index == 1 {
            assert_eq!(miss(&client, *space, b"same"), MissReason::Cleared);
        } else {
            assert_eq!(client.get(*space, b"same").unwrap(), value(space), "{space:?}");
        }
    }
}

#[test]
fn a_key_takes_a_new_size_each_time() {
    let daemon = warm_daemon(SMALL);
    let (client, mut old) = (client_at(daemon.socket()), daemon.connect().attach(1));
    let mut random = Random::seeded(7);
    for round in 0..300_u64 {
        let len = match round % 3 {
            0 => random.below(100),
            1 => random.below(100_000),
            _ => random.below(3 << 20),
        };
        let value = bytes_of(&round.to_le_bytes(), len);
        if round.is_multiple_of(2) {
            client.put(NAMESPACE, b"k", &value, Retention::Short, None).unwrap();
        } else {
            assert!(set(&mut old, b"k", value.clone()).bool("accepted"));
        }
        assert!(client.get(NAMESPACE, b"k").unwrap() == value, "{len} bytes, protocol 2");
        assert!(get(&mut old, b"k").unwrap() == value, "{len} bytes, protocol 1");
        assert_eq!(figure(&daemon, "/tiers/host/entries"), 1);
        assert_eq!(figure(&daemon, "/tiers/host/payload_bytes"), len as u64);
    }
    check_space(&daemon.admin_json("/v1/stats"));
}

#[test]
fn values_from_nothing_to_more_than_the_arena() {
    // What a client of protocol 1 was shown is free for others with its next request.
    let daemon = warm_daemon(&["--max-bytes", "32M", "--view-grace", "0s"]);
    let (client, mut old) = (client_at(daemon.socket()), daemon.connect().attach(1));
    let arena = usize::try_from(ARENA).unwrap();
    let edges = [65_519, 65_520, 65_535, 65_536, 65_537, 1 << 20, arena / 2];
    for len in [0, 1, 15, 16, 63, 64, 65, 4095, 4096, 4097].into_iter().chain(edges) {
        let value = bytes_of(b"any", len);
        client.clear(ClearScope::Everything).unwrap();
        if len <= arena / 4 {
            client.put(NAMESPACE, b"two", &value, Retention::Short, None).unwrap();
            assert!(get(&mut old, b"two").unwrap() == value, "{len} bytes from protocol 2 to 1");
        }
        assert!(set(&mut old, b"one", value.clone()).bool("accepted"), "{len}");
        let found = client.fetch(NAMESPACE, &[b"one"], false, PATIENCE);
        match &found.items[0] {
            Ok(view) => assert!(view.to_vec() == value, "{len} bytes from protocol 1 to 2"),
            // Half of the arena and a header are more than one session may pin.
            Err(reason) => assert_eq!((len, *reason), (arena / 2, MissReason::Shed)),
        }
    }
    let page = 4096;
    for len in [arena - 2 * page, arena - page] {
        client.clear(ClearScope::Everything).unwrap();
        assert!(set(&mut old, b"huge", bytes_of(b"huge", len)).bool("accepted"), "{len}");
        assert!(get(&mut old, b"huge").unwrap() == bytes_of(b"huge", len), "{len}");
    }
    for len in [arena - page + 1, arena, arena + 1, 2 * arena] {
        let refused = set(&mut old, b"beyond", vec![1; len]);
        assert_eq!(refused.text("reason"), "value_larger_than_store", "{len}");
        let refused = client.reserve(&[len as u64], Retention::Long, PATIENCE).unwrap();
        assert_eq!(*refused[0].as_ref().unwrap_err(), Refusal::Oversize, "{len}");
        // The stream is in step, and what was there still is.
        assert_eq!(get(&mut old, b"huge").unwrap().len(), arena - page, "{len}");
    }
    assert_eq!(get(&mut old, b"beyond"), None);
    check_space(&daemon.admin_json("/v1/stats"));
}

#[test]
fn everything_is_leased_and_others_get_a_clear_no() {
    // One session may lease it all; nobody waits for it, and nothing that is leased is touched.
    const LEN: usize = 1 << 20;
    let daemon = warm_daemon(&["--max-bytes", "32M", "--in-flight-bytes-max", "64M"]);
    let (holder, other) = (client_at(daemon.socket()), client_at(daemon.socket()));
    store_blocks(&holder, 31, LEN);
    let keys = keys_of(31);
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let held = holder.fetch(NAMESPACE, &names, false, PATIENCE);
    assert!(held.items.iter().all(Result::is_ok));
    // What is left has no room for another one.
    let refused = other.reserve(&[LEN as u64], Retention::Long, PATIENCE).unwrap();
    assert_eq!(*refused[0].as_ref().unwrap_err(), Refusal::ArenaFull);
    let mut old = daemon.connect().attach(1);
    let refused = set(&mut old, b"another", vec![1; LEN]);
    assert_eq!((refused.op(), refused.bool("accepted")), ("set_ack", false));
    assert!(!refused.text("reason").is_empty());
    let refused = old.wire.ask("set_reserve", &[("size", Value::from(LEN))]);
    assert_eq!(refused.text("reason"), "arena_full_no_evictable");
    // Small ones still fit.
    assert!(set(&mut old, b"small", vec![1; 1_000]).bool("accepted"));
    for (key, view) in keys.iter().zip(&held.items) {
        assert!(view.as_ref().unwrap().to_vec() == bytes_of(key, LEN));
    }
    drop(held);
    until_true("the leases are released", || figure(&daemon, "/held/leases") == 0);
    assert!(set(&mut old, b"another", vec![1; LEN]).bool("accepted"));
}

#[test]
fn a_lease_that_its_own_key_overwrites_keeps_its_bytes() {
    let daemon = warm_daemon(SMALL);
    let (client, mut old) = (client_at(daemon.socket()), daemon.connect().attach(1));
    let mut views = Vec::new();
    for round in 0..20_u64 {
        let value = bytes_of(&round.to_le_bytes(), 200_000);
        if round.is_multiple_of(2) {
            client.put(NAMESPACE, b"k", &value, Retention::Short, None).unwrap();
        } else {
            assert!(set(&mut old, b"k", value.clone()).bool("accepted"));
        }
        let mut found = client.fetch(NAMESPACE, &[b"k"], false, PATIENCE);
        views.push((found.items.remove(0).unwrap(), value));
    }
    // Pressure, so that whatever could be reused is.
    for index in 0..100 {
        store(&client, &key_of(index), 500_000);
    }
    client.clear(ClearScope::Everything).unwrap();
    for (view, value) in &views {
        assert!(view.to_vec() == *value);
    }
    assert!(figure(&daemon, "/memory/orphaned_bytes") >= 20 * 200_000);
    drop(views);
    drop((client, old));
    wait_idle(&daemon, PATIENCE);
    assert_eq!(figure(&daemon, "/memory/free_bytes"), ARENA);
}

#[test]
fn what_exists_said_is_there_can_be_loaded_within_the_window() {
    const COUNT: u64 = 40;
    const LEN: usize = 100_000;
    let daemon = warm_daemon(SMALL);
    let writer = client_at(daemon.socket());
    store_blocks(&writer, COUNT, LEN);
    let mut scheduler = daemon.connect();
    let keys: Vec<Value> = keys_of(COUNT).into_iter().map(Value::from).collect();
    let exists = [
        ("keys", Value::from(keys)),
        ("model", Value::from(NAMESPACE.model)),
        ("compat_key", Value::from(NAMESPACE.compat_key)),
    ];
    let present = scheduler.ask("exists", &exists);
    let present = present.field("present").as_array().unwrap();
    assert!(present.iter().all(|is| is.as_bool() == Some(true)), "{present:?}");
    // Ten times the arena, of the highest class, by both protocols.
    let mut old = daemon.connect().attach(1);
    for round in 0..320_u64 {
        let value = vec![9; 1 << 20];
        if round.is_multiple_of(2) {
            writer.put(NAMESPACE, &round.to_le_bytes(), &value, Retention::Long, None).unwrap();
        } else {
            assert!(set(&mut old, &round.to_le_bytes(), value).bool("accepted"));
        }
    }
    assert!(figure(&daemon, "/totals/evictions") > 200);
    for (index, key) in keys_of(COUNT).iter().enumerate() {
        if index.is_multiple_of(2) {
            check(&writer, key, LEN);
        } else {
            assert!(get(&mut old, key).unwrap() == bytes_of(key, LEN));
        }
    }
    assert_eq!(figure(&daemon, "/held/promised_rows"), COUNT);
}

#[test]
fn a_promise_ends_with_its_window() {
    // The control of the case before: without a promise, the same pressure evicts.
    const COUNT: u64 = 40;
    let daemon = warm_daemon(&["--max-bytes", "32M", "--promise-window", "100ms"]);
    let client = client_at(daemon.socket());
    store_blocks(&client, COUNT, 100_000);
    let keys = keys_of(COUNT);
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let located = client.locate(NAMESPACE, &names, false);
    assert!(located.items.iter().all(Result::is_ok));
    until_true("the promises are over", || figure(&daemon, "/held/promised_rows") == 0);
    for round in 0..40_u64 {
        let value = vec![9; 1 << 20];
        client.put(NAMESPACE, &round.to_le_bytes(), &value, Retention::Long, None).unwrap();
    }
    let found = client.fetch(NAMESPACE, &names, false, PATIENCE);
    for item in &found.items {
        assert_eq!(item.as_ref().err(), Some(&MissReason::Evicted(Retention::Short)));
    }
}

#[test]
fn more_cannot_be_promised_than_can_be_kept() {
    // A quarter of the arena; beyond that the answer is no, not a promise that may break.
    const LEN: usize = 1 << 20;
    let daemon = warm_daemon(SMALL);
    let client = client_at(daemon.socket());
    store_blocks(&client, 20, LEN);
    let keys = keys_of(20);
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let located = client.locate(NAMESPACE, &names, false);
    let promised = located.items.iter().filter(|item| item.is_ok()).count();
    assert!((6..=8).contains(&promised), "{promised} of 1 MiB in a quarter of 32 MiB");
    for item in &located.items[promised..] {
        assert_eq!(item.as_ref().err(), Some(&MissReason::Shed));
    }
    assert_eq!(figure(&daemon, "/totals/promises_refused"), 20 - promised as u64);
    // They are there all the same.
    keys.iter().for_each(|key| check(&client, key, LEN));
}

/// What `/v1/why` says of a key that is not there.
fn why(daemon: &Daemon, namespace: Namespace<'_>, key: &[u8]) -> serde_json::Value {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let Namespace { model, compat_key } = namespace;
    daemon.admin_json(&format!("/v1/why?key={hex}&model={model}&compat_key={compat_key}"))
}

#[test]
fn misses_explain_themselves() {
    let daemon = warm_daemon(SMALL);
    let client = client_at(daemon.socket());
    let put = |namespace, key: &[u8], len: usize, retention, ttl| {
        client.put(namespace, key, &vec![9; len], retention, ttl).unwrap();
    };
    let elsewhere = Namespace { model: "m", compat_key: "tp1" };
    put(NAMESPACE, b"cleared", 1_000, Retention::Short, None);
    client.clear(ClearScope::Namespace(NAMESPACE)).unwrap();
    put(NAMESPACE, b"expired", 1_000, Retention::Long, Some(Duration::from_millis(1)));
    put(elsewhere, b"mismatch", 1_000, Retention::Long, None);
    let classes = [
        (&b"short"[..], Retention::Short),
        (b"none", Retention::None),
        (b"ephemeral", Retention::Ephemeral),
    ];
    for (key, class) in classes {
        put(NAMESPACE, key, 1 << 20, class, None);
    }
    // The arena has room for 31 of these and for the small ones: three have to go, and there are three of lower classes.
    for round in 0..31_u64 {
        put(NAMESPACE, &round.to_le_bytes(), 1 << 20, Retention::Long, None);
    }
    assert_eq!(figure(&daemon, "/totals/evictions"), 3);
    let expected = [
        (&b"never"[..], MissReason::NeverStored),
        (b"cleared", MissReason::Cleared),
        (b"expired", MissReason::Expired),
        (b"mismatch", MissReason::OtherNamespace),
        (b"none", MissReason::Evicted(Retention::None)),
        (b"ephemeral", MissReason::Evicted(Retention::Ephemeral)),
        (b"short", MissReason::Evicted(Retention::Short)),
    ];
    for (key, reason) in expected {
        assert_eq!(miss(&client, NAMESPACE, key), reason, "{key:?}");
        let why = why(&daemon, NAMESPACE, key);
        assert_eq!((&why["present"], &why["reason"]), (&false.into(), &reason.as_str().into()));
        assert!(why["explanation"].as_str().is_some_and(|text| text.len() > 10), "{why}");
    }
    let mismatch = why(&daemon, NAMESPACE, b"mismatch");
    assert_eq!(mismatch["elsewhere"], serde_json::json!({ "model": "m", "compat_key": "tp1" }));
    assert_eq!(why(&daemon, elsewhere, b"mismatch")["present"], true);
    assert_eq!(figure(&daemon, "/misses_by_reason/evicted_short"), 1);
    // Asking leaves no trace; storing again ends the explanation.
    assert_eq!(figure(&daemon, "/totals/misses"), expected.len() as u64);
    put(NAMESPACE, b"short", 1_000, Retention::Long, None);
    assert_eq!(why(&daemon, NAMESPACE, b"short")["present"], true);
    client.clear(ClearScope::Everything).unwrap();
    assert_eq!(miss(&client, NAMESPACE, b"short"), MissReason::Cleared);
}
