//! What is asked of the fleet.

pub mod agentic;
pub mod conversation;

use super::request::Request;

/// Where requests come from.
pub trait Workload {
    /// Those that come whatever becomes of others, by their arrival.
    fn first(&mut self) -> Vec<Request>;

    /// From when to when requests count: caches are warm, and others still come.
    fn counted(&self) -> [f64; 2];

    /// What follows when a request was answered at that time.
    fn after(&mut self, answered: &Request, now: f64) -> Option<Request>;
}
