//! Replays a request trace through a running daemon, with engines that are processes of their own.
//!
//! The parent ([`dispatch`]) hands out requests in the order of the trace, each to the engine that is free, as a load
//! balancer would, and adds up what comes back ([`summary`]). An engine ([`engine`]) does with a prompt what a
//! connector does: look up the prefix, read what is there, store what is missing. Arrival times are not kept: the
//! replay goes as fast as the machine does.
//!
//! After a restart, [`recall`] asks for every block of the trace: what the disk brought back.
//!
//! Every block's bytes are a function of its key, so every byte that comes back is checked.

pub mod dispatch;
pub mod engine;
pub mod outcome;
pub mod recall;
pub mod summary;
pub mod trace;
