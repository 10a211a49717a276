//! The client that every engine ends up in: leases, zero-copy views, reconnects.
