//! Rule: nothing is left open in the tree. What is not done stands in an issue, not in a comment.

use crate::tidy::{Finding, Tree};

/// Spelled in two halves, so that this file does not find itself.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| !path.ends_with(".lock")) {
        for (index, line) in text.lines().enumerate() {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for word in words.filter(|word| MARKS.contains(word)) {
                findings.push(Finding::at(path, index + 1, format!("{word}: do it or file it")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_as_a_whole_word_only() {
        let text = format!("// {}: later\nlet {}S = 1;\n// done\n", MARKS[0], MARKS[0]);
        let findings = check(&Tree::planted(&[("kvd/src/a.rs", &text)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1]);
    }
}
