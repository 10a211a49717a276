//! Rule: a file fits in a reader's head (500 lines), a function on a screen (70 lines). Tests are left out.

use crate::tidy::tree::{has_extension, is_test_path};
use crate::tidy::{Finding, Tree};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| !is_test_path(path)) {
        if has_extension(path, "py") || has_extension(path, "sh") {
            findings.extend(too_long(path, text.lines().count()));
        }
    }
    for (path, file) in tree.rust_files().filter(|(path, _)| !is_test_path(path)) {
        let tests: usize = file.test_items.iter().map(|(first, last)| last - first + 1).sum();
        let lines = tree.text(path).map_or(0, |text| text.lines().count());
        findings.extend(too_long(path, lines - tests));
        for function in file.functions.iter().filter(|function| !function.in_tests) {
            let lines = function.last_line - function.first_line + 1;
            if lines > FUNCTION_LINES_MAX {
                let name = &function.name;
                let message = format!("fn {name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
                findings.push(Finding::at(path, function.first_line, message));
            }
        }
    }
    findings
}

fn too_long(path: &str, lines: usize) -> Option<Finding> {
    (lines > FILE_LINES_MAX).then(|| {
        Finding::at(path, lines, format!("{lines} lines without tests, at most {FILE_LINES_MAX}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn the_longest_function_passes_and_one_line_more_is_found() {
        assert_eq!(check(&Tree::planted(&[("kvd/src/a.rs", &function_of(70))])), []);
        assert_eq!(check(&Tree::planted(&[("kvd/src/a.rs", &function_of(71))])).len(), 1);
    }

    #[test]
    fn the_longest_file_passes_and_one_line_more_is_found() {
        let fits = "const A: u8 = 1;\n".repeat(500);
        assert_eq!(check(&Tree::planted(&[("kvd/src/a.rs", &fits)])), []);
        let over = format!("{fits}const B: u8 = 1;\n");
        assert_eq!(check(&Tree::planted(&[("kvd/src/a.rs", &over)])).len(), 1);
        let script = "true\n".repeat(501);
        assert_eq!(check(&Tree::planted(&[("scripts/a.sh", &script)])).len(), 1);
    }

    #[test]
    fn tests_are_left_out() {
        let long = function_of(501);
        let module = format!("const A: u8 = 1;\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert_eq!(check(&Tree::planted(&[("kvd/src/a.rs", &module)])), []);
        assert_eq!(check(&Tree::planted(&[("kvd/tests/a.rs", &long)])), []);
    }
}
