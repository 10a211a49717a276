//! Every decision of the router. No clock, file, thread, socket or randomness: time and bytes come in, decisions go out.
//!
//! Read in this order:
//! 1. [`record`] – what a worker says of itself in etcd;
//! 2. [`hash`] – the names of blocks: the router's own, and those of engines;
//! 3. [`index`] – who holds which block, and where; one question names all who do;
//! 4. [`fold`] – from events to the index: chains, restarts, gaps, doubts;
//! 5. [`score`] – what a request costs on a target;
//! 6. [`account`] – what is in flight;
//! 7. [`policy`] – which target it goes to, and why.
//!
//! **Invariant:** doubtful information lowers credit. It never makes a hit, an error or a stall.
//! **Invariant:** whoever asks the index never waits for whoever changes it.

#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::wildcard_enum_match_arm)]

pub mod account;
pub mod fold;
pub mod hash;
pub mod index;
pub mod policy;
pub mod record;
pub mod score;
