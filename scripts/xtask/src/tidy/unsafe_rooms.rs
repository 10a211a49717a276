//! Rule: the keyword `unsafe` stands only in the rooms that are there for it; every other crate forbids it at its root.

use crate::tidy::{Finding, Tree};

/// Folders whose code may hold `unsafe`, each with an argument beside it (clippy sees to that).
const ROOMS: &[&str] = &["kvd/disk/", "kvd/shm/", "shim/src/", "shim/python/src/", "benches/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in tree.rust_files() {
        if ROOMS.iter().any(|room| path.starts_with(room)) {
            continue;
        }
        for line in &file.unsafe_lines {
            findings.push(Finding::at(path, *line, format!("unsafe is only for {ROOMS:?}")));
        }
        let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
        if is_root && !file.inner_attributes.iter().any(|found| found == "forbid(unsafe_code)") {
            findings.push(Finding::at(path, 1, "a crate root without #![forbid(unsafe_code)]"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_outside_its_rooms_is_found() {
        let code = "pub fn f(p: *const u8) -> u8 {\n    unsafe { *p }\n}\n";
        let tree = Tree::planted(&[("kvd/shm/src/map.rs", code), ("kvd/store/src/map.rs", code)]);
        assert_eq!(
            check(&tree),
            [Finding::at("kvd/store/src/map.rs", 2, format!("unsafe is only for {ROOMS:?}"))]
        );
    }

    #[test]
    fn a_root_that_does_not_forbid_is_found() {
        let tree = Tree::planted(&[
            ("kvd/src/lib.rs", "//! x\n"),
            ("kvd/src/main.rs", "//! x\n#![forbid(unsafe_code)]\n"),
            ("kvd/shm/src/lib.rs", "//! x\n"),
        ]);
        let paths: Vec<_> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["kvd/src/lib.rs"]);
    }
}
