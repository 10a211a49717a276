//! What people read: help, `check-config`, documentation.

use std::path::Path;

use super::super::*;
use super::{no_file, settings, start};

#[test]
fn help_teaches_and_version_tells() {
    let Ok(Invocation::Print(help)) = start(&["--help"], &[], no_file) else {
        panic!("no help");
    };
    for option in table::all().filter(|option| option.flag) {
        assert!(
            help.contains(&format!("--{}", option.name)),
            "--{} is not in the help",
            option.name
        );
    }
    for group in option::Group::ALL {
        assert!(help.contains(group.heading()), "{}", group.heading());
    }
    for fact in
        ["[default: 8G]", "--shared-arena-pin[=<BOOL>]", "--socket <PATH>", "powers of 1024"]
    {
        assert!(help.contains(fact), "{fact} is not in:\n{help}");
    }
    let Ok(Invocation::Print(version)) = start(&["--version"], &[], no_file) else {
        panic!("no version");
    };
    assert_eq!(version.trim(), format!("infera-kvd {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_description_names_values_and_sources() {
    let settings =
        settings(&["--shared-arena-bytes=1G"], &[("INFERA_KVD_NUMA", "bind:1")], no_file);
    let text = settings.report.to_string();
    let line = |name: &str| {
        let found = text.lines().find(|line| line.starts_with(name));
        found.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
    };
    assert_eq!(line("shared-arena-bytes"), "shared-arena-bytes 1G flag --shared-arena-bytes");
    assert_eq!(line("numa"), "numa bind:1 environment INFERA_KVD_NUMA");
    assert_eq!(line("view-grace"), "view-grace 1s default");
    assert!(text.contains("arena: 1073741824 bytes, shared with clients"), "{text}");
    assert!(!text.contains("long-bytes"), "{text}");
}

/// The table of `docs/configuration.md` as the code has it.
fn documented() -> String {
    let mut text = String::new();
    for group in option::Group::ALL {
        text.push_str(&format!("\n### {}\n\n", group.heading()));
        text.push_str("| flag | environment | file key | default | value | meaning |\n|---|---|---|---|---|---|\n");
        for option in table::all().filter(|option| option.group == group) {
            let flag = if option.flag { format!("`--{}`", option.name) } else { "–".to_owned() };
            let names: Vec<String> =
                option.environment_names().map(|name| format!("`{name}`")).collect();
            let default = match option.default {
                "" => "–".to_owned(),
                default => format!("`{default}`"),
            };
            text.push_str(&format!(
                "| {flag} | {} | {} | {default} | {} | {} |\n",
                names.join(", "),
                if option.name == "config" {
                    "–".to_owned()
                } else {
                    format!("`{}`", option.name.replace('-', "_"))
                },
                option.kind.allowed(),
                option.help,
            ));
        }
    }
    text
}

#[test]
fn the_documentation_has_the_same_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let table = documented();
    assert!(
        page.contains(&table),
        "docs/configuration.md does not contain the option table; it should read:\n{table}"
    );
}
