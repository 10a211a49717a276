//! KV-cache daemon: one pinned arena per host, shared by all inference engines.

fn main() {}
