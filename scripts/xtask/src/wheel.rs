//! `cargo xtask wheel`: builds the Python package as users get it, installs it into a virtual environment of the target
//! folder, compares its types with what is in it, and runs its tests against the real daemon. Extra words go to pytest.
//!
//! The development profile: overflow and debug checks are part of the test.

use anyhow::Context as _;

use crate::{Context, command, e2e, python};

const REQUIREMENTS: &str = "shim/python/requirements.txt";
const ENVIRONMENT: &str = "target/python-wheel";
const WHEELS: &str = "target/python-wheel/built";

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let root = &context.root;
    let python = python::environment(root, ENVIRONMENT, REQUIREMENTS)?;
    let call = |words: &[&str]| command::program_in(root, &python, words);

    // Only what is built now may be installed.
    match std::fs::remove_dir_all(root.join(WHEELS)) {
        Err(trouble) if trouble.kind() != std::io::ErrorKind::NotFound => {
            return Err(trouble).context(WHEELS);
        }
        Ok(()) | Err(_) => {}
    }
    let build = ["-m", "maturin", "build", "--quiet", "--locked", "--profile", "dev"];
    let place = ["--manifest-path", "shim/python/Cargo.toml", "--out", WHEELS];
    command::run(call(&build).args(place))?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"];
    let offline = ["--force-reinstall", "--no-index", "--find-links", WHEELS, "infera-kvd"];
    command::run(call(&install).args(offline))?;

    let stubtest = ["-m", "mypy.stubtest", "infera_kvd._native", "--concise", "--allowlist"];
    command::run(call(&stubtest).arg("shim/python/tests/stubtest.txt"))?;
    e2e::build(context)?;
    command::run(call(&["-m", "pytest", "shim/python/tests"]).args(&context.extra))
}
