//! Promises for blocks that only a device holds: they stay there for the window, and their way
//! into the arena begins at once.

use kvd_proto::block_key::Namespace;
use kvd_proto::miss::MissReason;
use kvd_proto::tier::Tier;

use super::device::Below;
use super::loading::{Cause, NotNow};
use crate::effects::Located;
use crate::rows::RowId;
use crate::space::ExtentId;
use crate::store::Store;
use crate::time::Timestamp;

/// Other namespaces of the model in which a family is promised, per device.
const KIN_MAX: usize = 16;
/// Namespaces that are looked at to find them.
const KIN_VISITS: usize = 1024;

impl Store {
    /// What a locate learns of a key that has no row; nothing if no device holds it.
    ///
    /// `unloaded_bytes`: of the keys before, what no load could be begun for.
    pub(crate) fn locate_below(
        &mut self,
        namespace: Namespace<'_>,
        key: &[u8],
        family: bool,
        now: Timestamp,
        unloaded_bytes: &mut u64,
    ) -> Option<Located> {
        let below = self.find_below(namespace, key, now)?;
        if self.disk.rests.rests(below, now) {
            return Some(Located::Miss(MissReason::Deadline));
        }
        if !self.promise_below(below, now) {
            self.disk.totals.promises_refused_total += 1;
            return Some(Located::Miss(MissReason::Shed));
        }
        if family {
            self.promise_kin_below(namespace, key, now);
        }
        let device = &self.disk.devices[usize::from(below.device)];
        let entry = device.tablespace()?.entry(below.entry);
        let mut bytes = device.load_bytes;
        if self.disk.loads.of(below).is_none() {
            let len_bytes = u64::from(entry.len_bytes());
            *unloaded_bytes += len_bytes;
            // Each of the devices has its part of what comes before.
            bytes += (*unloaded_bytes / u64::from(self.disk.count())).max(len_bytes);
        }
        Some(Located::Present {
            tier: Tier::Disk,
            len_bytes: entry.len_bytes(),
            load_us: device.reads.estimate_us(bytes).max(1),
            retention: entry.class(),
        })
    }

    /// Promises the same key in other namespaces of the model.
    pub(crate) fn promise_kin_below(
        &mut self,
        namespace: Namespace<'_>,
        key: &[u8],
        now: Timestamp,
    ) {
        let wall = self.config.disk.wall(now);
        for device in 0..self.disk.count() {
            let Some(tablespace) = self.disk.devices[usize::from(device)].tablespace() else {
                continue;
            };
            let others = tablespace.namespaces().take(KIN_VISITS);
            let others = others.filter(|other| other.model == namespace.model);
            let others = others.filter(|other| other.compat_key != namespace.compat_key);
            let kin = others.filter_map(|other| tablespace.find(other, key, wall));
            let kin = kin.filter(|&entry| tablespace.entry(entry).host() == RowId::NONE);
            let kin: Vec<_> = kin.take(KIN_MAX).map(|entry| Below { device, entry }).collect();
            for below in kin {
                self.promise_below(below, now);
            }
        }
    }

    /// Promises a block and begins to load it, if there is room for either.
    fn promise_below(&mut self, below: Below, now: Timestamp) -> bool {
        let window = self.config.promise_window_ms;
        if window == 0 {
            return true;
        }
        // A little longer, like a row's: asked for again and again, it is renewed now and then.
        let until = now.after(window + window / 8);
        match self.load(below, Cause::Promise(until), now) {
            // There will be room: the promise is kept without the load, which only makes it cheap.
            Ok(_) | Err(NotNow::Busy) => {}
            // Nothing that may leave the arena makes room, so whoever asks for it would miss.
            Err(NotNow::NoRoom) => return false,
        }
        let wall = self.config.disk.wall(until);
        let device = &mut self.disk.devices[usize::from(below.device)];
        device.tablespace_mut().is_some_and(|tablespace| tablespace.promise(below.entry, wall))
    }

    /// Whether a row with this extent can be promised, too.
    pub(crate) fn may_promise(&self, extent: ExtentId) -> bool {
        let bytes = self.space[extent].bytes();
        self.config.promise_window_ms > 0
            && self.promises.bytes + bytes <= self.config.promised_bytes_max()
    }

    /// A copy that a hint made is reported present: it lives as long as its block.
    pub(crate) fn unhint(&mut self, id: RowId) {
        let Some(below) = self.below(id) else {
            return;
        };
        let Some(tablespace) = self.disk.devices[usize::from(below.device)].tablespace() else {
            return;
        };
        let entry = tablespace.entry(below.entry);
        let checksum = entry.checksum();
        let expires_at = self.config.disk.monotonic(entry.expires_at());
        let row = &mut self.rows[id];
        row.marks.set_hinted(false);
        self.expiries.remove(&(row.expires_at, id));
        row.expires_at = expires_at;
        if expires_at != Timestamp::NEVER {
            self.expiries.insert((expires_at, id));
        }
        self.record_row(id, Some(checksum));
    }
}
