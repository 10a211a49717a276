//! A client in a process of its own, for cases that kill it, confine it, or run many of it:
//! `kvd-test-client SOCKET WHAT [NUMBER…]`. It says when it has got where it was sent (`holding …`, `ready`), then goes
//! on until its standard input is closed, and closes with its figures as `name=number`.
//!
//! Blocks are stored as [`content::bytes_of`] their key, so that every client knows every right answer. A wrong one ends
//! the process with a panic.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, reason = "a test client stops at the first surprise")]
#![expect(clippy::print_stdout, reason = "what it says is how a case follows it")]

use std::io::{BufRead as _, Read as _, Write as _};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kvd_client::{Client, MissReason, Options, Retention};
use kvd_tests::PATIENCE;
use kvd_tests::content::{self, Random};
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of, keys_of, store_blocks};
use kvd_tests::wire::{Value, Wire, message};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (Some(socket), Some(what)) = (words.first(), words.get(1)) else {
        panic!("usage: kvd-test-client SOCKET WHAT [NUMBER…]");
    };
    let socket = Path::new(socket);
    let number = |index: usize| {
        let word = words.get(index + 2).expect("a number is missing");
        word.parse::<u64>().expect("a number")
    };
    match what.as_str() {
        "attach" => attach(socket, number(0)),
        "hold" => hold(socket, number(0), number(1), number(2)),
        "hold-unconnected" => hold_unconnected(socket, number(0), number(1)),
        "stop-inside-set" => stop_inside_set(socket, number(0), number(1)),
        "read-over-and-over" => read_over_and_over(socket, number(0), number(1)),
        "touch-arena" => touch_arena(socket),
        "take-memory" => take_memory(number(0)),
        "fill" => fill(socket, number(0), number(1)),
        "come-and-go" => come_and_go(socket, number(0)),
        "share" => share(socket, number(0), number(1)),
        "flood" => flood(socket, number(0)),
        other => panic!("{other}: no such thing to do"),
    }
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().expect("saying it");
}

fn wait_for_end_of_input() {
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).expect("reading to the end of the input");
}

/// A flag that is raised when the input is closed.
fn when_input_ends(raise: &AtomicBool) {
    wait_for_end_of_input();
    raise.store(true, Ordering::Relaxed);
}

/// Greets the daemon as a client of protocol `version`, and says how that went.
fn attach(socket: &Path, version: u64) {
    let stream = match std::os::unix::net::UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(trouble) => return say(&format!("refused: {trouble}")),
    };
    drop(stream);
    let mut wire = Wire::connect(socket);
    let hello = message(
        "hello",
        &[
            ("client_id", Value::from("kvd-test-client")),
            ("protocol_version", Value::from(version)),
            ("prefers_shared_arena", Value::from(true)),
        ],
    );
    // The daemon may have closed already.
    let sent = wire.try_send(&hello).is_ok();
    match wire.receive().filter(|_| sent) {
        Some(ack) => say(&format!("attached: {}", ack.op())),
        None => return say("closed"),
    }
    let _arena = wire.receive_descriptor();
    say("ready");
    wait_for_end_of_input();
}

/// Holds `tickets` tickets of `len_bytes` each, and a lease on each of the first `leases` blocks.
fn hold(socket: &Path, tickets: u64, len_bytes: u64, leases: u64) {
    let client = client_at(socket);
    let lens = vec![len_bytes; usize::try_from(tickets).expect("a count")];
    let held = client.reserve(&lens, Retention::Short, PATIENCE).expect("reserving");
    let held: Vec<_> = held.into_iter().map(|ticket| ticket.expect("a ticket")).collect();
    for ticket in &held {
        ticket.write(0, &vec![0xEE; ticket.capacity()]).expect("writing inside of it");
    }
    let keys = keys_of(leases);
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let views = client.fetch(NAMESPACE, &keys, false, PATIENCE);
    let found = views.items.iter().filter(|item| item.is_ok()).count();
    assert_eq!(found, keys.len(), "{:?} {:?}", views.trouble, views.items);
    say(&format!("holding tickets={} leases={found}", held.len()));
    wait_for_end_of_input();
}

