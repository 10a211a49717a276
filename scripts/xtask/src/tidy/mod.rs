//! `cargo xtask tidy`: the rules of the project that no compiler knows. One file per rule; each is a function from a
//! [`Tree`] to [`Finding`]s, so that its unit tests can plant a small violation and see it caught.

mod arrows;
mod headers;
mod invariants;
mod leftovers;
mod links;
mod names;
pub(crate) mod protocol_hash;
mod runbook;
mod rust;
mod size;
mod tree;
mod unsafe_rooms;

use std::fmt;

use anyhow::bail;

pub(crate) use self::tree::Tree;
use crate::{Context, c_header, command};

/// One broken rule, and where.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// The rules that look at nothing but the tree.
const RULES: &[fn(&Tree) -> Vec<Finding>] = &[
    headers::check,
    invariants::check,
    leftovers::check,
    links::check,
    names::check,
    protocol_hash::check,
    runbook::check,
    rust::check,
    size::check,
    unsafe_rooms::check,
];

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let tree = Tree::of_checkout(&context.root)?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    let metadata = ["metadata", "--format-version", "1", "--no-deps", "--locked"];
    let metadata = command::output_of(&mut command::cargo(&context.root, &metadata))?;
    findings.extend(arrows::check(&metadata)?);
    findings.extend(header_of(&tree, &c_header::text(&context.root)?));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    println!("tidy: {} files, nothing to say", tree.len());
    Ok(())
}

/// Rule: the checked-in C header is what `cargo xtask gen` would write.
fn header_of(tree: &Tree, computed: &str) -> Option<Finding> {
    let written = tree.text(c_header::HEADER).unwrap_or_default();
    if written == computed {
        return None;
    }
    let same = written.lines().zip(computed.lines()).take_while(|(left, right)| left == right);
    let message = "the C ABI changed: read the header again, then run `cargo xtask gen`";
    Some(Finding::at(c_header::HEADER, same.count() + 1, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_is_not_the_computed_one_is_found() {
        let tree = Tree::planted(&[(c_header::HEADER, "a\nb\n")]);
        assert_eq!(header_of(&tree, "a\nb\n"), None);
        assert_eq!(header_of(&tree, "a\nc\n").map(|finding| finding.line), Some(2));
        assert!(header_of(&Tree::planted(&[]), "a\n").is_some());
    }
}
