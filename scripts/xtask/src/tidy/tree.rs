//! The text files of the checkout, held in memory: what every rule looks at.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;

use crate::command;
use crate::tidy::rust::RustFile;

/// Files by path relative to the root, with `/` between the parts. A file that is not UTF-8 counts as present and empty.
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
    rust: BTreeMap<String, Result<RustFile, String>>,
}

impl Tree {
    /// What git tracks or would track: ignored files are nobody's business.
    ///
    /// # Errors
    /// git cannot list the files, or one of them cannot be read.
    pub(crate) fn of_checkout(root: &Path) -> anyhow::Result<Self> {
        let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let listing = command::output_of(&mut command::program_in(root, "git", &listing))?;
        let mut files = BTreeMap::new();
        for path in listing.split('\0').filter(|path| !path.is_empty()) {
            let absolute = root.join(path);
            // Deleted but still in the index, or a link to a folder.
            if !absolute.is_file() {
                continue;
            }
            let bytes = std::fs::read(&absolute).with_context(|| path.to_owned())?;
            files.insert(path.to_owned(), String::from_utf8(bytes).unwrap_or_default());
        }
        Ok(Self::new(files))
    }

    fn new(files: BTreeMap<String, String>) -> Self {
        let rust = files
            .iter()
            .filter(|(path, _)| has_extension(path, "rs"))
            .map(|(path, text)| (path.clone(), RustFile::parse(text)))
            .collect();
        Self { files, rust }
    }

    /// A small tree for the test of a rule.
    #[cfg(test)]
    pub(crate) fn planted(files: &[(&str, &str)]) -> Self {
        let owned = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Self::new(owned.collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The text of the file at `path`, if there is one.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Is there a file at `path`, or a folder that holds one?
    pub(crate) fn holds(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.files.contains_key(path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&folder))
    }

    /// Every file, in order of path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Every Rust file, or why it could not be read as tokens.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &Result<RustFile, String>)> {
        self.rust.iter().map(|(path, parsed)| (path.as_str(), parsed))
    }

    /// Every Rust file that could be read.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = (&str, &RustFile)> {
        self.rust().filter_map(|(path, parsed)| Some((path, parsed.as_ref().ok()?)))
    }
}

/// Does the name of `path` end in `.extension`?
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// Is the file at `path` a test, or does it lie in a folder of tests?
pub(crate) fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "fuzz")
}
