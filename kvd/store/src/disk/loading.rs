//! From a block that only a device holds to a read that is lined up for it.

use kvd_proto::block_key::Namespace;
use kvd_proto::miss::MissReason;

use super::device::{Below, bit};
use super::loads::{Load, Step};
use super::work::{DiskWork, LoadId};
use crate::effects::{Found, HeaderWrite};
use crate::room::Amount;
use crate::slab::NOWHERE;
use crate::space::{ExtentId, Footprint};
use crate::store::Store;
use crate::tablespace::Tablespace;
use crate::time::Timestamp;

/// Why a block is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    /// Somebody waits for it.
    Demand,
    /// It was reported present, until then.
    Promise(Timestamp),
    /// Somebody may ask for it until then.
    Hint(Timestamp),
}

/// Why no load was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotNow {
    /// Too many are under way, or the arena is still being touched; there will be room.
    Busy,
    /// No row may go for it, or there is a newer one.
    NoRoom,
}

impl Store {
    /// What a fetch learns of a key that has no row; nothing if no device holds it.
    pub(crate) fn fetch_below(
        &mut self,
        session: u32,
        namespace: Namespace<'_>,
        key: &[u8],
        now: Timestamp,
    ) -> Option<Found> {
        let below = self.find_below(namespace, key, now)?;
        if self.disk.rests.rests(below, now) {
            return Some(Found::Miss(MissReason::Deadline));
        }
        self.disk.totals.loading_total += 1;
        match self.load(below, Cause::Demand, now) {
            Ok(load) => self.wait_for(load, session),
            Err(NotNow::Busy) => self.starve(session),
            Err(NotNow::NoRoom) => return Some(Found::Miss(MissReason::Shed)),
        }
        Some(Found::Loading)
    }

    /// Begins to load a block that has no row, or joins the load that is under way.
    pub(crate) fn load(
        &mut self,
        below: Below,
        cause: Cause,
        now: Timestamp,
    ) -> Result<LoadId, NotNow> {
        if let Some(load) = self.disk.loads.of(below) {
            self.disk.totals.loads_joined_total += u64::from(matches!(cause, Cause::Demand));
            self.join(load, cause);
            return Ok(load);
        }
        let Some(tablespace) = self.disk.devices[usize::from(below.device)].tablespace() else {
            return Err(NotNow::NoRoom);
        };
        if self.has_row(tablespace, below) {
            return Err(NotNow::NoRoom);
        }
        let entry = tablespace.entry(below.entry);
        let (len_bytes, class) = (entry.len_bytes(), entry.class());
        let need = self.space.layout().footprint(len_bytes.into());
        if !self.has_load_capacity(below.device, need, cause) {
            return Err(NotNow::Busy);
        }
        let extent = self.room_for_load(below, need, now)?;
        let bytes = self.space[extent].bytes();
        let version = self.space[extent].version();
        let payload_offset = self.space.payload_offset(extent);
        let header = HeaderWrite { payload_offset, version: version - 1, len_bytes: 0 };
        self.disk.out.headers.push(header);
        let device = &mut self.disk.devices[usize::from(below.device)];
        device.loads += 1;
        device.load_bytes += u64::from(len_bytes);
        let Some(tablespace) = device.tablespace_mut() else {
            panic!("a device went out of use between two lines");
        };
        let range = tablespace.pin(below.entry);
        tablespace.touch(below.entry);
        let load = Load {
            below,
            range,
            extent,
            len_bytes,
            class,
            step: Step::Waiting,
            read_slot: NOWHERE,
            waiters: Vec::new(),
            promised_until: None,
            hinted_until: None,
        };
        let id = self.disk.loads.insert(load, bytes);
        self.join(id, cause);
        Ok(id)
    }

    /// Whether the arena has a row under the name of a block, its time over or not. Stored while the
    /// device was still coming, it is the newer one, and takes the block along when it leaves.
    fn has_row(&self, tablespace: &Tablespace, below: Below) -> bool {
        let key = tablespace.entry(below.entry).key();
        let named = self.named(tablespace.namespace_of(below.entry));
        named.id.is_some_and(|id| self.find(id, self.hash(named.hash, key), key).is_some())
    }

