//! The router under test, and everything around it: workers that answer as they are told, a client that sees each byte,
//! a real etcd, a line to it that can go dead. And engines with caches under steady load, for what only shows then.

pub mod client;
pub mod engine;
pub mod etcd;
pub mod line;
pub mod load;
pub mod lossy;
mod process;
pub mod publisher;
pub mod register;
mod request;
pub mod site;
pub mod worker;

pub use self::client::{Reply, ask, post};
pub use self::engine::Engine;
pub use self::etcd::Etcd;
pub use self::line::Line;
pub use self::load::Load;
pub use self::lossy::Lossy;
pub use self::process::{Router, run};
pub use self::publisher::Publisher;
pub use self::request::Seen;
pub use self::site::Site;
pub use self::worker::{Step, Worker};
