//! The rules of the tier below the arena, told as small stories.

mod hints;
mod loads;
mod platter;
mod promises;
mod rig;
mod spills;
