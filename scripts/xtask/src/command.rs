//! Child processes of the tasks: run in the checkout, output passed through, failure named with its command line.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

/// `cargo`, the same one that started this task.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    program_in(root, &program, arguments)
}

/// Any other program, with the checkout as its working directory.
pub(crate) fn program_in(root: &Path, program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root).args(arguments);
    command
}

/// Runs `command` to its end.
///
/// # Errors
/// The program cannot be started, or does not exit with 0.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let line = format!("{command:?}");
    let status = command.status().with_context(|| format!("starting {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Runs `command` and gives back what it printed.
///
/// # Errors
/// As [`run`], or its output is not UTF-8.
pub(crate) fn output_of(command: &mut Command) -> anyhow::Result<String> {
    let line = format!("{command:?}");
    let output = command.output().with_context(|| format!("starting {line}"))?;
    if !output.status.success() {
        bail!("{line}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("output of {line}"))
}
