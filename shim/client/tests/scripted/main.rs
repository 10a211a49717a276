//! The client against a daemon that follows a script, one test for each thing that a daemon may do
//! wrong, late or not at all.

#![expect(clippy::unwrap_used, reason = "what fails in a script or a helper fails the test")]

mod daemon;
mod features;

mod handshake;
mod late;
mod mutated;
mod reconnect;
mod resume;
mod rights;
mod trouble;
