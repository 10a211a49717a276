//! What one life of the daemon leaves to the next.
//!
//! The service manager keeps two descriptors for us while no daemon lives: the arena, and the ledger that says what of it
//! can be trusted. [`manager`] speaks with it, [`heritage`] is what it hands over at a start, [`watchdog`] proves to it
//! that the daemon lives. Without a service manager nothing of this happens.

pub mod heritage;
pub mod manager;
pub mod watchdog;

use self::heritage::Heritage;
use self::manager::Manager;

/// Where this life comes from, and who looks after it.
#[derive(Debug, Default)]
pub struct Succession {
    /// The service manager.
    pub manager: Manager,
    /// What the life before left.
    pub heritage: Heritage,
}

impl Succession {
    /// Reads what the service manager passed to this process. Call it first of all in `main`: see
    /// [`kvd_shm::inherited::descriptors`].
    #[must_use]
    pub fn of_process() -> Self {
        Self { manager: Manager::of_process(), heritage: Heritage::of_process() }
    }
}
