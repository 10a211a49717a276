//! Whole systems under load: real daemons, real client processes, and what they reach.
//!
//! * [`replay`]: the demo. A public request trace, two engines, every byte checked.
//! * [`l2`] and [`l3`]: the suites of bars for the arena and for the disk tier. Figures are ratios to a [`floor`], or to
//!   a [`peer`], that is measured in the same run, interleaved, on the same cores and pages.
//! * [`fleet`]: a simulated fleet behind the real router's decisions.
//! * [`router`]: the suite of bars for the router's decisions, without a network.
//!
//! Shared by all: [`suite`] (one part after the other), [`daemon`] (the binary under test), [`figures`] (its counters),
//! [`mod@reference`] (a protocol-1 client), [`role`] (processes that help), [`content`] (bytes that only their key can
//! explain), [`in_place`] (checking them where they lie), [`keys`], [`affinity`], [`machine`], [`percentile`],
//! [`patience`], [`bar`] and [`report`].

#![deny(missing_docs)]

pub mod affinity;
pub mod bar;
pub mod content;
pub mod daemon;
pub mod figures;
pub mod fleet;
pub mod floor;
pub mod in_place;
pub mod keys;
pub mod l2;
pub mod l3;
pub mod machine;
pub mod patience;
pub mod peer;
pub mod percentile;
pub mod reference;
pub mod replay;
pub mod report;
pub mod role;
pub mod router;
pub mod suite;
