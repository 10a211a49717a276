//! The operator's tool for infera-kvd.

fn main() {}
