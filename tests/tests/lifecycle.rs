//! The daemon's own start and end: who owns a socket, how it drains, what running clients see of a restart.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};

use kvd_client::{ClientError, Commit, Retention};
use kvd_tests::client::ClientProcess;
use kvd_tests::content::bytes_of;
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of, store};
use kvd_tests::figures::{figure, wait_idle, wait_warm};
use kvd_tests::until::until_true;
use kvd_tests::wire::{Value, message};
use kvd_tests::{Daemon, Launch, PATIENCE, binaries, process};
use nix::sys::signal::Signal;
use tempfile::TempDir;

const SMALL: &[&str] = &["--max-bytes", "32M"];

/// A folder for a socket that outlives daemons.
fn folder() -> TempDir {
    tempfile::Builder::new().prefix("kvd-").tempdir_in("/tmp").unwrap()
}

fn warm_daemon() -> Daemon {
    let daemon = Daemon::start(SMALL);
    wait_warm(&daemon);
    daemon
}

#[test]
fn a_second_daemon_on_one_socket_says_who_has_it() {
    let daemon = warm_daemon();
    store(&client_at(daemon.socket()), &key_of(0), 1_000);
    for _ in 0..3 {
        let second = Launch::new().args(SMALL).socket(daemon.socket()).run();
        assert_eq!(second.code, Some(1), "{}", second.output);
        assert!(second.output.contains(&daemon.pid().to_string()), "{}", second.output);
        assert!(second.output.contains("kvd.sock"), "{}", second.output);
        // The first one has lost nothing: not its socket, not its admin socket, not a byte.
        check(&client_at(daemon.socket()), &key_of(0), 1_000);
        assert_eq!(daemon.admin_get("/healthz").status, 200);
    }
    // Neither when both come at once.
    let folder = folder();
    let socket = folder.path().join("kvd.sock");
    let race = || {
        let launch = Launch::new().args(SMALL).socket(&socket);
        launch.under(["timeout", "-s", "TERM", "2"]).run()
    };
    let racers: Vec<_> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..4).map(|_| scope.spawn(race)).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    let serving = racers.iter().filter(|racer| racer.output.contains("serving")).count();
    let refused = racers.iter().filter(|racer| racer.code == Some(1)).count();
    assert_eq!((serving, refused), (1, 3), "{racers:?}");
}

