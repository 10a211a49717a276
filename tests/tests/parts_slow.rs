//! A device that takes half a second for each operation: memory does not notice, whoever asks for a block on it gets
//! the block or a miss in time, and the daemon ends in time.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kvd_client::{Client, ClientError, MissReason, Options, Retention};
use kvd_tests::Daemon;
use kvd_tests::content::bytes_of;
use kvd_tests::disk::{figure, put, wait_written};
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of};
use kvd_tests::parts::faulty_device::FaultyDevice;
use kvd_tests::parts::file_system::{FileSystem, Kind, make_image};
use kvd_tests::parts::{Workshop, tier};
use kvd_tests::until::until_true;
use nix::sys::signal::Signal;

const MIB: u64 = 1 << 20;
const LEN: usize = 64 << 10;
/// Of `tier::launch`.
const ARENA_BYTES: u64 = 32 << 20;
/// Half a second for each operation.
const SLOW: u32 = 2;
/// What is counted while a read from the device is under way: enough that a hit or an acknowledgement that waits for
/// the device, half a second each, could not be overlooked.
const ROUNDS: usize = 200;

struct Slow {
    // In the order in which they must go.
    daemon: Option<Daemon>,
    disk: FileSystem,
    device: FaultyDevice,
    _workshop: Workshop,
}

