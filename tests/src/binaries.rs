//! Where the binaries under test are: beside the test's own, in the target folder of the same profile.

use std::path::PathBuf;

/// The path of a built binary of this workspace.
///
/// # Panics
/// If it has not been built.
#[must_use]
pub fn path_of(name: &str) -> PathBuf {
    // target/<profile>/deps/<test>-<hash>
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.ancestors().nth(2).expect("a test lies in target/<profile>/deps");
    let path = profile.join(name);
    assert!(path.is_file(), "{} is not built: run `cargo xtask e2e`", path.display());
    path
}
