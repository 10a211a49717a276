//! Every mistake is named with its source, all of them at once.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use super::super::*;
use super::{host, no_file, problems, start};

fn file_with_mistakes(_: &Path) -> io::Result<String> {
    Ok("max_byte = 5\nsocket_mode = 432\nleases-max = [1]\nview_grace = 3\n\
        write_stall = \"1s\"\nwrite-stall = \"2s\"\n"
        .to_owned())
}

#[test]
fn all_problems_of_all_sources_are_reported_at_once() {
    let found = problems(
        &[
            "--max-bytes",
            "lots",
            "--sokcet",
            "/x",
            "--config=kvd.toml",
            "--tickets-max",
            "--numa=all",
        ],
        &[("INFERA_KVD_PROMISE_WINDOW", "30"), ("INFERA_KVD_SOCKET_GROUP", "nobody-knows")],
        file_with_mistakes,
    );
    for wanted in [
        "flag --sokcet: not known; did you mean --socket?",
        "flag --tickets-max: no value given; expected a whole number",
        "flag --max-bytes: \"lots\" is not allowed; expected a size from 1 to 1024T",
        "flag --numa: \"all\" is not allowed; expected interleave or bind:NODE",
        "environment INFERA_KVD_PROMISE_WINDOW: \"30\" is not allowed; expected a time from 0s to 1h",
        "environment INFERA_KVD_SOCKET_GROUP: there is no group \"nobody-knows\"",
        "kvd.toml: max_byte: not known; did you mean max_bytes?",
        "kvd.toml: socket_mode: write the permissions as a text",
        "kvd.toml: leases-max: a TOML array is not allowed",
        "kvd.toml: view_grace: \"3\" is not allowed; expected a time",
        "the same option as",
    ] {
        assert!(found.iter().any(|line| line.contains(wanted)), "{wanted:?} is not in {found:#?}");
    }
    assert_eq!(found.len(), 11, "{found:#?}");
}

#[test]
fn the_listing_counts_and_indents() {
    let refused = start(&["--max-bytes=0"], &[], no_file).unwrap_err().to_string();
    assert!(
        refused.starts_with("1 configuration problem:\n  flag --max-bytes: \"0\""),
        "{refused}"
    );
}

#[test]
fn a_missing_value_is_named_wherever_it_stands() {
    for flags in [&["--socket"][..], &["--socket", "--numa", "bind:0"]] {
        let found = problems(flags, &[], no_file);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].starts_with("flag --socket: no value given"), "{found:#?}");
    }
    let found = problems(&["--max-bytes="], &[], no_file);
    assert!(found[0].starts_with("flag --max-bytes: "), "{found:#?}");
}

#[test]
fn stray_words_and_short_flags_are_named() {
    let found = problems(&["serve", "-x", "--max-bytes", "-5"], &[], no_file);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].starts_with("argument serve: not known; the commands are"), "{found:#?}");
    assert!(found[1].starts_with("flag -x: not known"), "{found:#?}");
    assert!(found[2].starts_with("flag --max-bytes: \"-5\" is not allowed"), "{found:#?}");
}

#[test]
fn a_switch_takes_its_value_after_the_equals_sign() {
    let found = problems(&["--shared-arena-pin", "maybe"], &[], no_file);
    let expected = "argument maybe: not known; a value of --shared-arena-pin stands after =";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:#?}");
    let found = problems(&["--no-shared-arena-pin=true"], &[], no_file);
    assert_eq!(found, ["flag --no-shared-arena-pin: takes no value"]);
}

#[test]
fn text_that_is_not_utf_8_is_a_problem_of_its_source() {
    let broken = OsString::from_vec(vec![b'/', 0xFF]);
    let arguments = ["infera-kvd".into(), "--socket".into(), broken.clone()];
    let variables = [(OsString::from("INFERA_KVD_ADMIN_SOCKET"), broken)];
    let Err(Problems(found)) = load(arguments, variables, host(no_file)) else {
        panic!("accepted");
    };
    let sources: Vec<String> = found.iter().map(|problem| problem.source.to_string()).collect();
    assert_eq!(sources, ["flag --socket", "environment INFERA_KVD_ADMIN_SOCKET"]);
}

#[test]
fn an_unreadable_or_broken_file_is_a_problem_of_who_named_it() {
    let found = problems(&["--config", "gone.toml"], &[], no_file);
    assert!(found[0].starts_with("flag --config: cannot read gone.toml"), "{found:#?}");
    let broken: fn(&Path) -> io::Result<String> = |_| Ok("max_bytes = \n".to_owned());
    let found = problems(&[], &[("INFERA_KVD_CONFIG", "kvd.toml")], broken);
    assert!(
        found[0].starts_with("environment INFERA_KVD_CONFIG: kvd.toml is not TOML"),
        "{found:#?}"
    );
    assert!(found[0].contains("line 1"), "{found:#?}");
}
