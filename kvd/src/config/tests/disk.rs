//! The disk tier: defaults, older ways of saying the same, and what is refused.

use std::path::PathBuf;
use std::time::Duration;

use super::super::*;
use super::{no_file, problems, settings};

fn disk(flags: &[&str], variables: &[(&str, &str)]) -> DiskSettings {
    let all: Vec<&str> = ["--long-path=/data"].iter().chain(flags).copied().collect();
    settings(&all, variables, no_file).disk
}

#[test]
fn without_a_directory_there_is_no_disk_tier() {
    let settings = settings(&[], &[], no_file);
    assert!(!settings.disk.is_on());
    assert!(settings.report.remarks.is_empty());
    assert!(!disk(&["--long-bytes=0"], &[]).is_on());
}

#[test]
fn defaults_are_modest() {
    let wanted = DiskSettings {
        paths: vec![PathBuf::from("/data")],
        bytes_each: 32 << 30,
        container_bytes: None,
        depth: None,
        io_mode: IoMode::Auto,
        durability: Durability::Relaxed,
        load_deadline: Duration::from_secs(5),
        write_budget_bytes: 0,
        second_touch: true,
        verify_one_in: None,
        drain_on_stop: false,
        self_check: true,
    };
    assert_eq!(disk(&[], &[]), wanted);
}

#[test]
fn every_option_arrives() {
    let found = disk(
        &[
            "--long-bytes=1G",
            "--tablespace-container-bytes=65M",
            "--long-workers-per-shard=4",
            "--io-mode=direct",
            "--durability=group",
            "--tablespace-flush-interval-ms=25",
            "--load-deadline=300ms",
            "--write-budget=10M",
            "--second-touch=false",
            "--verify-l2=1/1000",
            "--drain-on-stop",
        ],
        &[("INFERA_KVD_STORAGE_SELFCHECK", "0")],
    );
    let wanted = DiskSettings {
        paths: vec![PathBuf::from("/data")],
        bytes_each: 1 << 30,
        container_bytes: Some(65 << 20),
        depth: Some(4),
        io_mode: IoMode::Direct,
        durability: Durability::Group(Duration::from_millis(25)),
        load_deadline: Duration::from_millis(300),
        write_budget_bytes: 10 << 20,
        second_touch: false,
        verify_one_in: Some(1000),
        drain_on_stop: true,
        self_check: false,
    };
    assert_eq!(found, wanted);
}

#[test]
fn the_bytes_are_split_evenly_in_whole_blocks() {
    let found = settings(&["--long-paths=/a, /b,/c", "--long-bytes=100M"], &[], no_file).disk;
    let paths = ["/a", "/b", "/c"].map(PathBuf::from);
    assert_eq!((found.paths.as_slice(), found.bytes_each), (&paths[..], 34_951_168));
}

#[test]
fn what_cannot_be_is_named() {
    let found = problems(&["--long-paths=/a,/b", "--long-bytes=31M"], &[], no_file);
    assert!(
        found[0].starts_with("flag --long-bytes: 32505856 bytes are too few for 2"),
        "{found:?}"
    );
    let found = problems(&["--long-paths=/a,/b,/a"], &[], no_file);
    assert_eq!(found, ["flag --long-paths: /a is named twice"]);
    let found = problems(&["--verify-l2=0.01"], &[], no_file);
    assert!(found[0].contains("expected off, or 1/N"), "{found:?}");
}

#[test]
fn an_explicit_durability_wins_over_the_older_words() {
    let durability =
        |flags: &[&str], fsync: &str| disk(flags, &[("INFERA_KVD_LONG_FSYNC", fsync)]).durability;
    let (interval, twenty) =
        ("--tablespace-flush-interval-ms=20", Durability::Group(Duration::from_millis(20)));
    assert_eq!(durability(&[], "0"), Durability::Relaxed);
    assert_eq!(durability(&[interval], "0"), twenty);
    assert_eq!(durability(&[interval], "1"), Durability::Strict);
    assert_eq!(durability(&[interval, "--durability=relaxed"], "1"), Durability::Relaxed);
    assert_eq!(durability(&[interval, "--durability=group"], "1"), twenty);
    assert_eq!(durability(&["--durability=strict"], "0"), Durability::Strict);
    let usual = Durability::Group(Duration::from_millis(10));
    assert_eq!(durability(&["--durability=group"], "0"), usual);
}

#[test]
fn the_io_mode_is_chosen_by_rank() {
    let mode = |flags: &[&str], variables: &[(&str, &str)]| disk(flags, variables).io_mode;
    let variable = ("INFERA_KVD_IO_MODE", "buffered");
    let flag = "--io-mode=direct";
    assert_eq!(mode(&[flag], &[]), IoMode::Direct);
    assert_eq!(mode(&[flag], &[variable]), IoMode::Buffered, "the environment comes first here");
    let detect = "--tablespace-auto-detect-fs";
    assert_eq!(mode(&[flag, detect], &[variable]), IoMode::ByFileSystem);
    let buffered = "--tablespace-buffered-io";
    assert_eq!(mode(&[flag, detect, buffered], &[]), IoMode::Buffered);
}

#[test]
fn a_container_larger_than_the_share_is_no_choice() {
    let bytes = |flags: &[&str]| disk(flags, &[]).container_bytes;
    assert_eq!(bytes(&["--long-bytes=100M", "--tablespace-container-bytes=1G"]), None);
    assert_eq!(
        bytes(&["--long-bytes=100M", "--tablespace-container-bytes=8000000"]),
        Some(7_999_488)
    );
}

#[test]
fn options_of_a_tier_that_is_off_are_pointed_out() {
    let remarks = settings(&["--durability=strict", "--second-touch"], &[], no_file).report.remarks;
    let [remark] = remarks.as_slice() else { panic!("{remarks:?}") };
    assert!(remark.contains("flag --durability") && remark.contains("--long-path"), "{remark}");
    assert!(settings(&["--verify-l2=1/2"], &[], no_file).report.remarks.is_empty());
    let variables = [("INFERA_KVD_LONG_FSYNC", "0")];
    assert!(settings(&[], &variables, no_file).report.remarks.is_empty());
}

#[test]
fn check_config_tells_what_follows() {
    let text = settings(&["--long-paths=/a,/b"], &[], no_file).report.to_string();
    assert!(text.contains("disk: 2 directories, at most 17179869184 bytes in each"), "{text}");
    assert!(text.contains("disk: durability relaxed, auto i/o"), "{text}");
}
