//! The daemon as a library, so that its tests and benches can name its rooms. `main.rs` is the process.

#![forbid(unsafe_code)]

pub mod config;
pub mod fatal;
pub mod log;
pub mod meters;
pub mod status;
