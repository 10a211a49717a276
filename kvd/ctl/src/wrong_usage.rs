//! The one error that ends with the exit code of wrong usage.

use std::fmt;

/// What can only be found wrong after the command line has been parsed.
#[derive(Debug)]
pub(crate) struct WrongUsage(pub(crate) String);

impl fmt::Display for WrongUsage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}