/// Reserves `tickets` times `len_bytes`, then closes the connection and lives on with the arena mapped.
fn hold_unconnected(socket: &Path, tickets: u64, len_bytes: u64) {
    let mut attached = Wire::connect(socket).attach(2);
    let lens = vec![len_bytes; usize::try_from(tickets).expect("a count")];
    let reserved = attached.wire.ask(
        "reserve",
        &[
            ("id", Value::from(1)),
            ("retention", Value::from("short")),
            ("lens", kvd_tests::wire::column(&lens)),
        ],
    );
    let offsets = reserved.column("offsets");
    drop(attached.wire);
    say(&format!("offsets {offsets:?}"));
    wait_for_end_of_input();
    // It still may write where it was allowed to.
    for offset in offsets {
        attached.arena.copy_in(offset, &[0xEE; 64]);
    }
}

/// Sends the first `sent_bytes` of the frame of a `set` with a value of `value_bytes`.
fn stop_inside_set(socket: &Path, value_bytes: u64, sent_bytes: u64) {
    let value = vec![0x5A; usize::try_from(value_bytes).expect("a length")];
    let set = message("set", &[("key", Value::from(&b"half"[..])), ("value", Value::from(value))]);
    let mut wire = Wire::connect(socket);
    wire.send(&set[..usize::try_from(sent_bytes).expect("a length")]);
    say("ready");
    wait_for_end_of_input();
}

/// Fetches `count` blocks of `len_bytes` again and again, and checks every byte.
fn read_over_and_over(socket: &Path, count: u64, len_bytes: u64) {
    let len = usize::try_from(len_bytes).expect("a length");
    let client = client_at(socket);
    let end = AtomicBool::new(false);
    let mut rounds = 0_u64;
    std::thread::scope(|scope| {
        scope.spawn(|| when_input_ends(&end));
        while !end.load(Ordering::Relaxed) {
            for index in 0..count {
                check(&client, &key_of(index), len);
            }
            rounds += 1;
            if rounds == 1 {
                say("ready");
            }
        }
    });
    say(&format!("rounds={rounds}"));
}

/// Reads and writes every byte of the arena, as an engine that uses all of it would in the course of time.
fn touch_arena(socket: &Path) {
    let attached = Wire::connect(socket).attach(1);
    let mut piece = vec![0; 1 << 20];
    for offset in (0..attached.arena.bytes()).step_by(piece.len()) {
        attached.arena.copy_out(offset, &mut piece);
        attached.arena.copy_in(offset, &piece);
    }
    say(&format!("touched={}", attached.arena.bytes()));
    wait_for_end_of_input();
}

/// Takes memory of its own: the control of the case that lets a client touch the daemon's.
fn take_memory(bytes: u64) {
    let memory = vec![1_u8; usize::try_from(bytes).expect("a size")];
    say(&format!("touched={}", memory.iter().filter(|byte| **byte == 1).count()));
}

/// Stores `count` blocks of `len_bytes`, without ever holding more than one ticket.
fn fill(socket: &Path, count: u64, len_bytes: u64) {
    let len = usize::try_from(len_bytes).expect("a length");
    let client = client_at(socket);
    store_blocks(&client, count, len);
    say(&format!("stored={count}"));
    wait_for_end_of_input();
}

