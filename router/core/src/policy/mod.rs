//! Which target a request goes to, and why.
//!
//! 1. [`kv_aware`] – the least score, or the least cost in blocks;
//! 2. [`ties`] – among targets that are as good as the best.

pub mod kv_aware;
pub mod ties;

pub use kv_aware::{KvAware, Pick};
