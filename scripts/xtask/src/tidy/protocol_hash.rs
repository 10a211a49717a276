//! Rule: the protocol's page pins a hash of the protocol's source, so that whoever changes the one opens the other.

use std::fmt::Write as _;

use crate::tidy::{Finding, Tree};

/// The page that carries the line `source-hash: <hex>`.
pub(crate) const PAGE: &str = "docs/protocol.md";
const SOURCE: &str = "kvd/proto/src/";
const MARK: &str = "source-hash: ";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else {
        return vec![Finding::at(PAGE, 1, "the page of the protocol is missing")];
    };
    if pin(page, &of(tree)) == page {
        return Vec::new();
    }
    let message = format!(
        "the source under {SOURCE} changed: read this page again, then run `cargo xtask gen`"
    );
    let line = page.lines().position(|line| line.starts_with(MARK)).map_or(1, |index| index + 1);
    vec![Finding::at(PAGE, line, message)]
}

/// The hash of the protocol's source: FNV-1a (64 bits) over paths and texts. It guards against forgetting, not
/// against anybody.
pub(crate) fn of(tree: &Tree) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for (path, text) in tree.files().filter(|(path, _)| path.starts_with(SOURCE)) {
        for byte in path.bytes().chain([0]).chain(text.bytes()).chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

/// `page` with `hash` in its line of the hash; a page without one gets it as its last line.
pub(crate) fn pin(page: &str, hash: &str) -> String {
    let mut pinned = String::new();
    let mut found = false;
    for line in page.lines() {
        if line.starts_with(MARK) && !found {
            found = true;
            let _infallible = writeln!(pinned, "{MARK}{hash}");
        } else {
            let _infallible = writeln!(pinned, "{line}");
        }
    }
    if !found {
        let _infallible = writeln!(pinned, "\n{MARK}{hash}");
    }
    pinned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree_of(source: &str, page: &str) -> Tree {
        Tree::planted(&[("kvd/proto/src/lib.rs", source), (PAGE, page)])
    }

    #[test]
    fn a_changed_source_is_found_and_pinning_mends_it() {
        let before = tree_of("//! one\n", "# Protocol\n");
        assert_eq!(check(&before).len(), 1);
        let page = pin("# Protocol\n", &of(&before));
        assert_eq!(check(&tree_of("//! one\n", &page)), []);
        let after = tree_of("//! two\n", &page);
        assert_eq!(check(&after).len(), 1);
        let page = pin(&page, &of(&after));
        assert_eq!(check(&tree_of("//! two\n", &page)), []);
        assert_eq!(page.matches(MARK).count(), 1);
    }

    #[test]
    fn the_hash_sees_names_and_ignores_other_rooms() {
        let one = Tree::planted(&[("kvd/proto/src/a.rs", "x"), ("kvd/src/b.rs", "y")]);
        let moved = Tree::planted(&[("kvd/proto/src/c.rs", "x"), ("kvd/src/b.rs", "y")]);
        let other_room = Tree::planted(&[("kvd/proto/src/a.rs", "x"), ("kvd/src/b.rs", "z")]);
        assert_ne!(of(&one), of(&moved));
        assert_eq!(of(&one), of(&other_room));
    }

    #[test]
    fn a_missing_page_is_found() {
        assert_eq!(check(&Tree::planted(&[])).len(), 1);
    }
}
