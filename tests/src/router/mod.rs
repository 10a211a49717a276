//! The router under test, and everything around it: workers that answer as they are told, a client that sees each byte,
//! a real etcd, a line to it that can go dead.

pub mod client;
pub mod etcd;
pub mod line;
mod process;
pub mod publisher;
pub mod register;
mod request;
pub mod worker;

pub use self::client::{Reply, ask, post};
pub use self::etcd::Etcd;
pub use self::line::Line;
pub use self::process::{Router, run};
pub use self::publisher::Publisher;
pub use self::request::Seen;
pub use self::worker::{Step, Worker};
