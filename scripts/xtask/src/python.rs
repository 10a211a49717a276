//! `cargo xtask py`: pytest over `tests/python`, in a virtual environment of the target folder. Extra words go to pytest.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::{Context, command, e2e};

const REQUIREMENTS: &str = "tests/python/requirements.txt";

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let python = environment(&context.root)?;
    e2e::build(context)?;
    let mut pytest = command::program_in(&context.root, python, &["-m", "pytest", "tests/python"]);
    command::run(pytest.args(&context.extra))
}

/// Makes the virtual environment if it is missing or was made from other requirements, and names its interpreter.
fn environment(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = root.join("target/python");
    let python = folder.join("bin/python3");
    let made_from = folder.join("made-from.txt");
    let wanted = std::fs::read_to_string(root.join(REQUIREMENTS)).context(REQUIREMENTS)?;
    if std::fs::read_to_string(&made_from).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    let create = ["-m", "venv", "--clear", "target/python"];
    command::run(&mut command::program_in(root, "python3", &create))?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    command::run(command::program_in(root, &python, &install).arg(REQUIREMENTS))?;
    std::fs::write(&made_from, wanted).with_context(|| made_from.display().to_string())?;
    Ok(python)
}
