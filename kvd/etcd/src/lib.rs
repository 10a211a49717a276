//! etcd as the daemon, the router and the sidecar see it: where it is and how one gets in (`access`, `endpoint`), a connection with
//! a deadline for each question (`connection`), and records that stay for as long as their process lives (`keeper`).
//! `endpoint`, `held` and `pause` decide without I/O.

#![forbid(unsafe_code)]

mod access;
mod connection;
mod endpoint;
mod held;
mod keeper;
mod lost;
mod pause;

pub use self::access::{Access, Password, Said, Wrong};
pub use self::connection::{Connection, Etcd, MESSAGE_BYTES_MAX, in_time};
pub use self::endpoint::Endpoint;
pub use self::held::Entry;
pub use self::keeper::{BEAT, Keeper, LEASE, News, Owner};
pub use self::lost::Lost;
pub use self::pause::Pause;
