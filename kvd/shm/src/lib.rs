//! The shared arena: memfd, mapping, copies, descriptor passing, peers.
