//! What one life of the daemon leaves to the next.
//!
//! The service manager keeps two descriptors for us while no daemon lives: the arena, and the ledger that says what of it
//! can be trusted. [`notify`] speaks with it, [`heritage`] is what it hands over at a start, [`estate`] is what
//! a life begins with: that, if it can be trusted, or a new arena; [`front`] is what the daemon notes beside the store's
//! ledger, [`holders`] looks after those who may still touch the arena. [`watchdog`] proves to the manager that the daemon
//! lives. [`handover`] is the planned way from one life to the next: it goes on with the connections, too.

pub mod estate;
pub mod front;
pub mod handover;
pub mod heritage;
pub mod holders;
pub mod notify;
pub mod watchdog;

use std::path::PathBuf;

use self::heritage::Heritage;
use self::notify::Manager;

/// Where this life comes from, and who looks after it.
#[derive(Debug, Default)]
pub struct Succession {
    /// The service manager.
    pub manager: Manager,
    /// What the life before left.
    pub heritage: Heritage,
    /// Where this program is installed: a newer one may take its place.
    pub program: Option<PathBuf>,
}

impl Succession {
    /// Reads what the service manager passed to this process. Call it first of all in `main`: see
    /// [`kvd_shm::inherited::descriptors`].
    #[must_use]
    pub fn of_process() -> Self {
        Self {
            manager: Manager::of_process(),
            heritage: Heritage::of_process(),
            program: std::env::current_exe().ok(),
        }
    }
}
