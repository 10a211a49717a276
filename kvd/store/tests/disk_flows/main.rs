//! The rules of the tier below the arena, told as small stories.

mod adopted;
mod devices;
mod durability;
mod events;
#[path = "../fold/mod.rs"]
mod fold;
mod hints;
mod late;
mod loads;
mod model;
mod platter;
mod promises;
mod rig;
mod spills;
mod twins;
