//! Checks over laid-out roots and invented answers: each finding, and the same host without it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixListener;

use kvd_shm::arena::PageKind;
use kvd_shm::note::{Facility, Note};
use nix::errno::Errno;

use super::door::{Attached, Place};
use super::facts::Pool;
use super::trials::Small;
use super::*;
use crate::config::{self, Host, Invocation};

const GIB: u64 = 1 << 30;

fn settings(flags: &[&str]) -> Settings {
    let line = ["infera-kvd", "doctor"].iter().chain(flags).map(OsString::from);
    let host = Host { read_file: |_| unreachable!(), group_id: |_| None };
    match config::load(line, std::iter::empty(), host) {
        Ok(Invocation::Doctor { settings, .. }) => *settings,
        other => panic!("no settings: {other:?}"),
    }
}

/// A host that lacks nothing.
fn good_facts() -> Facts {
    Facts {
        kernel: Some("6.18.0".to_owned()),
        available_bytes: 64 * GIB,
        host_available_bytes: Some(64 * GIB),
        descriptors: Some(524_288),
        pool: Some(Pool { total: 8_192, free: 8_192 }),
        shmem_huge: Some("advise".to_owned()),
        nodes: Some(vec![0, 1]),
        ..Facts::default()
    }
}

fn good_trials() -> Trials {
    let small = Small { pages: PageKind::Transparent, notes: Vec::new() };
    Trials { arena: Ok(small), pidfd: Ok(()), peer_pidfd: Ok(()), ring: Ok(()) }
}

fn good_door() -> Door {
    Door {
        place: Place::Free,
        closed_folders: Vec::new(),
        may_give: true,
        metrics: None,
        is_default: true,
    }
}

fn check(flags: &[&str], facts: &Facts, trials: &Trials, door: &Door) -> Report {
    Report(checks::all(&settings(flags), facts, trials, door, &[]))
}

/// The verdict and the text of the one finding about `what` that is not fine.
fn trouble(report: &Report, what: &str) -> (Verdict, String) {
    let bad = |finding: &&Finding| finding.what == what && finding.verdict != Verdict::Ok;
    let found: Vec<&Finding> = report.0.iter().filter(bad).collect();
    assert_eq!(found.len(), 1, "{what}:\n{report}");
    (found[0].verdict, format!("{} -> {}", found[0].found, found[0].advice))
}

