//! `cargo xtask py`: pytest in a virtual environment of the target folder: first the decisions of the connectors,
//! which need nothing built, then `tests/python` against the real daemon. Extra words go to the second.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::{Context, command, e2e};

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let python = environment(&context.root, "target/python", "tests/python/requirements.txt")?;
    for decisions in ["shim/python/tests_connector", "shim/python/tests_sglang"] {
        let pytest = ["-m", "pytest", decisions];
        command::run(&mut command::program_in(&context.root, &python, &pytest))?;
    }
    e2e::build(context)?;
    let mut pytest = command::program_in(&context.root, python, &["-m", "pytest", "tests/python"]);
    command::run(pytest.args(&context.extra))
}

/// Makes the virtual environment at `folder` if it is missing or was made from other requirements, and names its
/// interpreter. All three paths start at the root.
pub(crate) fn environment(
    root: &Path,
    folder: &str,
    requirements: &str,
) -> anyhow::Result<PathBuf> {
    let python = root.join(folder).join("bin/python3");
    let made_from = root.join(folder).join("made-from.txt");
    let wanted = std::fs::read_to_string(root.join(requirements))
        .with_context(|| requirements.to_owned())?;
    if std::fs::read_to_string(&made_from).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    let create = ["-m", "venv", "--clear", folder];
    command::run(&mut command::program_in(root, "python3", &create))?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    command::run(command::program_in(root, &python, &install).arg(requirements))?;
    std::fs::write(&made_from, wanted).with_context(|| made_from.display().to_string())?;
    Ok(python)
}
