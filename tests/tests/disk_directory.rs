//! Whose directory it is, what is in it, what may not be touched, and how much of it there may be.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::fs;

use kvd_client::Retention;
use kvd_tests::disk::{
    Directory, OURS, SmallFileSystem, device, figure, has, launch_in, put, usage_bytes, wait_ready,
    wait_written,
};
use kvd_tests::engine::{check, client_at, key_of, store};
use kvd_tests::figures::wait_warm;
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, Launch};

const MIB: usize = 1 << 20;

fn start(directory: &Directory, more: &[&str]) -> Daemon {
    let daemon = directory.launch(more).start();
    wait_warm(&daemon);
    wait_ready(&daemon);
    daemon
}

/// A daemon that does without its directory, but serves.
fn serves_without(launch: Launch, why: &str) -> Daemon {
    let daemon = launch.announce("the disk tier does without a directory").start();
    wait_warm(&daemon);
    until_true("it says so", || device(&daemon)["health"] == "refused");
    let reason = device(&daemon)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains(why), "{reason}");
    assert!(daemon.admin_get("/readyz").body.contains("is not used"), "in /readyz");
    assert_eq!(daemon.admin_get("/readyz").status, 200, "engines are served");
    let client = client_at(daemon.socket());
    store(&client, b"in memory", 10_000);
    check(&client, b"in memory", 10_000);
    daemon
}

#[test]
fn a_second_daemon_on_one_directory_says_who_has_it() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    put(&client_at(daemon.socket()), b"key", MIB, Retention::Long);
    wait_written(&daemon);
    for _ in 0..2 {
        let second = directory.launch(&[]).run();
        assert_eq!(second.code, Some(1), "{}", second.output);
        assert!(second.output.contains(&daemon.pid().to_string()), "{}", second.output);
        assert!(second.output.contains(directory.path().to_str().unwrap()), "{}", second.output);
    }
    assert!(has(&client_at(daemon.socket()), b"key", MIB));
    daemon.kill();
    // The lock went with the process.
    assert!(start(&directory, &[]).stop().success());
}

#[test]
fn a_start_that_the_file_system_does_not_answer_keeps_nobody() {
    let directory = Directory::new();
    fs::create_dir(directory.path().join(OURS)).unwrap();
    // Who reads it waits for a writer: like a mount whose server is gone.
    let fifo = directory.path().join(OURS).join("superblock");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let launch = directory.launch(&["--drain-deadline", "2s"]);
    let daemon = launch.announce("it is left behind").start();
    wait_warm(&daemon);
    let client = client_at(daemon.socket());
    store(&client, b"in memory", 10_000);
    check(&client, b"in memory", 10_000);
    assert_eq!(device(&daemon)["health"], "recovering");
    assert!(daemon.stop().success());
}

#[test]
fn foreign_files_are_left_alone() {
    let directory = Directory::new();
    let foreign = [
        "ae/ca/x.kvcache",
        "containers/0001.bin",
        "index.log",
        "index.snapshot.json",
        "blocks/1",
        ".kvd_selfcheck/x",
        "pool-0/y",
        "container-00000",
        "superblock",
        "infera-kvd/notes.txt",
    ];
    for name in foreign {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, name).unwrap();
    }
    for _ in 0..2 {
        let daemon = start(&directory, &[]);
        let client = client_at(daemon.socket());
        for index in 0..80 {
            put(&client, &key_of(index), MIB, Retention::Long);
        }
        wait_written(&daemon);
        assert!(daemon.stop().success());
    }
    for name in foreign {
        assert_eq!(fs::read_to_string(directory.path().join(name)).unwrap(), name);
    }
    let mut found: Vec<String> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let wanted = [
        ".kvd_selfcheck",
        "ae",
        "blocks",
        "container-00000",
        "containers",
        "index.log",
        "index.snapshot.json",
        OURS,
        "pool-0",
        "superblock",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn a_superblock_that_is_not_understood_is_not_touched() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    put(&client_at(daemon.socket()), b"key", MIB, Retention::Long);
    wait_written(&daemon);
    daemon.kill();
    let superblock = directory.ours("superblock");
    let whole = fs::read(&superblock).unwrap();
    let mut damaged = whole.clone();
    damaged.iter_mut().for_each(|byte| *byte ^= 0x55);
    fs::write(&superblock, &damaged).unwrap();
    let before = listing(&directory);
    let daemon = serves_without(directory.launch(&[]), "superblock");
    assert!(device(&daemon)["reason"].as_str().unwrap().contains("move that directory away"));
    assert!(daemon.stop().success());
    assert_eq!(listing(&directory), before);
    fs::write(&superblock, &whole).unwrap();
    let daemon = start(&directory, &[]);
    assert!(has(&client_at(daemon.socket()), b"key", MIB), "it was all still there");
    assert!(daemon.stop().success());
}

/// Names, lengths and times of change of the daemon's files, but for the lock that it signs.
fn listing(directory: &Directory) -> Vec<(String, u64, std::time::SystemTime)> {
    let mut all: Vec<_> = fs::read_dir(directory.path().join(OURS))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            (entry.file_name().into_string().unwrap(), found.len(), found.modified().unwrap())
        })
        .filter(|(name, ..)| name != "lock")
        .collect();
    all.sort();
    all
}

