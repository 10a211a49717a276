//! Hints: keys that somebody may ask for soon. They hold no room before their read begins, and
//! they give way to everything that somebody waits for.

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::SessionId;

use super::device::{Below, Hint, bit};
use super::loading::{Cause, NotNow};
use super::work::LoadId;
use crate::keys::Keys;
use crate::store::Store;
use crate::time::Timestamp;

impl Store {
    /// See [`crate::Input::Prefetch`].
    pub(crate) fn prefetch(
        &mut self,
        session: Option<SessionId>,
        namespace: Namespace<'_>,
        keys: Keys<'_>,
        deadline_ms: u64,
        now: Timestamp,
    ) {
        if let Some(session) = session {
            self.sessions.open_index(session);
        }
        let until = now.after(deadline_ms.max(1));
        keys.each(|key| {
            self.hint(namespace, key, until, now);
            true
        });
    }

    fn hint(&mut self, namespace: Namespace<'_>, key: &[u8], until: Timestamp, now: Timestamp) {
        self.disk.totals.hints_total += 1;
        let named = self.named(namespace);
        let row = named.id.and_then(|id| self.find(id, self.hash(named.hash, key), key));
        if row.is_some_and(|row| !self.rows[row].is_expired(now)) {
            return;
        }
        let Some(Below { device, entry }) = self.find_below(namespace, key, now) else {
            return;
        };
        if self.disk.hints >= self.config.disk.hints_max as usize {
            self.disk.totals.hints_dropped_total += 1;
            return;
        }
        let at = &mut self.disk.devices[usize::from(device)];
        let Some(tablespace) = at.tablespace() else {
            return;
        };
        let generation = tablespace.entry(entry).generation();
        at.hints.push_back(Hint { entry, generation, until });
        self.disk.hints += 1;
        self.disk.out.devices_to_wake |= bit(device);
    }

    /// Begins the load of the next hint that is still of use, unless there is no room for it.
    pub(crate) fn next_hint(&mut self, device: u8, now: Timestamp) -> Option<LoadId> {
        loop {
            let at = &mut self.disk.devices[usize::from(device)];
            let hint = *at.hints.front()?;
            if hint.until <= now {
                self.drop_hint(device);
                self.disk.totals.hints_stale_total += 1;
                continue;
            }
            let below = Below { device, entry: hint.entry };
            let is_joined = self.disk.loads.of(below).is_some();
            if is_joined || !self.is_still_below(below, hint.generation) {
                self.drop_hint(device);
                continue;
            }
            match self.load(below, Cause::Hint(hint.until), now) {
                Ok(load) => {
                    self.drop_hint(device);
                    return Some(load);
                }
                Err(NotNow::Busy) => return None,
                Err(NotNow::NoRoom) => {
                    self.drop_hint(device);
                    self.disk.totals.hints_dropped_total += 1;
                }
            }
        }
    }

    /// Whether a device still holds just this block, and the arena does not.
    fn is_still_below(&self, below: Below, generation: u64) -> bool {
        let tablespace = self.disk.devices[usize::from(below.device)].tablespace();
        let entry = tablespace.and_then(|tablespace| tablespace.get(below.entry));
        entry.is_some_and(|entry| {
            entry.generation() == generation && entry.host() == crate::rows::RowId::NONE
        })
    }

    fn drop_hint(&mut self, device: u8) {
        self.disk.devices[usize::from(device)].hints.pop_front();
        self.disk.hints -= 1;
    }
}
