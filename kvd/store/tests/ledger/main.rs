//! Daemons that die at any moment, and what their successors make of the ledger: seeded workloads,
//! judged by a naive picture of the arena, its rows and everybody who may still write to it.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "what cannot be is the end of a test"
)]

mod cuts;
mod damage;
mod image;
mod life;
mod order;
mod random;
