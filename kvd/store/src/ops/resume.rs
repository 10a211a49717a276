//! A process whose connection was lost has another one: what of its rights goes on there, and what ends.

use kvd_proto::ids::SessionId;

use crate::effects::Outcome;
use crate::input::Ids;
use crate::store::Store;

impl Store {
    /// See [`crate::Input::TakeUp`].
    pub(crate) fn take_up(&mut self, session: SessionId, rights: Ids<'_>) -> Outcome {
        let heir = self.sessions.open_index(session);
        let (mut taken, mut unknown) = (0, 0);
        for name in rights.iter() {
            let found = self.rights.by_name(name.0).filter(|&right| self.may_pass(right, heir));
            match found {
                Some(right) => {
                    self.pass(right, heir);
                    taken += 1;
                }
                None => unknown += 1,
            }
        }
        Outcome::TakenUp { taken, unknown }
    }

    /// Whether a right that the client holds is, or may become, this session's.
    fn may_pass(&self, right: u32, heir: u32) -> bool {
        let held = self.rights.at(right);
        held.kind.outlives_socket()
            && (held.session == heir || self.is_same_process(held.session, heir))
            && self.ledger.takes_right(right, heir)
    }

    /// See [`crate::Input::Renounce`].
    pub(crate) fn renounce(&mut self, session: SessionId, earlier: SessionId) -> Outcome {
        let heir = self.sessions.open_index(session);
        let found = self.sessions.find(earlier).filter(|&found| found != heir);
        let is_own = found.is_some_and(|found| self.is_same_process(found, heir));
        if is_own {
            // As if the process were gone: if the end of file has not come yet, all ends with it.
            self.peer_gone(earlier);
        }
        Outcome::Renounced(is_own)
    }

    /// See [`crate::Input::ForgetProcess`].
    pub(crate) fn forget_process(&mut self, session: SessionId) {
        if let Some(found) = self.sessions.find(session) {
            self.sessions.at_mut(found).process = None;
        }
    }

    /// Whether one process has both sessions, for certain.
    fn is_same_process(&self, one: u32, other: u32) -> bool {
        let process = self.sessions.at(one).process;
        process.is_some() && process == self.sessions.at(other).process
    }
}
