//! Rule: every file says first what it is for. Rust with `//!`, Python with a docstring, shell with a comment.

use crate::tidy::tree::has_extension;
use crate::tidy::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files()
        .filter_map(|(path, text)| {
            let wanted = header_of(path)?;
            let first = text.lines().find(|line| !line.is_empty() && !line.starts_with("#!/"));
            let said = first.is_some_and(|line| {
                line.strip_prefix(wanted).is_some_and(|rest| rest.trim().len() >= WORDS_BYTES_MIN)
            });
            (!said).then(|| {
                Finding::at(path, 1, format!("starts without a header ({wanted} what it is for)"))
            })
        })
        .collect()
}

/// Fewer bytes than this say nothing.
const WORDS_BYTES_MIN: usize = 12;

fn header_of(path: &str) -> Option<&'static str> {
    if has_extension(path, "rs") {
        Some("//!")
    } else if has_extension(path, "py") {
        Some("\"\"\"")
    } else if has_extension(path, "sh") {
        Some("#")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_header_is_found() {
        let tree = Tree::planted(&[
            ("a.rs", "fn main() {}\n"),
            ("b.py", "import os\n"),
            ("c.sh", "#!/usr/bin/env bash\nset -eu\n"),
            ("d.rs", "//!\nfn main() {}\n"),
        ]);
        let paths: Vec<_> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["a.rs", "b.py", "c.sh", "d.rs"]);
    }

    #[test]
    fn files_with_headers_pass() {
        let tree = Tree::planted(&[
            ("a.rs", "//! The place where things are decided.\n"),
            ("b.py", "\"\"\"The place where things are decided.\"\"\"\n"),
            ("c.sh", "#!/usr/bin/env bash\n# The place where things are started.\n"),
            ("d.toml", "[package]\n"),
        ]);
        assert_eq!(check(&tree), []);
    }
}
