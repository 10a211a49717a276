//! Running the tools of the system, one at a time.

use std::ffi::OsStr;
use std::process::Command;

/// Runs a program to its end; what it printed.
///
/// # Panics
/// If it cannot be started, or fails.
pub(super) fn run<T: AsRef<OsStr>>(program: &str, words: impl IntoIterator<Item = T>) -> String {
    attempt(program, words).unwrap_or_else(|trouble| panic!("{trouble}"))
}

/// Runs a program to its end; what it printed, or what is wrong.
pub(super) fn attempt<T: AsRef<OsStr>>(
    program: &str,
    words: impl IntoIterator<Item = T>,
) -> Result<String, String> {
    let mut command = Command::new(program);
    let output = command.args(words).output();
    let output = output.map_err(|trouble| format!("{command:?}: {trouble}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{command:?}: {}: {}", output.status, text(&output.stderr)))
    }
}