#[test]
fn a_file_in_the_place_of_a_directory_is_called_a_file() {
    let folder = folder();
    let file = folder.path().join("kv");
    std::fs::write(&file, "mine").unwrap();
    let below = file.join("below");
    let sub = folder.path().join("disk/infera-kvd");
    std::fs::create_dir(sub.parent().unwrap()).unwrap();
    std::fs::write(&sub, "mine").unwrap();
    for (path, in_the_way) in
        [(&file, &file), (&below, &file), (&sub.parent().unwrap().into(), &sub)]
    {
        let daemon = Launch::new()
            .args(SMALL)
            .args(["--long-path".into(), path.clone().into_os_string()])
            .args(["--long-bytes", "64M"])
            .announce("the disk tier does without a directory")
            .start();
        let said = daemon.log().wait_for("the disk tier does without a directory");
        let what = format!("{} is a file, not a directory", in_the_way.display());
        assert!(said.contains(&what) && said.contains("--long-path"), "{said}");
        assert!(!said.contains("os error"), "{said}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn an_arena_that_may_not_be_locked_says_which_limit_it_was() {
    let mut daemon = Launch::new()
        .args(SMALL)
        .args(["--shared-arena-pin"])
        .under(["prlimit", "--memlock=65536:65536"])
        .under(["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "--"])
        .start();
    daemon.announce("the arena is not locked in memory");
    wait_warm(&daemon);
    let said = daemon.log().wait_for("the arena is not locked in memory");
    assert!(said.contains("LimitMEMLOCK=") && said.contains("ulimit -l"), "{said}");
    let ready = daemon.admin_get("/readyz").body;
    assert!(ready.contains("LimitMEMLOCK="), "{ready}");
}

#[test]
fn check_config_warns_of_a_disk_that_is_too_small() {
    let folder = folder();
    let path = folder.path().join("not/yet/made").display().to_string();
    let checked = |bytes: &str| {
        let daemon = Command::new(binaries::path_of("infera-kvd"))
            .args(["check-config", "--long-path", &path, "--long-bytes", bytes])
            .output()
            .unwrap();
        assert_eq!(daemon.status.code(), Some(0), "a warning is no mistake");
        String::from_utf8(daemon.stdout).unwrap()
    };
    let warned = checked("900T");
    let warning = warned.lines().find(|line| line.starts_with("warning: ")).expect(&warned);
    for part in ["--long-bytes", &path, "900 TiB"] {
        assert!(warning.contains(part), "{part} in {warning}");
    }
    assert!(!checked("16M").contains("warning"), "16 MiB are there");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is made");
}

#[test]
fn a_stale_socket_is_replaced_and_a_foreign_one_is_not() {
    let folder = folder();
    let socket = folder.path().join("kvd.sock");
    let launch = || Launch::new().args(SMALL).socket(&socket);
    launch().start().kill();
    assert!(socket.try_exists().unwrap(), "a killed daemon cannot remove it");
    let daemon = launch().start();
    assert_eq!(daemon.connect().ask("stats", &[]).op(), "stats_response");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(daemon.stop().success());
    assert!(!socket.try_exists().unwrap());
    let foreign = UnixListener::bind(&socket).unwrap();
    let refused = launch().run();
    assert_eq!(refused.code, Some(1), "{}", refused.output);
    assert!(refused.output.contains(&std::process::id().to_string()), "{}", refused.output);
    drop(foreign);
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "no socket").unwrap();
    assert_eq!(launch().run().code, Some(1));
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "no socket");
}

/// A client that the daemon cannot finish with: it wants a large block and reads nothing of it.
fn deaf_client(daemon: &Daemon) -> kvd_tests::wire::Wire {
    store(&client_at(daemon.socket()), b"large", 8 << 20);
    let mut deaf = daemon.connect();
    let get = [
        ("key", Value::from(&b"large"[..])),
        ("model", Value::from(NAMESPACE.model)),
        ("compat_key", Value::from(NAMESPACE.compat_key)),
    ];
    deaf.send(&message("get", &get));
    until_true("its answer is on the way", || figure(daemon, "/held/leases") == 1);
    deaf
}

#[test]
fn a_signal_drains_and_idle_clients_do_not_delay_it() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let daemon = warm_daemon();
        let (socket, admin) = (daemon.socket().to_owned(), daemon.admin_socket());
        let clients: Vec<_> = (0..20).map(|_| daemon.connect().attach(2)).collect();
        let mut inside = daemon.connect();
        inside.send(&message("stats", &[])[..7]);
        let began = Instant::now();
        daemon.signal(signal);
        assert!(daemon.wait().success());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(!socket.try_exists().unwrap() && !admin.try_exists().unwrap());
        for mut client in clients {
            client.wire.expect_closed();
        }
    }
}

#[test]
fn what_was_asked_before_a_drain_is_answered() {
    let daemon = warm_daemon();
    store(&client_at(daemon.socket()), &key_of(0), 1 << 20);
    let get = message(
        "get",
        &[
            ("key", Value::from(key_of(0))),
            ("model", Value::from(NAMESPACE.model)),
            ("compat_key", Value::from(NAMESPACE.compat_key)),
        ],
    );
    let mut asking = daemon.connect();
    asking.send(&get.repeat(20));
    until_true("it is being answered", || figure(&daemon, "/totals/hits") > 0);
    daemon.signal(Signal::SIGTERM);
    let _draining = daemon.log().wait_for("draining");
    for _ in 0..20 {
        let answer = asking.receive().expect("an answer to what was asked");
        assert!(answer.bytes("value") == Some(&bytes_of(&key_of(0), 1 << 20)[..]));
    }
    asking.expect_closed();
    assert!(daemon.wait().success());
}

