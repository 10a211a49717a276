//! What the rules need to know of a Rust file, read from its tokens: functions with their lines, test code, the word
//! `unsafe`. Tokens rather than a syntax tree, so that the inside of macros (`proptest!`, say) is seen too.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::tidy::{Finding, Tree};

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The line of the word `fn`.
    pub(crate) first_line: usize,
    /// The line of the closing brace.
    pub(crate) last_line: usize,
    /// Carries an attribute whose path ends in `test`.
    pub(crate) is_test: bool,
    /// Stands under `#[cfg(test)]`, or is a test itself.
    pub(crate) in_tests: bool,
}

/// The facts of one file.
#[derive(Debug, Default)]
pub(crate) struct RustFile {
    pub(crate) functions: Vec<Function>,
    /// Lines where the keyword `unsafe` stands.
    pub(crate) unsafe_lines: Vec<usize>,
    /// First and last line of each item under `#[cfg(test)]`.
    pub(crate) test_items: Vec<(usize, usize)>,
    /// The inner attributes of the file, without blanks: `forbid(unsafe_code)`.
    pub(crate) inner_attributes: Vec<String>,
}

/// What stood before the item that is being read.
#[derive(Clone, Copy, Default)]
struct Pending {
    cfg_test: bool,
    test: bool,
}

impl RustFile {
    /// # Errors
    /// The text does not split into Rust tokens.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let tokens: TokenStream =
            text.parse().map_err(|trouble: proc_macro2::LexError| trouble.to_string())?;
        let mut file = Self::default();
        file.read(tokens, false);
        Ok(file)
    }

    fn read(&mut self, tokens: TokenStream, in_tests: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut pending = Pending::default();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    at += self.attribute(&tokens, at, &mut pending);
                    continue;
                }
                TokenTree::Punct(mark) if matches!(mark.as_char(), ';' | ',') => {
                    pending = Pending::default();
                }
                TokenTree::Ident(word) if word == "unsafe" => {
                    self.unsafe_lines.push(word.span().start().line);
                }
                TokenTree::Ident(word) if word == "fn" => {
                    self.function(&tokens, at, pending, in_tests);
                }
                TokenTree::Group(group) => {
                    let tests_below = in_tests || pending.cfg_test || pending.test;
                    if pending.cfg_test && !in_tests && group.delimiter() == Delimiter::Brace {
                        self.test_items.push(lines_of(group));
                    }
                    self.read(group.stream(), tests_below);
                    if group.delimiter() == Delimiter::Brace {
                        pending = Pending::default();
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            at += 1;
        }
    }

    /// Reads the attribute that starts at `at`; the answer is its length in tokens.
    fn attribute(&mut self, tokens: &[TokenTree], at: usize, pending: &mut Pending) -> usize {
        let is_inner =
            matches!(tokens.get(at + 1), Some(TokenTree::Punct(mark)) if mark.as_char() == '!');
        let length = if is_inner { 3 } else { 2 };
        let Some(TokenTree::Group(group)) = tokens.get(at + length - 1) else {
            return 1;
        };
        let text: String = group.to_string().chars().filter(|c| !c.is_whitespace()).collect();
        let text = text.trim_start_matches('[').trim_end_matches(']');
        if is_inner {
            self.inner_attributes.push(text.to_owned());
            return length;
        }
        pending.cfg_test |= text.starts_with("cfg(test)") || text.starts_with("cfg(all(test");
        let path = text.split('(').next().unwrap_or(text);
        pending.test |= path == "test" || path.ends_with("::test");
        length
    }

    /// Records the function whose `fn` stands at `at`, if it has a name and a body.
    fn function(&mut self, tokens: &[TokenTree], at: usize, pending: Pending, in_tests: bool) {
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
            return;
        };
        let body = tokens.iter().skip(at + 2).find(|token| match token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(mark) => mark.as_char() == ';',
            TokenTree::Ident(_) | TokenTree::Literal(_) => false,
        });
        let Some(TokenTree::Group(body)) = body else {
            return;
        };
        self.functions.push(Function {
            name: name.to_string(),
            first_line: name.span().start().line,
            last_line: body.span_close().end().line,
            is_test: pending.test,
            in_tests: in_tests || pending.cfg_test || pending.test,
        });
    }
}

fn lines_of(group: &Group) -> (usize, usize) {
    (group.span_open().start().line, group.span_close().end().line)
}

/// A file that cannot be read is a finding: the other rules would be blind to it.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter_map(|(path, parsed)| Some(Finding::at(path, 1, parsed.as_ref().err()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_in_items_modules_and_macros() {
        let text = "fn a() {\n}\nimpl X { fn b(&self) -> u8 { 1 } }\ntrait T { fn c(&self); }\n\
                    type F = fn(u8);\n\
                    #[cfg(test)]\nmod tests {\n  proptest! {\n    #[test]\n    fn d(x in 0..9) {}\n  }\n}\n\
                    #[tokio::test]\nasync fn e() {}\nfn f() {}\n";
        let file = RustFile::parse(text).unwrap();
        let seen: Vec<_> =
            file.functions.iter().map(|f| (f.name.as_str(), f.is_test, f.in_tests)).collect();
        assert_eq!(
            seen,
            [
                ("a", false, false),
                ("b", false, false),
                ("d", true, true),
                ("e", true, true),
                ("f", false, false)
            ]
        );
        assert_eq!(file.functions[0].last_line, 2);
        assert_eq!(file.test_items, [(7, 12)]);
    }

    #[test]
    fn unsafe_is_the_keyword_and_nothing_else() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";\nunsafe fn f() {}\nm!(unsafe { g() });\n";
        let file = RustFile::parse(text).unwrap();
        assert_eq!(file.unsafe_lines, [4, 5]);
        assert_eq!(file.inner_attributes, ["forbid(unsafe_code)"]);
    }

    #[test]
    fn a_file_that_is_not_rust_is_a_finding() {
        let tree = Tree::planted(&[("kvd/src/a.rs", "fn a( {\n")]);
        assert_eq!(check(&tree).len(), 1);
    }
}