fn assert_trouble(report: &Report, what: &str, verdict: Verdict, words: &[&str]) {
    let (found, text) = trouble(report, what);
    assert_eq!(found, verdict, "{text}");
    for word in words {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[test]
fn a_host_that_lacks_nothing_passes() {
    for flags in [&[][..], &["--shared-arena-hugetlb", "--numa=bind:1"]] {
        let report = check(flags, &good_facts(), &good_trials(), &good_door());
        assert!(report.0.iter().all(|finding| finding.verdict == Verdict::Ok), "{report}");
        assert!(!report.has_failed());
        assert!(report.to_string().ends_with("checks, 0 warnings, 0 failed\n"), "{report}");
    }
}

#[test]
fn memory_that_is_not_there() {
    let short = Facts { available_bytes: 4 * GIB, ..good_facts() };
    let report = check(&[], &short, &good_trials(), &good_door());
    assert_trouble(&report, "memory", Verdict::Fail, &["8 GiB", "control group", "smaller size"]);
    let tight = Facts { available_bytes: 8 * GIB + 1, ..good_facts() };
    let report = check(&[], &tight, &good_trials(), &good_door());
    assert_trouble(&report, "memory", Verdict::Warn, &["--max-bytes"]);
    let answer = Ok(Attached { server: "kvd-1".to_owned(), session: 1 });
    let served = Door { place: Place::Served { holder: Some(7), answer }, ..good_door() };
    let report = check(&[], &short, &good_trials(), &served);
    assert!(!report.has_failed(), "the running daemon has the memory:\n{report}");
    let promised = Facts { commit_room_bytes: Some(GIB), ..good_facts() };
    let report = check(&[], &promised, &good_trials(), &good_door());
    assert_trouble(&report, "overcommit", Verdict::Fail, &["vm.overcommit_memory=0"]);
}

#[test]
fn a_lock_that_is_refused() {
    let limited = Facts { memlock_bytes: Some(8 << 20), swap_bytes: GIB, ..good_facts() };
    let report = check(&[], &limited, &good_trials(), &good_door());
    assert_trouble(&report, "memlock", Verdict::Warn, &["LimitMEMLOCK=infinity"]);
    assert_trouble(&report, "swap", Verdict::Warn, &["memlock"]);
    let small = check(&["--max-bytes=8M"], &limited, &good_trials(), &good_door());
    assert!(small.to_string().contains("0 warnings"), "{small}");
}

#[test]
fn pages_that_are_small() {
    let few = Facts { pool: Some(Pool { total: 100, free: 96 }), ..good_facts() };
    let report = check(&["--shared-arena-hugetlb"], &few, &good_trials(), &good_door());
    assert_trouble(&report, "huge pages", Verdict::Warn, &["4096", "vm.nr_hugepages=4100"]);
    let small = Small { pages: PageKind::Small, notes: Vec::new() };
    let trials = Trials { arena: Ok(small), ..good_trials() };
    let report = check(&[], &good_facts(), &trials, &good_door());
    assert_trouble(&report, "huge pages", Verdict::Warn, &["shmem_enabled"]);
    let report = check(&["--numa=bind:7"], &good_facts(), &good_trials(), &good_door());
    assert_trouble(&report, "memory nodes", Verdict::Fail, &["bind:7", "[0, 1]"]);
}

#[test]
fn what_the_kernel_refuses() {
    let notes = vec![Note { facility: Facility::NumaPolicy, errno: Errno::EPERM }];
    let trials = Trials {
        arena: Ok(Small { pages: PageKind::Transparent, notes }),
        pidfd: Err("EPERM".to_owned()),
        peer_pidfd: Err("ENOPROTOOPT".to_owned()),
        ring: Err("io_uring is refused: EPERM".to_owned()),
    };
    let report = check(&[], &good_facts(), &trials, &good_door());
    assert_trouble(&report, "arena", Verdict::Warn, &["NUMA policy", "mbind"]);
    assert_trouble(&report, "processes", Verdict::Warn, &["pidfd_open", "quarantine"]);
    assert!(
        !report.0.iter().any(|finding| finding.what == "io_uring" && !finding.advice.is_empty())
    );
    let disk = ["--long-path=/x"];
    let off = Facts { io_uring_disabled: Some(2), ..good_facts() };
    let report = check(&disk, &off, &trials, &good_door());
    assert_trouble(&report, "io_uring", Verdict::Warn, &["kernel.io_uring_disabled=0"]);
    let filtered = Facts { is_filtered: true, io_uring_disabled: Some(0), ..good_facts() };
    let report = check(&disk, &filtered, &trials, &good_door());
    assert_trouble(&report, "io_uring", Verdict::Warn, &["seccomp profile"]);
    let old = Trials { pidfd: Ok(()), ..trials };
    let report = check(&[], &good_facts(), &old, &good_door());
    assert_trouble(&report, "processes", Verdict::Warn, &["6.5"]);
    let none = Trials { arena: Err("creating the file: EPERM".to_owned()), ..good_trials() };
    let report = check(&[], &good_facts(), &none, &good_door());
    assert_trouble(&report, "arena", Verdict::Fail, &["memfd_create"]);
    let few = Facts { descriptors: Some(1_024), ..good_facts() };
    let report = check(&[], &few, &good_trials(), &good_door());
    assert_trouble(&report, "nofile", Verdict::Warn, &["2112", "LimitNOFILE"]);
}

#[test]
fn doors_that_do_not_open() {
    let seen = |door: &Door, flags: &[&str]| check(flags, &good_facts(), &good_trials(), door);
    for (place, verdict, word) in [
        (Place::Barred("/run: EACCES".to_owned()), Verdict::Fail, "another --socket"),
        (Place::Other, Verdict::Fail, "not a socket"),
        (Place::Closed, Verdict::Warn, "member of the socket's group"),
        (
            Place::Served { holder: Some(42), answer: Err("timed out".to_owned()) },
            Verdict::Fail,
            "process 42",
        ),
    ] {
        let door = Door { place, ..good_door() };
        assert_trouble(&seen(&door, &[]), "socket", verdict, &[word]);
    }
    let report = seen(&good_door(), &["--socket-mode=0666"]);
    assert_trouble(&report, "access", Verdict::Warn, &["everybody"]);
    let report = seen(&good_door(), &["--socket-mode=0666", "--allow-uid=1000"]);
    assert!(!report.to_string().contains("warn "), "{report}");
    let report = seen(&good_door(), &["--socket-group=12"]);
    assert_trouble(&report, "access", Verdict::Warn, &["0660"]);
    let stranger = Door { may_give: false, ..good_door() };
    let report = seen(&stranger, &["--socket-group=12", "--socket-mode=0660"]);
    assert_trouble(&report, "access", Verdict::Fail, &["SupplementaryGroups"]);
    let closed = Door { closed_folders: vec!["/run/x".into()], ..good_door() };
    let report = seen(&closed, &["--socket-group=12", "--socket-mode=0660"]);
    assert_trouble(&report, "access", Verdict::Warn, &["/run/x is closed", "chmod"]);
    let taken = Door { metrics: Some(Err("in use".to_owned())), ..good_door() };
    assert_trouble(&seen(&taken, &[]), "metrics", Verdict::Fail, &["in use"]);
}

#[test]
fn engines_that_look_elsewhere() {
    let elsewhere = Door { is_default: false, ..good_door() };
    let report = check(&["--socket=/run/x.sock"], &good_facts(), &good_trials(), &elsewhere);
    assert_trouble(&report, "engines", Verdict::Warn, &["INFERA_KVD_SOCKET=/run/x.sock"]);
    let variables = vec![("INFERA_KVD_SOCKET".to_owned(), "/run/y.sock".to_owned())];
    let facts = Facts { variables, ..good_facts() };
    let report = check(&["--socket=/run/x.sock"], &facts, &good_trials(), &elsewhere);
    assert_trouble(&report, "engines", Verdict::Warn, &["/run/y.sock", "/run/x.sock"]);
    assert!(report.to_string().contains("Unix socket that engines connect to"), "{report}");
    let report = check(&["--socket=/run/y.sock"], &facts, &good_trials(), &elsewhere);
    assert!(!report.to_string().contains("warn "), "{report}");
}

#[test]
fn remarks_on_the_options_are_findings_too() {
    let report = check(&["--long-bytes=1G"], &good_facts(), &good_trials(), &good_door());
    assert_trouble(&report, "configuration", Verdict::Warn, &["no disk tier"]);
}

#[test]
fn facts_are_read_from_files() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("proc/sys/kernel/osrelease", "6.1.0\n");
    put("proc/self/status", "Name:\tx\nCapEff:\t00000000a80425fb\nSeccomp:\t2\n");
    put(
        "proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units\n\
         Max open files            1024                 524288               files\n\
         Max locked memory         8388608              16777216             bytes\n",
    );
    put(
        "proc/meminfo",
        "MemAvailable: 2048 kB\nSwapTotal: 1024 kB\nCommitLimit: 4096 kB\nCommitted_AS: 1024 kB\n",
    );
    put("proc/sys/vm/overcommit_memory", "2\n");
    put("proc/sys/kernel/io_uring_disabled", "1\n");
    put("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [never] deny\n");
    put("sys/devices/system/node/has_memory", "0-1\n");
    let pool = "sys/kernel/mm/hugepages/hugepages-2048kB/";
    for (name, count) in
        [("nr", "10"), ("free", "6"), ("resv", "2"), ("nr_overcommit", "5"), ("surplus", "1")]
    {
        put(&format!("{pool}{name}_hugepages"), count);
    }
    let variables = [("PATH", "/bin"), ("INFERA_KVD_NUMA", "bind:0")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let facts = Facts::gather(root.path(), variables.into_iter());
    let expected = Facts {
        kernel: Some("6.1.0".to_owned()),
        memlock_bytes: Some(16 << 20),
        descriptors: Some(524_288),
        available_bytes: 2 << 20,
        host_available_bytes: Some(2 << 20),
        swap_bytes: 1 << 20,
        commit_room_bytes: Some(3 << 20),
        pool: Some(Pool { total: 10, free: 8 }),
        shmem_huge: Some("never".to_owned()),
        nodes: Some(vec![0, 1]),
        io_uring_disabled: Some(1),
        is_filtered: true,
        variables: vec![("INFERA_KVD_NUMA".to_owned(), "bind:0".to_owned())],
    };
    assert_eq!(facts, expected);
    put("proc/self/status", "CapEff:\t000001ffffffffff\nSeccomp:\t0\n");
    let facts = Facts::gather(root.path(), std::iter::empty());
    assert_eq!((facts.memlock_bytes, facts.is_filtered), (None, false));
    let nothing = tempfile::tempdir().unwrap();
    let facts = Facts::gather(nothing.path(), std::iter::empty());
    assert_eq!(facts, Facts { available_bytes: u64::MAX, ..Facts::default() });
}

#[test]
fn sockets_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let path = folder.path().join(name);
        Door::look(&settings(&["--socket", path.to_str().unwrap()])).place
    };
    assert_eq!(place("none"), Place::Free);
    assert_eq!(place("deep/er/none"), Place::Free);
    fs::write(folder.path().join("file"), "").unwrap();
    assert_eq!(place("file"), Place::Other);
    drop(UnixListener::bind(folder.path().join("stale")).unwrap());
    assert_eq!(place("stale"), Place::Free);
    let mute = UnixListener::bind(folder.path().join("mute")).unwrap();
    let thread = std::thread::Builder::new().name("mute".to_owned());
    let answered = thread.spawn(move || drop(mute.accept())).unwrap();
    let own = i32::try_from(std::process::id()).ok();
    let Place::Served { holder, answer: Err(_) } = place("mute") else { panic!("not served") };
    assert_eq!(holder, own);
    answered.join().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left behind");
}

