//! What follows from several options together.

use std::io;
use std::path::{Path, PathBuf};

use super::{no_file, problems, settings};

#[test]
fn a_file_may_use_toml_types() {
    let typed: fn(&Path) -> io::Result<String> = |_| {
        Ok("max_bytes = 1048576\nshared_arena_pin = false\nallow_uid = [0, 1000]\n\
            socket_mode = \"0660\"\nsocket_group = \"inference\"\nlong_paths = [\"/a\", \"/b\"]\n"
            .to_owned())
    };
    let settings = settings(&["--config=kvd.toml"], &[], typed);
    assert_eq!(settings.memory.budget_bytes, 1 << 20);
    assert!(!settings.memory.pin);
    assert_eq!(settings.allow_uids, [0, 1000]);
    assert_eq!(settings.socket_mode, 0o660);
    assert_eq!(settings.socket_group, Some(4711));
    assert_eq!(settings.disk.paths, [PathBuf::from("/a"), PathBuf::from("/b")]);
}

#[test]
fn groups_may_be_numbers() {
    assert_eq!(settings(&["--socket-group=12"], &[], no_file).socket_group, Some(12));
}

#[test]
fn the_two_sockets_must_differ_and_fit() {
    let found = problems(&["--socket=/x", "--admin-socket=/x"], &[], no_file);
    assert!(found[0].starts_with("flag --admin-socket: /x is the engines' socket"), "{found:#?}");
    let long = format!("--socket=/{}", "x".repeat(100));
    let found = problems(&[&long], &[], no_file);
    assert!(found[0].contains("set --admin-socket or a shorter --socket"), "{found:#?}");
    settings(&[&long, "--admin-socket=/y"], &[], no_file);
    let plain = settings(&["--socket=/run/kvd"], &[], no_file);
    assert_eq!(plain.admin_socket, PathBuf::from("/run/kvd.admin.sock"));
}

#[test]
fn one_and_several_disk_directories_exclude_each_other() {
    let found = problems(&["--long-path=/a"], &[("INFERA_KVD_LONG_PATHS", "/b,/c")], no_file);
    let wanted =
        "environment INFERA_KVD_LONG_PATHS: excludes flag --long-path; keep one of the two";
    assert_eq!(found, [wanted]);
}

#[test]
fn memory_beyond_the_arena_is_pointed_out_only_when_asked_for() {
    let remarks = |flags: &[&str]| settings(flags, &[], no_file).report.remarks;
    assert!(remarks(&["--shared-arena-bytes=2G"]).is_empty());
    let both = remarks(&["--shared-arena-bytes=2G", "--max-bytes=4G"]);
    assert!(both[0].contains("memory beyond the arena's 2147483648 bytes is not used"), "{both:?}");
    assert!(remarks(&["--shared-arena-bytes=0", "--max-bytes=4G"]).is_empty());
}

#[test]
fn tiny_sizes_work() {
    let tiny = settings(&["--max-bytes=10", "--shared-arena-bytes=64K"], &[], no_file);
    assert_eq!((tiny.memory.arena_bytes, tiny.memory.budget_bytes), (65_536, 65_536));
    let private = settings(&["--max-bytes=10", "--shared-arena-bytes=0"], &[], no_file);
    assert_eq!(private.memory.budget_bytes, 10);
    assert!(!private.memory.shared);
}
