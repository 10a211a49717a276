//! Rule: a relative link in a page leads to something that is there.

use crate::tidy::tree::has_extension;
use crate::tidy::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| has_extension(path, "md")) {
        let mut fenced = false;
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                for target in targets(line) {
                    if !leads_somewhere(tree, path, target) {
                        let message = format!("the link to {target} leads nowhere");
                        findings.push(Finding::at(path, index + 1, message));
                    }
                }
            }
        }
    }
    findings
}

/// What stands between `](` and `)` on a line, outside code spans.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let outside_code = line.split('`').step_by(2);
    outside_code
        .flat_map(|part| part.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)))
}

fn leads_somewhere(tree: &Tree, page: &str, target: &str) -> bool {
    let file = target.split(['#', ' ']).next().unwrap_or(target);
    if file.is_empty() || file.contains(':') {
        return true;
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return false,
            ".." => {}
            name => parts.push(name),
        }
    }
    parts.is_empty() || tree.holds(&parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found_and_live_ones_are_not() {
        let page = "[a](protocol.md) [b](../kvd/src/lib.rs#L1) [c](adr/) [d](https://example.org/x)\n\
                    [e](gone.md)\n`[f](gone.md)` [`g`](../../out.md)\n```\n[h](gone.md)\n```\n[i](#part) [j](..)\n";
        let tree = Tree::planted(&[
            ("docs/page.md", page),
            ("docs/protocol.md", ""),
            ("docs/adr/0001.md", ""),
            ("kvd/src/lib.rs", ""),
        ]);
        let lines: Vec<_> = check(&tree).into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2, 3]);
    }
}
