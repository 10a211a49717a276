//! Rule: every invariant of `docs/invariants.md` names at least one test, and every test it names is a test that is there.
//!
//! A row of the page is `| A1 | the sentence | `a_test`, `module::another_test` |`; the last part of a path is the test.

use std::collections::BTreeSet;

use crate::tidy::tree::has_extension;
use crate::tidy::{Finding, Tree};

const PAGE: &str = "docs/invariants.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else {
        return vec![Finding::at(PAGE, 1, "the page of the invariants is missing")];
    };
    let known = tests_of(tree);
    let mut findings = Vec::new();
    let mut numbers = BTreeSet::new();
    for (index, line) in page.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let (Some(number), Some(cited)) = (cells.first(), cells.last()) else {
            continue;
        };
        if cells.len() < 3 || !is_number(number) {
            continue;
        }
        if !numbers.insert(*number) {
            findings.push(Finding::at(PAGE, index + 1, format!("{number} stands here twice")));
        }
        let cited: Vec<&str> = cited.split('`').skip(1).step_by(2).collect();
        if cited.is_empty() {
            findings.push(Finding::at(PAGE, index + 1, format!("{number} names no test")));
        }
        for test in cited {
            let name = test.rsplit("::").next().unwrap_or(test);
            if !known.contains(name) {
                let message = format!("{number} names {test}, which is no test of this tree");
                findings.push(Finding::at(PAGE, index + 1, message));
            }
        }
    }
    if numbers.is_empty() {
        findings.push(Finding::at(PAGE, 1, "no row `| A1 | sentence | `test` |` was found"));
    }
    findings
}

/// A capital letter and a number: `A1`.
fn is_number(cell: &str) -> bool {
    let digits = cell.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let letters = cell.len() - digits.len();
    letters == 1 && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The names of all tests, Rust and Python.
fn tests_of(tree: &Tree) -> BTreeSet<&str> {
    let rust = tree.rust_files().flat_map(|(_, file)| &file.functions);
    let rust = rust.filter(|function| function.is_test).map(|function| function.name.as_str());
    let python = tree.files().filter(|(path, _)| has_extension(path, "py"));
    let python = python.flat_map(|(_, text)| text.lines().filter_map(python_test));
    rust.chain(python).collect()
}

fn python_test(line: &str) -> Option<&str> {
    let name = line.trim_start().strip_prefix("def ")?.split('(').next()?;
    name.starts_with("test_").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: (&str, &str) = ("kvd/tests/a.rs", "#[test]\nfn it_holds() {}\nfn no_test() {}\n");
    const PYTHON: (&str, &str) = ("tests/python/test_a.py", "def test_too(daemon):\n    pass\n");

    fn findings_of(rows: &str) -> Vec<Finding> {
        let page = format!("| number | sentence | tests |\n|---|---|---|\n{rows}");
        check(&Tree::planted(&[TESTS, PYTHON, (PAGE, &page)]))
    }

    #[test]
    fn rows_that_name_their_tests_pass() {
        assert_eq!(
            findings_of("| A1 | s | `a::it_holds` |\n| A2 | s | `test_too`, `it_holds` |\n"),
            []
        );
    }

    #[test]
    fn a_missing_test_a_row_without_one_and_a_function_that_is_no_test_are_found() {
        assert_eq!(findings_of("| A1 | s | `gone` |\n").len(), 1);
        assert_eq!(findings_of("| A1 | `s` | none |\n").len(), 1);
        assert_eq!(findings_of("| A1 | s | `no_test` |\n").len(), 1);
    }

    #[test]
    fn a_number_used_twice_and_a_page_without_rows_are_found() {
        assert_eq!(findings_of("| A1 | s | `it_holds` |\n| A1 | s | `it_holds` |\n").len(), 1);
        assert_eq!(findings_of("").len(), 1);
        assert_eq!(check(&Tree::planted(&[])).len(), 1);
    }
}