/// Stores and fetches as an engine does, whatever becomes of the daemon, and never takes a wrong byte.
fn come_and_go(socket: &Path, seed: u64) {
    const BLOCKS: usize = 200;
    const LEN_MAX: usize = 40_000;
    const DEADLINE: Duration = Duration::from_secs(2);
    let mut options = Options::new(socket, format!("come-and-go-{seed}"));
    options.deadline = DEADLINE;
    let client = Client::new(options);
    let mut random = Random::seeded(seed);
    let (mut hits, mut misses, mut puts, mut troubles, mut epochs) =
        (0_u64, 0_u64, 0_u64, 0_u64, Vec::new());
    let mut longest = Duration::ZERO;
    let mut kept = std::collections::VecDeque::new();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| when_input_ends(&end));
        while !end.load(Ordering::Relaxed) {
            let key = format!("{seed}-{}", random.below(BLOCKS)).into_bytes();
            // The length follows from the key too.
            let len =
                Random::seeded(u64::from(key[key.len() - 1]) + key.len() as u64).below(LEN_MAX);
            let expected = content::bytes_of(&key, len);
            let began = Instant::now();
            let mut found = client.fetch(NAMESPACE, &[&key], false, DEADLINE);
            longest = longest.max(began.elapsed());
            match found.items.remove(0) {
                Ok(view) => {
                    hits += 1;
                    assert!(view.to_vec() == expected, "wrong bytes for {key:?}");
                    kept.push_back((view, expected));
                }
                Err(reason) => {
                    misses += 1;
                    let down = found.trouble.is_some();
                    troubles += u64::from(down);
                    assert_eq!(
                        down,
                        matches!(reason, MissReason::Shed | MissReason::Deadline),
                        "{reason:?}"
                    );
                    let began = Instant::now();
                    let put = client.put(NAMESPACE, &key, &expected, Retention::Short, None);
                    longest = longest.max(began.elapsed());
                    puts += u64::from(put.is_ok());
                }
            }
            // Views outlive whole daemons, and keep their bytes.
            if kept.len() > 32 {
                let (view, expected) = kept.pop_front().expect("more than none");
                assert!(view.to_vec() == expected, "the bytes under a lease changed");
            }
            if let Ok(attached) = client.attach()
                && epochs.last() != Some(&attached.epoch)
            {
                epochs.push(attached.epoch);
                say(&format!("epoch {}", epochs.len()));
            }
        }
    });
    for (view, expected) in kept {
        assert!(view.to_vec() == expected, "the bytes under a lease changed");
    }
    let longest_ms = longest.as_millis();
    say(&format!(
        "hits={hits} misses={misses} puts={puts} troubles={troubles} epochs={} longest_ms={longest_ms}",
        epochs.len()
    ));
}

/// `sessions` connections at once that look up batches of 64 for `for_ms`, from the word on. Says how many each got.
fn share(socket: &Path, sessions: u64, for_ms: u64) {
    let keys = keys_of(64);
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let sessions = usize::try_from(sessions).expect("a count");
    let (attached, begin) = (Barrier::new(sessions + 1), Barrier::new(sessions + 1));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..sessions)
            .map(|_| {
                scope.spawn(|| {
                    let client = client_at(socket);
                    client.attach().expect("attaching");
                    attached.wait();
                    begin.wait();
                    let end = Instant::now() + Duration::from_millis(for_ms);
                    let mut batches = 0_u64;
                    while Instant::now() < end {
                        let found = client.fetch(NAMESPACE, &keys, true, PATIENCE);
                        assert_eq!(found.items.len(), keys.len(), "{:?}", found.trouble);
                        batches += 1;
                    }
                    batches
                })
            })
            .collect();
        attached.wait();
        say("ready");
        std::io::stdin().lock().read_line(&mut String::new()).expect("the word");
        begin.wait();
        let got: Vec<String> = workers
            .into_iter()
            .map(|worker| worker.join().expect("a session").to_string())
            .collect();
        say(&format!("batches {}", got.join(" ")));
    });
}

/// Sends requests as fast as they go, `in_flight` of them before it reads an answer.
fn flood(socket: &Path, in_flight: u64) {
    let key = key_of(0);
    let get = message(
        "get",
        &[
            ("key", Value::from(key.as_slice())),
            ("model", Value::from(NAMESPACE.model)),
            ("compat_key", Value::from(NAMESPACE.compat_key)),
        ],
    );
    let burst = get.repeat(usize::try_from(in_flight).expect("a count"));
    let mut wire = Wire::connect(socket);
    let end = AtomicBool::new(false);
    let mut answers = 0_u64;
    std::thread::scope(|scope| {
        scope.spawn(|| when_input_ends(&end));
        while !end.load(Ordering::Relaxed) {
            wire.send(&burst);
            for _ in 0..in_flight {
                let answer = wire.receive().expect("an answer to each");
                assert_eq!(answer.op(), "get_response");
                answers += 1;
            }
            if answers == in_flight {
                say("ready");
            }
        }
    });
    say(&format!("answers={answers}"));
}
