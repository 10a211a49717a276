//! The one task runner.

fn main() {}
