//! How targets are put in order, as plain functions of what is known about them.

mod least_load;
mod round_robin;

pub use self::least_load::least_load;
pub use self::round_robin::round_robin;
