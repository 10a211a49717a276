//! Exit codes, and how the help tells them.

use std::io;
use std::process::ExitCode;

use kvd_client::ClientError;

use crate::permission::Forbidden;
use crate::wrong_usage::WrongUsage;

/// Wrong usage, as shells and clap have it.
pub(crate) const USAGE: u8 = 2;
/// The system forbids it to this user.
pub(crate) const PERMISSION: u8 = 3;

/// The paragraph of a command's help that tells what its codes 0 and 1 stand for; the others are the same everywhere.
macro_rules! codes {
    ($zero_and_one:literal) => {
        concat!("Exit codes: ", $zero_and_one, ", 2 wrong usage, 3 permission denied.")
    };
}
pub(crate) use codes;

/// The code that a failure ends with.
pub(crate) fn of(error: &anyhow::Error) -> ExitCode {
    if error.is::<WrongUsage>() {
        ExitCode::from(USAGE)
    } else if error.is::<Forbidden>() || is_forbidden(error) {
        ExitCode::from(PERMISSION)
    } else {
        ExitCode::FAILURE
    }
}

/// Whether the system's word for what went wrong is that this user may not.
fn is_forbidden(error: &anyhow::Error) -> bool {
    let forbids = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::NotConnected { source, .. }) => forbids(source),
        Some(_) => false,
        None => error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(forbids)),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn every_command_tells_its_codes() {
        let mut all = Arguments::command();
        let help = all.render_long_help().to_string();
        for code in ["0  done", "1  failed", "2  wrong usage", "3  permission denied"] {
            assert!(help.contains(code), "{code} in {help}");
        }
        // `help` is clap's own.
        for command in all.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            for help in [command.render_help(), command.render_long_help()] {
                // Where lines end is the width of a terminal's business.
                let help = help.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(help.contains("Exit codes: 0 "), "{}: {help}", command.get_name());
                assert!(help.contains("3 permission denied"), "{}: {help}", command.get_name());
            }
        }
    }

    #[test]
    fn what_is_forbidden_is_told_from_what_failed() {
        let io = |kind: io::ErrorKind| io::Error::from(kind);
        let code = |error: &anyhow::Error| format!("{:?}", of(error));
        let socket = "/kvd.sock".into();
        let source = io(io::ErrorKind::PermissionDenied);
        let engines = ClientError::NotConnected { socket, source }.into();
        let file =
            Err::<(), _>(io(io::ErrorKind::PermissionDenied)).context("reading").unwrap_err();
        for forbidden in [engines, file] {
            assert_eq!(code(&forbidden), format!("{:?}", ExitCode::from(3)));
        }
        let missing = Err::<(), _>(io(io::ErrorKind::NotFound)).context("reading").unwrap_err();
        assert_eq!(code(&missing), format!("{:?}", ExitCode::FAILURE));
        let usage = WrongUsage("no".to_owned()).into();
        assert_eq!(code(&usage), format!("{:?}", ExitCode::from(2)));
    }
}
