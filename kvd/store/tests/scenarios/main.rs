//! Rules that need a story: the reserve, promises, hand-outs, the end of sessions, caps.

mod bounds;
mod desk;
mod hand_outs;
mod misses;
mod promises;
mod reserve;
mod resume;
mod sessions;
