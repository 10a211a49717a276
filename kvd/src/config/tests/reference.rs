//! Existing command lines and environments keep working.

use std::io;
use std::path::Path;

use super::super::*;
use super::{no_file, settings};

/// Every value-taking flag of an existing command line, with a value that is not the default.
const REFERENCE_VALUES: [(&str, &str); 17] = [
    ("--socket", "/run/x.sock"),
    ("--max-bytes", "1.5g"),
    ("--shared-arena-bytes", "512M"),
    ("--long-path", "/data/kv"),
    ("--long-bytes", "1T"),
    ("--long-backend", "mooncake"),
    ("--mooncake-config", "/etc/mooncake.yaml"),
    ("--lmcache-config", "/etc/lmcache.yaml"),
    ("--long-workers-per-shard", "4"),
    ("--tablespace-slot-bytes", "128K"),
    ("--tablespace-container-bytes", "2G"),
    ("--tablespace-pools", "64K*1,1M*4"),
    ("--tablespace-flush-interval-ms", "20"),
    ("--io-mode", "direct"),
    ("--log-level", "warning"),
    ("--config", "kvd.toml"),
    ("--long-paths", "/data/a,/data/b"),
];
const REFERENCE_SWITCHES: [&str; 6] = [
    "--shared-arena-pin",
    "--no-shared-arena-pin",
    "--shared-arena-hugetlb",
    "--use-tablespace",
    "--tablespace-buffered-io",
    "--tablespace-auto-detect-fs",
];

#[test]
fn every_reference_flag_is_accepted_in_both_forms() {
    let empty: fn(&Path) -> io::Result<String> = |_| Ok(String::new());
    for (flag, value) in REFERENCE_VALUES {
        settings(&[flag, value], &[], empty);
        settings(&[&format!("{flag}={value}")], &[], empty);
    }
    for switch in REFERENCE_SWITCHES {
        settings(&[switch], &[], empty);
    }
    let all: Vec<&str> = REFERENCE_VALUES
        .iter()
        .filter(|(flag, _)| *flag != "--long-paths")
        .flat_map(|(flag, value)| [*flag, *value])
        .chain(REFERENCE_SWITCHES)
        .collect();
    let settings = settings(&all, &[], empty);
    assert_eq!(settings.memory.arena_bytes, 512 << 20);
    assert_eq!(settings.log.level, LogLevel::Warning);
}

#[test]
fn options_without_effect_are_named_once_for_each_reason() {
    let variables = [("INFERA_KVD_SCAN_WORKERS", "4"), ("INFERA_L4_REMOTE_URL", "redis://x")];
    let flags = ["--long-path=/data", "--long-backend=mooncake", "--tablespace-slot-bytes", "128K"];
    let settings = settings(&flags, &variables, no_file);
    let [remote, obsolete] = settings.report.remarks.as_slice() else {
        panic!("{:?}", settings.report.remarks);
    };
    for name in ["--long-backend", "INFERA_L4_REMOTE_URL"] {
        assert!(remote.contains(name), "{name} is missing in: {remote}");
    }
    for name in ["--tablespace-slot-bytes", "INFERA_KVD_SCAN_WORKERS"] {
        assert!(obsolete.contains(name), "{name} is missing in: {obsolete}");
    }
}

#[test]
fn what_is_so_anyway_is_no_remark() {
    let flags = ["--long-path=/data", "--use-tablespace", "--long-backend", "tablespace"];
    assert!(settings(&flags, &[], no_file).report.remarks.is_empty());
}

#[test]
fn foreign_variables_are_no_mistake_but_a_near_miss_is_pointed_out() {
    let variables = [
        ("INFERA_KVD_SERVICE_HOST", "10.0.0.1"),
        ("INFERA_KVD_PORT", "tcp://10.0.0.1:80"),
        ("INFERA_KVD_MAX_BYTE", "1G"),
        ("INFERA_KVD_ARENA_PREFAULT", "0"),
    ];
    let settings = settings(&[], &variables, no_file);
    let [remark] = settings.report.remarks.as_slice() else {
        panic!("{:?}", settings.report.remarks);
    };
    assert!(remark.contains("did you mean INFERA_KVD_MAX_BYTES?"), "{remark}");
}
