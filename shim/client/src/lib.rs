//! The client that every engine ends up in: leases, zero-copy views, reconnects.
//!
//! Three things hold whatever the daemon does, dead, slow, restarted or broken: a call ends with its
//! deadline; a look-up that cannot be answered is a miss; and bytes are read only from the arena
//! that the daemon meant when it named them.
//!
//! Reading order: [`Client`] in `client.rs`, what it can be asked in `ops/`, the two rights it hands
//! out in `view.rs` and `ticket.rs` (`copied.rs`: what goes into a ticket is summed on the way). Below that, from the outside in: `turnstile.rs` (threads take
//! turns), `line.rs` (absent, greeting, live), `greeting.rs`, `live.rs` (numbered requests and late
//! answers), `wire.rs` (frames and deadlines). `attachment.rs` is what one connection stands for,
//! `tenure.rs` what outlives it, `returns.rs` what is held and its way back.
//!
//! **Invariant:** nothing here sleeps while it holds the connection, and no thread is started.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod attachment;
mod client;
mod copied;
mod deadline;
mod error;
mod greeting;
mod line;
mod live;
mod ops;
mod options;
mod returns;
mod tenure;
mod ticket;
mod turnstile;
mod view;
mod wire;

pub use attachment::Attached;
pub use client::Client;
pub use error::{Breach, ClientError};
pub use kvd_proto::block_key::{KEY_BYTES_MAX, NAMESPACE_PART_BYTES_MAX, Namespace};
pub use kvd_proto::lineage::{LINEAGE_BYTES_MAX, Lineage};
pub use kvd_proto::miss::MissReason;
pub use kvd_proto::refusal::Refusal;
pub use kvd_proto::retention::Retention;
pub use kvd_proto::tier::Tier;
pub use kvd_proto::v2::clear::ClearScope;
pub use kvd_shm::mapping::{Foreign, ForeignMut};
pub use ops::{Answer, Commit, Present};
pub use options::{DEFAULT_SOCKET, Options};
pub use ticket::Ticket;
pub use view::View;