#[test]
fn a_client_that_cannot_be_finished_with_delays_the_end_by_ten_seconds_at_most() {
    let mut daemon = warm_daemon();
    daemon.announce("before the drain deadline");
    let _deaf = deaf_client(&daemon);
    let began = Instant::now();
    daemon.signal(Signal::SIGTERM);
    let _draining = daemon.log().wait_for("draining");
    until_true("health checks see it", || daemon.admin_get("/readyz").status == 503);
    assert!(daemon.wait().success());
    // Five more seconds for a machine that is busy.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn a_second_signal_ends_it_now() {
    let mut daemon = warm_daemon();
    daemon.announce("second signal");
    let (pid, _deaf) = (daemon.pid(), deaf_client(&daemon));
    daemon.signal(Signal::SIGTERM);
    let _draining = daemon.log().wait_for("draining");
    assert!(process::is_running(pid), "one signal waits for the client");
    let began = Instant::now();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait().code(), Some(1));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn four_running_clients_outlive_restarts() {
    let folder = folder();
    let socket = folder.path().join("kvd.sock");
    let launch = || Launch::new().args(SMALL).socket(&socket).start();
    let mut daemon = launch();
    let clients: Vec<_> = (0..4)
        .map(|seed: u32| ClientProcess::start(&socket, &["come-and-go", &seed.to_string()]))
        .collect();
    for restarts in 1..=4_u64 {
        for client in &clients {
            let _attached = client.heard(&format!("epoch {restarts}"));
        }
        wait_warm(&daemon);
        until_true("there are hits", || figure(&daemon, "/totals/hits") > 500);
        if restarts.is_multiple_of(2) {
            assert!(daemon.stop().success());
        } else {
            daemon.kill();
        }
        daemon = launch();
    }
    for client in &clients {
        let _attached = client.heard("epoch 5");
    }
    for client in clients {
        let ended = client.finish();
        assert!(ended.status.success(), "{:?}", ended.said);
        assert_eq!(ended.figure("epochs"), 5);
        assert!(ended.figure("hits") > 0 && ended.figure("puts") > 0);
        // Its deadline is two seconds; the rest is for a busy machine.
        assert!(ended.figure("longest_ms") < 10_000, "{:?}", ended.said);
    }
    wait_idle(&daemon, PATIENCE);
}

#[test]
fn rights_of_before_a_restart_are_stale_and_harmless() {
    let folder = folder();
    let socket = folder.path().join("kvd.sock");
    let launch = || Launch::new().args(SMALL).socket(&socket).start();
    let daemon = launch();
    let client = client_at(&socket);
    store(&client, &key_of(0), 100_000);
    let old = client.attach().unwrap();
    let mut views = client.fetch(NAMESPACE, &[&key_of(0)], false, PATIENCE).items;
    let view = views.remove(0).unwrap();
    let mut tickets = client.reserve(&[1_000, 1_000], Retention::Short, PATIENCE).unwrap();
    daemon.kill();
    let daemon = launch();
    wait_warm(&daemon);
    // In the new arena, something else stands where the block was.
    (1..100).for_each(|index| store(&client, &key_of(index), 100_000));
    let new = client.attach().unwrap();
    assert_ne!(new.epoch, old.epoch);
    assert_ne!(new.server_id, old.server_id);
    assert!(view.to_vec() == bytes_of(&key_of(0), 100_000), "the old arena is still mapped");
    let ticket = tickets.remove(0).unwrap();
    ticket.write(0, &[7; 1_000]).unwrap();
    let commit = Commit { ticket, key: b"late", len_bytes: 1_000, lineage: None };
    let error = client.commit(NAMESPACE, vec![commit], Retention::Short, None).unwrap_err();
    let stale = matches!(error, ClientError::StaleEpoch { have, now } if have == old.epoch && now == new.epoch);
    assert!(stale && error.code() == "stale_epoch", "{error:?}");
    drop((view, tickets));
    (1..100).for_each(|index| check(&client, &key_of(index), 100_000));
    let stats = daemon.admin_json("/v1/stats");
    assert_eq!(
        (&stats["totals"]["stale_releases"], &stats["held"]["tickets"]),
        (&0.into(), &0.into())
    );
}
