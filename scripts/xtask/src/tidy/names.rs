//! Rule: a file is named after what it holds, never after being left over.

use std::path::Path;

use crate::tidy::{Finding, Tree};

const BANNED: &[&str] = &["utils", "common", "helpers", "types", "manager", "misc"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files()
        .filter(|(path, _)| {
            let stem = Path::new(path).with_extension("");
            stem.iter().any(|part| BANNED.iter().any(|banned| part == *banned))
        })
        .map(|(path, _)| Finding::at(path, 1, "says nothing about what is inside: rename it"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_names_are_found_as_files_and_as_folders() {
        let tree = Tree::planted(&[
            ("kvd/src/utils.rs", ""),
            ("kvd/src/common/mod.rs", ""),
            ("tests/python/helpers.py", ""),
            ("kvd/src/typesetting.rs", ""),
        ]);
        assert_eq!(check(&tree).len(), 3);
    }
}
