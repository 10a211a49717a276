//! Rule: whatever a program warns of stands on its page, with what to do. Looked for is the fixed part of the message, up
//! to its first placeholder; a message that is all placeholder is told by whoever fills it in.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::tidy::tree::{has_extension, is_test_path};
use crate::tidy::{Finding, Tree};

/// Whose warnings are explained where.
const PAGES: [(&str, &str); 2] =
    [("kvd/src/", "docs/runbook.md"), ("router/src/", "docs/router.md")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    PAGES.iter().flat_map(|(folder, page)| check_folder(tree, folder, page)).collect()
}

fn check_folder(tree: &Tree, folder: &str, page_path: &str) -> Vec<Finding> {
    let page = one_line(tree.text(page_path).unwrap_or_default());
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        if !path.starts_with(folder) || !has_extension(path, "rs") || is_test_path(path) {
            continue;
        }
        let mut messages = Vec::new();
        // What is no Rust is another rule's finding.
        if let Ok(tokens) = text.parse::<TokenStream>() {
            collect(tokens, &mut messages);
        }
        let tests =
            tree.rust_files().find(|(other, _)| *other == path).map(|(_, file)| &file.test_items);
        let is_test = |line| {
            tests.is_some_and(|tests| {
                tests.iter().any(|(first, last)| (*first..=*last).contains(&line))
            })
        };
        for (line, message) in messages {
            if !is_test(line) && !page.contains(&message) {
                let message = format!("{message:?} has no entry in {page_path}");
                findings.push(Finding::at(path, line, message));
            }
        }
    }
    findings
}

/// Finds `warn!(…)` and `error!(…)`, with the line and the fixed part of their message.
fn collect(tokens: TokenStream, messages: &mut Vec<(usize, String)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let is_call = group.delimiter() == Delimiter::Parenthesis
            && index >= 2
            && matches!(&tokens[index - 1], TokenTree::Punct(mark) if mark.as_char() == '!')
            && matches!(&tokens[index - 2], TokenTree::Ident(name) if name == "warn" || name == "error");
        if !is_call {
            collect(group.stream(), messages);
        } else if let Some(message) = message(group.stream()) {
            messages.push((group.span_open().start().line, message));
        }
    }
}

/// The last text of the call that is not the value of a field.
fn message(arguments: TokenStream) -> Option<String> {
    let arguments: Vec<TokenTree> = arguments.into_iter().collect();
    let is_value = |index: usize| {
        let before = index.checked_sub(1).and_then(|before| arguments.get(before));
        matches!(before, Some(TokenTree::Punct(mark)) if mark.as_char() == '=')
    };
    let texts = arguments.iter().enumerate().rev().filter(|(index, _)| !is_value(*index));
    let literal = texts.into_iter().find_map(|(_, token)| match token {
        TokenTree::Literal(literal) => {
            Some(literal.to_string().strip_prefix('"')?.strip_suffix('"')?.replace("\\\n", ""))
        }
        _ => None,
    })?;
    let fixed = one_line(literal.split('{').next().unwrap_or_default());
    (!fixed.is_empty()).then_some(fixed)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = r#"
        fn f() {
            tracing::warn!(%error, thread = thread.unwrap_or("unnamed"), "the sky \
                is falling: {reason}");
            g(|| tracing::error!(path = "x", "all is lost"));
            tracing::error!("{error}");
            tracing::info!("nothing to see");
        }
    "#;

    #[test]
    fn a_warning_without_an_entry_is_found() {
        let page = "| the sky is\nfalling: … | why | what to do |\n";
        for (folder, page_path) in PAGES {
            let code = format!("{folder}a.rs");
            let tree = Tree::planted(&[(&code, CODE), (page_path, page)]);
            let findings = check(&tree);
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert!(findings[0].message.contains("all is lost"));
            assert_eq!(findings[0].line, 5);
            let page = format!("{page}| all is lost | … | … |");
            assert_eq!(check(&Tree::planted(&[(&code, CODE), (page_path, &page)])), []);
        }
    }

    #[test]
    fn other_rooms_and_tests_are_left_out() {
        let tests = format!("#[cfg(test)]\nmod tests {{ {CODE} }}");
        let tree = Tree::planted(&[("kvd/ctl/src/a.rs", CODE), ("kvd/src/a.rs", &tests)]);
        assert_eq!(check(&tree), []);
    }
}
