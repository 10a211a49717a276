//! The floors: the least that the same machine can do, without a cache. What they measure is what a figure of the
//! daemon is divided by.

pub mod copy;
pub mod fio;
pub mod huge_pages;
pub mod ping_pong;
pub mod transfer;