impl Slow {
    /// A daemon with 96 blocks on the device, more than may be read at once, and nothing in memory.
    fn new(more: &[&str]) -> Self {
        let workshop = Workshop::open();
        let image = workshop.path("image");
        make_image(&image, 320 * MIB);
        let device = FaultyDevice::start(&image, workshop.folder());
        let disk = FileSystem::make(device.path(), Kind::Ext4, &workshop.path("mounted"));
        let start = || {
            let launch = tier::launch(&[disk.path()], 64 * MIB).args(more.iter().copied());
            let daemon = launch.start();
            tier::wait_recovered(&daemon);
            daemon
        };
        let daemon = start();
        let client = client_at(daemon.socket());
        (0..96).for_each(|index| put(&client, &key_of(index), LEN, Retention::Long));
        wait_written(&daemon);
        assert!(daemon.stop().success());
        let daemon = start();
        Self { daemon: Some(daemon), disk, device, _workshop: workshop }
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    fn impatient(&self, deadline: Duration) -> Client {
        let mut options = Options::new(self.daemon().socket(), "impatient");
        options.deadline = deadline;
        Client::new(options)
    }

    fn end(mut self) {
        self.device.slow_down(0);
        if let Some(daemon) = self.daemon.take() {
            assert!(daemon.stop().success());
        }
        self.disk.unmount();
        self.device.stop();
    }
}

#[test]
fn hits_and_acknowledgements_do_not_wait_for_a_slow_device() {
    let mut slow = Slow::new(&[]);
    let client = client_at(slow.daemon().socket());
    (100..104).for_each(|index| put(&client, &key_of(index), LEN, Retention::Ephemeral));
    slow.device.slow_down(SLOW);
    let reading = AtomicBool::new(true);
    let (mut rounds, mut reads) = (0, 0);
    std::thread::scope(|scope| {
        let socket = slow.daemon().socket();
        let reading = &reading;
        let reader = scope.spawn(move || {
            let client = client_at(socket);
            let mut found = 0;
            for index in 0..3 {
                match client.get(NAMESPACE, &key_of(index)) {
                    Ok(bytes) => {
                        assert!(bytes == bytes_of(&key_of(index), LEN), "wrong bytes");
                        found += 1;
                    }
                    // The writes before it may take that long.
                    Err(ClientError::Miss(MissReason::Deadline)) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            reading.store(false, Ordering::Release);
            found
        });
        // Blocks that want to be written, too.
        while reading.load(Ordering::Acquire) {
            check(&client, &key_of(100 + rounds as u64 % 4), LEN);
            put(&client, &key_of(200 + rounds as u64 % 64), 4_096, Retention::Long);
            rounds += 1;
        }
        reads = reader.join().unwrap();
    });
    assert!(reads > 0, "a slow device is no broken one");
    assert!(rounds >= ROUNDS, "{rounds} hits and acknowledgements while three blocks were read");
    slow.end();
}

#[test]
fn who_asks_for_more_than_the_device_gives_in_time_is_told_in_time() {
    let mut slow = Slow::new(&["--load-deadline", "3s"]);
    slow.device.slow_down(SLOW);
    // Neighbours would be read at one go.
    let keys: Vec<Vec<u8>> = (0..24).map(|index| key_of(2 * index)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let client = client_at(slow.daemon().socket());
    let (mut found, mut late) = (0, 0);
    let mut judge = |answer: kvd_client::Answer<kvd_client::View>| {
        assert!(answer.trouble.is_none(), "{:?}", answer.trouble);
        assert_eq!(answer.items.len(), keys.len());
        for (item, key) in answer.items.into_iter().zip(&keys) {
            match item {
                Ok(view) => {
                    assert!(view.to_vec() == bytes_of(key, LEN), "wrong bytes of {key:?}");
                    found += 1;
                }
                Err(MissReason::Deadline) => late += 1,
                Err(reason) => panic!("a miss because of {reason:?}"),
            }
        }
    };
    // By the daemon's deadline: the client would wait for longer.
    judge(client.fetch(NAMESPACE, &keys, false, kvd_tests::PATIENCE));
    // By its own, which is shorter.
    let began = Instant::now();
    judge(client.fetch(NAMESPACE, &keys, false, Duration::from_secs(1)));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(found > 0 && late > 0, "{found} found, {late} too late");
    slow.end();
}

/// Clients that give up and go away leave nothing behind.
#[test]
fn nobody_hangs_and_nothing_is_left_when_clients_go() {
    let mut slow = Slow::new(&[]);
    slow.device.slow_down(SLOW);
    let socket = slow.daemon().socket().to_owned();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let client = slow.impatient(Duration::from_millis(300));
            scope.spawn(move || {
                for index in 0..4 {
                    // Whether it comes in time or not.
                    drop(client.get(NAMESPACE, &key_of(number * 4 + index)));
                }
            });
        }
    });
    slow.device.slow_down(0);
    until_true("nothing is being read any more", || {
        figure(slow.daemon(), "loads_in_flight") + figure(slow.daemon(), "loads_waiting") == 0
    });
    kvd_tests::figures::wait_idle(slow.daemon(), kvd_tests::PATIENCE);
    let client = client_at(&socket);
    (0..48).for_each(|index| check(&client, &key_of(index), LEN));
    drop(client);
    slow.end();
}

#[test]
fn the_end_comes_in_time_although_much_waits_to_be_written() {
    let mut slow = Slow::new(&["--drain-deadline", "2s"]);
    let client = client_at(slow.daemon().socket());
    slow.device.slow_down(SLOW);
    // A minute's work for the device.
    (200..320).for_each(|index| put(&client, &key_of(index), LEN, Retention::Long));
    let mut daemon = slow.daemon.take().unwrap();
    daemon.announce("disk tier");
    daemon.announce("does not answer");
    let began = Instant::now();
    assert!(daemon.stop().success());
    // The deadline, what was in flight then, and a margin for a busy machine.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    slow.device.slow_down(0);
    let daemon = tier::launch(&[slow.disk.path()], 64 * MIB).start();
    tier::wait_recovered(&daemon);
    let client = client_at(daemon.socket());
    (0..48).for_each(|index| check(&client, &key_of(index), LEN));
    slow.daemon = Some(daemon);
    slow.end();
}

/// Not even slow: it does not answer at all.
#[test]
fn a_device_that_does_not_answer_holds_a_part_of_memory_and_the_daemon_ends_in_time() {
    let mut slow = Slow::new(&["--drain-deadline", "2s"]);
    slow.device.hang(true);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let client = slow.impatient(Duration::from_millis(500));
            scope.spawn(move || {
                for index in 0..12 {
                    let began = Instant::now();
                    client.get(NAMESPACE, &key_of(number * 12 + index)).unwrap_err();
                    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
                }
            });
        }
    });
    let held_bytes = figure(slow.daemon(), "load_bytes");
    assert!((1..=ARENA_BYTES / 8).contains(&held_bytes), "{held_bytes} bytes");
    // The rest is there for others: more than twice what fits.
    let client = client_at(slow.daemon().socket());
    (1_000..1_000 + 5 * ARENA_BYTES / (2 * LEN as u64)).for_each(|index| {
        put(&client, &key_of(index), LEN, Retention::Ephemeral);
        check(&client, &key_of(index), LEN);
    });
    let mut daemon = slow.daemon.take().unwrap();
    daemon.announce("does not answer");
    daemon.signal(Signal::SIGTERM);
    let began = Instant::now();
    until_true("it gives the device up", || daemon.log().count("does not answer") > 0);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // The kernel keeps the process until what it has asked the device for is answered.
    slow.device.hang(false);
    assert!(daemon.wait().success());
    slow.end();
}
