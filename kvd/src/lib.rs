//! The daemon as a library, so that its tests and benches can name its rooms. `main.rs` is the process.
//!
//! Read in this order: [`life`] (how it starts and ends), [`daemon`] (what the threads share), [`accept`]
//! and [`session`] (the way of a request), [`brain`] (where it meets the store), [`parkers`] (where it waits for storage), then what helps them:
//! [`devices`] (the disk tier) and [`drain`], [`warm_up`] and [`touch`], [`clock`], [`reaper`], [`registry`], [`lost`], [`succession`] (what one life leaves to the next), [`events`] (what others are told), [`hints`], [`staging`], [`sparing`], and what people see:
//! [`config`], [`admin`], [`log`], [`doctor`].

#![forbid(unsafe_code)]

pub mod accept;
pub mod admin;
pub mod brain;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod descriptors;
pub mod devices;
pub mod disk_figures;
pub mod doctor;
pub mod drain;
pub mod events;
pub mod fatal;
pub mod figures;
pub mod hints;
pub mod life;
pub mod listen;
pub mod log;
pub mod lost;
pub mod meters;
pub mod parkers;
pub mod reaper;
pub mod registry;
pub mod session;
pub mod signals;
pub mod sparing;
pub mod staging;
pub mod status;
pub mod stop;
pub mod succession;
pub mod touch;
pub mod warm_up;
