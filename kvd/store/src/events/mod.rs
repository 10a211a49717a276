//! What is held where, as it changes: for the routers that choose a host by it.
//!
//! Each decision by which a block can be read in a tier, or no longer, is told in [`TierChanges`] in the order in
//! which it is made ([`tell`]). Whoever folds them over a look at everything ([`look`]) has what the store has.
//! Whether that is so is found by sums that are kept where rows and entries enter and leave the index ([`count`]),
//! apart from what is told: a change that somebody forgot to tell is found.
//!
//! Nothing of it happens unless [`crate::StoreConfig::events`] asks for it.

mod changes;
mod count;
mod look;
mod tell;

pub use changes::{TierBlock, TierChange, TierChanges};
pub use look::{TierCursor, TierDigest};
