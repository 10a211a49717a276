//! The router as a library, so that its tests can name its rooms. `main.rs` is the process.
//!
//! Read in this order: [`life`] (how it starts and ends, by [`phase`]), [`front`] (what is served where), [`relay`] (the
//! way of a request to a worker and back; [`readers`] read its body), [`picker`] and [`policy`] (which worker), [`feed`] and [`hosts`] (what is cached where), [`polls`], [`parity`] and [`hints`] (what workers and daemons are asked and told), [`fleet`] (who is there) and [`discovery`] (how
//! that is known); then what decides without I/O: [`breaker`], [`retention`], [`request`], `router-core`'s records; and what people see:
//! [`flags`], [`refusal`], [`meters`] and [`metrics`], [`log`], [`descriptors`].

#![forbid(unsafe_code)]

pub mod breaker;
pub mod descriptors;
pub mod discovery;
pub mod feed;
pub mod flags;
pub mod fleet;
pub mod front;
pub mod hints;
pub mod hosts;
pub mod life;
pub mod log;
pub mod meters;
pub mod metrics;
pub mod parity;
pub mod phase;
pub mod picker;
pub mod policy;
pub mod polls;
pub mod readers;
pub mod refusal;
pub mod relay;
pub mod request;
pub mod retention;
