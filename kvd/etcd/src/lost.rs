//! Why a connection is given up.

use std::error::Error;
use std::fmt;

/// Why a connection is given up, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost(String);

impl Lost {
    /// A reason of the caller's own.
    #[must_use]
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// The innermost causes say what is to be done: which certificate, which address.
    pub(crate) fn chain(error: &(dyn Error + 'static)) -> Self {
        let causes = std::iter::successors(Some(error), |error| (*error).source());
        let mut words: Vec<String> = causes.map(ToString::to_string).collect();
        // What wraps an error often repeats it.
        words.dedup();
        Self(words.join(": "))
    }

    pub(crate) fn at(&self, place: &impl fmt::Display) -> Self {
        Self(format!("{place}: {self}"))
    }

    /// Whether etcd does not know a lease any more.
    pub(crate) fn is_of_a_gone_lease(&self) -> bool {
        self.0.contains("lease not found")
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<etcd_client::Error> for Lost {
    fn from(error: etcd_client::Error) -> Self {
        match &error {
            etcd_client::Error::TransportError(error) => Self::chain(error),
            etcd_client::Error::GRpcStatus(status) => {
                let said = if status.message().is_empty() {
                    status.code().description()
                } else {
                    status.message()
                };
                match status.source() {
                    Some(cause) => Self(format!("{said}: {}", Self::chain(cause))),
                    None => Self(said.to_owned()),
                }
            }
            _ => Self(error.to_string()),
        }
    }
}
