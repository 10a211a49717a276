//! Whole systems under load: real daemons, real client processes, and what they reach.
//!
//! * [`replay`]: the demo. A public request trace, two engines, every byte checked.
//!
//! Shared by all: [`content`] (bytes that only their key can explain), [`in_place`] (checking them where they lie),
//! [`percentile`].

#![deny(missing_docs)]

pub mod content;
pub mod in_place;
pub mod percentile;
pub mod replay;