#[test]
fn directories_are_weighed() {
    let parent = tempfile::tempdir().unwrap();
    let (one, other) = (parent.path().join("a"), parent.path().join("b"));
    let flag = format!("--long-paths={},{}", one.display(), other.display());
    let settings = settings(&[&flag, "--long-bytes=100T"]);
    let directories = storage::look(&settings);
    let report =
        Report(checks::all(&settings, &good_facts(), &good_trials(), &good_door(), &directories));
    let rooms = report.0.iter().filter(|finding| finding.what == "disk room");
    assert!(rooms.clone().count() == 2 && rooms.clone().all(|room| room.verdict == Verdict::Warn));
    assert!(report.to_string().contains("share a file system"), "{report}");
    assert!(!fs::exists(&one).unwrap(), "nothing is made");
    let barred =
        Directory { barred: Some("EACCES".to_owned()), ..storage::look(&settings).remove(0) };
    let report =
        Report(checks::all(&settings, &good_facts(), &good_trials(), &good_door(), &[barred]));
    assert_trouble(&report, "disk tier", Verdict::Fail, &["ReadWritePaths"]);
    fs::write(&one, "mine").unwrap();
    let report = Report(checks::all(
        &settings,
        &good_facts(),
        &good_trials(),
        &good_door(),
        &storage::look(&settings)[..1],
    ));
    assert_trouble(&report, "disk tier", Verdict::Fail, &["a is a file", "give --long-path"]);
}

#[test]
fn reports_have_a_form_for_scripts() {
    let report = Report(vec![Finding::ok("a", "fine"), Finding::fail("b", "bad", "mend it")]);
    let json: serde_json::Value = serde_json::from_str(&report.as_json()).unwrap();
    assert_eq!((&json["failed"], &json["warned"]), (&1.into(), &0.into()));
    assert_eq!(json["findings"][1]["verdict"], "fail");
    assert_eq!(json["findings"][1]["advice"], "mend it");
    assert_eq!(
        report.to_string(),
        "ok    a  fine\nFAIL  b  bad  -> mend it\n2 checks, 0 warnings, 1 failed\n"
    );
    assert!(report.has_failed());
}

#[test]
fn this_host_can_be_examined() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kvd.sock");
    let report = examine(&settings(&["--max-bytes=1M", "--socket", socket.to_str().unwrap()]));
    for what in ["memory", "memlock", "kernel", "nofile", "processes", "io_uring", "socket"] {
        assert!(report.0.iter().any(|finding| finding.what == what), "{what}:\n{report}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}
