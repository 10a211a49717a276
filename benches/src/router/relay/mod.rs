//! What the router costs on the way: beside nginx as a plain proxy, and beside no proxy at all.
//!
//! | file | bar |
//! |---|---|
//! | [`first_token`] | time to the first token, through the router over direct |
//! | [`streams`] | many streams of events at once, as fast as they go and at a pace |
//!
//! [`worker`] is an engine that has nothing to compute, [`load`] the clients, each in a process of its own; [`door`] is
//! where they knock. [`answer`] reads answers and finds what was altered on the way, [`event`] is what they are made of.
//!
//! The proxy has a core for itself, so that it is the proxy that is measured: how busy each process was is told beside.

pub mod answer;
pub mod door;
pub mod event;
pub mod first_token;
pub mod load;
pub mod streams;
pub mod worker;