#[test]
fn a_directory_that_cannot_be_written_costs_its_blocks_only() {
    let small = SmallFileSystem::new(8);
    small.set_read_only(true);
    let launch = launch_in(&small.path().join("kv"), &[]);
    let daemon = serves_without(launch, "Read-only file system");
    assert!(daemon.stop().success());
    let directory = Directory::new();
    fs::write(directory.path().join(OURS), "in the way").unwrap();
    let daemon = serves_without(directory.launch(&[]), OURS);
    assert!(daemon.stop().success());
    assert_eq!(fs::read_to_string(directory.path().join(OURS)).unwrap(), "in the way");
}

#[test]
fn a_life_without_a_device_that_is_there_makes_it_forget_if_anything_was_stored() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    put(&client_at(daemon.socket()), b"key", MIB, Retention::Long);
    wait_written(&daemon);
    assert!(daemon.stop().success());
    let too_small = || directory.launch(&[]).args(["--long-bytes=16M"]);
    // Nobody stored anything: nothing can have been replaced.
    let daemon = too_small().announce("the disk tier does without a directory").start();
    wait_warm(&daemon);
    until_true("it is refused", || device(&daemon)["health"] == "refused");
    assert!(daemon.stop().success());
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    assert!(has(&client, b"key", MIB));
    drop(client);
    assert!(daemon.stop().success());
    assert!(serves_without(too_small(), "raise --long-bytes").stop().success());
    let daemon = directory.launch(&[]).announce("begins anew").start();
    wait_warm(&daemon);
    wait_ready(&daemon);
    assert!(!has(&client_at(daemon.socket()), b"key", MIB), "it may have been replaced");
    assert!(daemon.stop().success());
}

#[test]
fn one_bad_directory_of_two_leaves_the_other() {
    let (good, bad) = (Directory::new(), Directory::new());
    fs::write(bad.path().join(OURS), "in the way").unwrap();
    let paths = format!("{},{}", bad.path().display(), good.path().display());
    let launch = || {
        let usual = ["--max-bytes", "32M", "--long-bytes", "256M", "--long-paths", &paths];
        Launch::new().args(usual).announce("the disk tier does without a directory")
    };
    let daemon = launch().start();
    wait_warm(&daemon);
    until_true("the other is ready", || {
        let devices = daemon.admin_json("/v1/stats")["devices"].clone();
        devices[0]["health"] == "refused" && devices[1]["capacity_bytes"].as_u64() > Some(0)
    });
    put(&client_at(daemon.socket()), b"key", MIB, Retention::Long);
    wait_written(&daemon);
    daemon.kill();
    let daemon = launch().start();
    until_true("it is back", || has(&client_at(daemon.socket()), b"key", MIB));
    assert!(daemon.stop().success());
}

#[test]
fn the_size_on_disk_stays_below_the_cap() {
    let directory = Directory::new();
    for cap in [64_u64, 48, 96] {
        let flag = format!("--long-bytes={cap}M");
        let daemon = start(&directory, &[&flag]);
        let client = client_at(daemon.socket());
        for index in 0..2 * cap {
            put(&client, &key_of(cap * 1_000 + index), MIB, Retention::Long);
            let used = usage_bytes(directory.path());
            assert!(used <= cap << 20, "{used} bytes of {cap} MiB");
            if index % 16 == 15 {
                until_true("each was written, or given up", || {
                    let given_up = figure(&daemon, "dropped_unwritten_total");
                    figure(&daemon, "spills_total") + given_up > index
                });
            }
        }
        assert!(figure(&daemon, "payload_bytes") > (cap << 20) / 3, "it is used, too");
        assert!(daemon.stop().success());
        let used = usage_bytes(directory.path());
        assert!(used <= cap << 20, "{used} bytes of {cap} MiB");
    }
}

#[test]
fn a_full_file_system_costs_demotions_only_and_is_used_again_when_it_has_room() {
    let small = SmallFileSystem::new(40);
    fs::write(small.path().join("ballast"), vec![1; 30 << 20]).unwrap();
    let daemon = launch_in(small.path(), &["--long-bytes=36M"])
        .announce("the file system is full")
        .announce("No space left")
        .start();
    wait_warm(&daemon);
    let client = client_at(daemon.socket());
    for index in 0..100 {
        put(&client, &key_of(index), MIB, Retention::Long);
    }
    until_true("it has noticed", || {
        device(&daemon)["reason"].as_str().is_some_and(|reason| reason.contains("full"))
    });
    assert!(has(&client, &key_of(99), MIB), "memory goes on");
    assert!(figure(&daemon, "dropped_unwritten_total") > 0);
    assert_eq!(daemon.admin_get("/readyz").status, 200);
    let capacity_before = device(&daemon)["capacity_bytes"].as_u64().unwrap();
    fs::remove_file(small.path().join("ballast")).unwrap();
    until_true("it grows again", || {
        device(&daemon)["capacity_bytes"].as_u64().unwrap() > capacity_before
    });
    put(&client, b"after", MIB, Retention::Long);
    until_true("there is no complaint any more", || device(&daemon)["reason"].is_null());
    until_true("it is written", || figure(&daemon, "spills_total") > 0);
    assert!(daemon.stop().success());
}