    /// Notes why else a load is wanted, and moves it ahead if that is a better reason.
    fn join(&mut self, id: LoadId, cause: Cause) {
        let Some(load) = self.disk.loads.get_mut(id) else {
            return;
        };
        let device = &mut self.disk.devices[usize::from(load.below.device)];
        let is_waiting = load.step == Step::Waiting;
        match cause {
            Cause::Demand => {
                if load.waiters.is_empty() && is_waiting {
                    device.demanded.push_back(id);
                }
            }
            Cause::Promise(until) => {
                let is_new = load.promised_until.is_none();
                load.promised_until = load.promised_until.max(Some(until));
                if is_new && load.waiters.is_empty() && is_waiting {
                    device.promised.push_back(id);
                }
            }
            // Its turn has come: it is taken at once.
            Cause::Hint(until) => load.hinted_until = load.hinted_until.max(Some(until)),
        }
        self.disk.out.devices_to_wake |= bit(load.below.device);
    }

    /// Whether one more load is within the bounds; demand may use all of them. A device that has none
    /// may always begin one: reads that hang on another must not keep it.
    fn has_load_capacity(&self, device: u8, need: Footprint, cause: Cause) -> bool {
        let config = &self.config.disk;
        let share = match cause {
            Cause::Demand => 1,
            Cause::Promise(_) => 2,
            Cause::Hint(_) => 4,
        };
        let loads = self.disk.devices[usize::from(device)].loads;
        let landed = self.disk.landings.bytes;
        let bytes = landed + if loads == 0 { 0 } else { self.disk.loads.extent_bytes };
        loads < (config.loads_max / share).max(1)
            && (bytes == 0 || bytes + need.bytes <= config.load_bytes_max / u64::from(share))
    }

    /// Takes room in the arena, in the budget and in the number of rows for a row to be.
    fn room_for_load(
        &mut self,
        below: Below,
        need: Footprint,
        now: Timestamp,
    ) -> Result<ExtentId, NotNow> {
        let device = &self.disk.devices[usize::from(below.device)];
        let tablespace = device.tablespace().ok_or(NotNow::NoRoom)?;
        let (namespace, entry) =
            (tablespace.namespace_of(below.entry), tablespace.entry(below.entry));
        let (len_bytes, class) = (u64::from(entry.len_bytes()), entry.class());
        if self.named(namespace).id.is_none() && self.namespaces.is_full() {
            return Err(NotNow::NoRoom);
        }
        if len_bytes > self.config.budget_bytes {
            return Err(NotNow::NoRoom);
        }
        let no_room = if self.arena_grows { NotNow::Busy } else { NotNow::NoRoom };
        let extent = self.take_room(need, Some(class), now).or(Err(no_room))?;
        let payload = self.host_bytes + self.disk.loads.payload_bytes + len_bytes;
        let rows = u64::from(self.rows.len()) + self.disk.loads.len() as u64 + 1;
        let missing = Amount {
            payload: payload.saturating_sub(self.config.budget_bytes),
            rows: rows.saturating_sub(self.config.rows_max.into()),
            space: 0,
        };
        if !self.evictable.up_to(class).covers(missing) {
            self.space.let_go(extent);
            return Err(NotNow::NoRoom);
        }
        self.evict_coldest(class, missing);
        Ok(extent)
    }

    /// The next load of a device, as work for it: what somebody waits for, then what was
    /// promised, then what was hinted at.
    pub(crate) fn take_load(&mut self, device: u8, now: Timestamp) -> Option<DiskWork> {
        if !self.ledger.takes_read() {
            return None;
        }
        let id = self.next_load(device, now)?;
        let extent = self.disk.loads.get(id)?.extent;
        let read_slot = self.record_read(extent);
        let load = self.disk.loads.get_mut(id)?;
        load.step = Step::Taken;
        load.read_slot = read_slot;
        let (below, len_bytes) = (load.below, load.len_bytes);
        let device = &mut self.disk.devices[usize::from(device)];
        device.reads.begin(len_bytes.into(), now);
        let tablespace = device.tablespace()?;
        let entry = tablespace.entry(below.entry);
        Some(DiskWork::Load {
            load: id,
            offset: tablespace.range(below.entry).0,
            len_bytes,
            arena_offset: self.space.payload_offset(extent),
            checksum: entry.checksum(),
            key: entry.key().into(),
        })
    }

    fn next_load(&mut self, device: u8, now: Timestamp) -> Option<LoadId> {
        let at = usize::from(device);
        loop {
            let waiting = &mut self.disk.devices[at];
            let id = waiting.demanded.pop_front().or_else(|| waiting.promised.pop_front());
            let Some(id) = id else {
                return self.next_hint(device, now);
            };
            // A load that was moved ahead, or given up, has left its place behind.
            if self.disk.loads.get(id).is_some_and(|load| load.step == Step::Waiting) {
                return Some(id);
            }
        }
    }
}
