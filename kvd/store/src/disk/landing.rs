//! The end of a load: its bytes become a row, or its room is free again.

use kvd_proto::miss::MissReason;

use super::device::Below;
use super::loads::{Load, Step};
use super::marks::{Copied, Marks};
use super::work::{LoadFault, LoadId};
use crate::effects::HeaderWrite;
use crate::rows::{Extra, Key, Place, Row, RowId};
use crate::slab::NOWHERE;
use crate::store::Store;
use crate::tablespace::journal::Reason;
use crate::time::Timestamp;

impl Store {
    /// A device reports the end of a load.
    pub(crate) fn loaded(
        &mut self,
        device: u8,
        id: LoadId,
        result: Result<(), LoadFault>,
        took_us: u32,
        now: Timestamp,
    ) {
        let Some(load) = self.disk.loads.get(id) else {
            panic!("{id:?} is reported, but was not taken or ended before");
        };
        assert!(load.step != Step::Waiting && load.below.device == device, "{id:?} was not taken");
        let load = self.remove_load(id);
        let len_bytes = u64::from(load.len_bytes);
        self.disk.devices[usize::from(device)].reads.end(len_bytes, took_us, now);
        self.count_attempt(device, !matches!(result, Err(LoadFault::Io | LoadFault::TimedOut)));
        match (load.step, result) {
            (Step::Void, _) => self.space.let_go(load.extent),
            (_, Ok(())) => {
                self.disk.totals.loads_total += 1;
                self.disk.totals.load_bytes_total += len_bytes;
                self.land(load, now);
            }
            (_, Err(fault)) => {
                self.space.let_go(load.extent);
                self.blame(load.below, fault, now);
                self.end_waits(&load);
            }
        }
        if self.disk.devices[usize::from(device)].is_worn_out(self.config.disk.faults_max) {
            self.fail_device(device, super::DeviceFault::Io);
        }
    }

    /// Takes a load out of all lists; its place on the device is free to go, its place in the
    /// arena is the caller's.
    pub(crate) fn remove_load(&mut self, id: LoadId) -> Load {
        let extent = match self.disk.loads.get(id) {
            Some(load) => load.extent,
            None => panic!("{id:?} ended before"),
        };
        let load = self.disk.loads.remove(id, self.space[extent].bytes());
        self.ledger.read_over(load.read_slot);
        let device = &mut self.disk.devices[usize::from(load.below.device)];
        device.loads -= 1;
        device.load_bytes -= u64::from(load.len_bytes);
        if let Some(tablespace) = device.tablespace_mut() {
            tablespace.unpin(load.range);
        }
        load
    }

    /// Gives up a load that no device has taken yet.
    pub(crate) fn drop_waiting_load(&mut self, id: LoadId) {
        let load = self.remove_load(id);
        assert_eq!(load.step, Step::Waiting);
        self.space.let_go(load.extent);
        self.sweep_waiting(load.below.device);
        self.end_waits(&load);
    }

    /// The block of a load is gone, and with it the reason to read it.
    pub(crate) fn void_load(&mut self, below: Below) {
        let Some(id) = self.disk.loads.of(below) else {
            return;
        };
        self.disk.totals.loads_cancelled_total += 1;
        let Some(load) = self.disk.loads.get_mut(id) else {
            return;
        };
        if load.step == Step::Waiting {
            self.drop_waiting_load(id);
            return;
        }
        let waiters = core::mem::take(&mut load.waiters);
        let ended = Load { waiters, ..*load };
        self.disk.loads.void(id);
        self.end_waits(&ended);
    }

    fn land(&mut self, load: Load, now: Timestamp) {
        let hinted_until = load.hinted_until.filter(|_| !load.is_wanted_now());
        let is_stale = hinted_until.is_some_and(|until| until <= now);
        let row = if is_stale { None } else { self.row_of(&load, hinted_until, now) };
        let Some(id) = row else {
            self.disk.totals.hints_stale_total += u64::from(is_stale);
            self.space.let_go(load.extent);
            self.end_waits(&load);
            return;
        };
        // The reference counts a promotion as a SET.
        self.totals.sets_total += 1;
        let payload_offset = self.space.payload_offset(load.extent);
        let version = self.space[load.extent].version();
        let header = HeaderWrite { payload_offset, version, len_bytes: load.len_bytes };
        self.disk.out.headers.push(header);
        if load.promised_until.is_some() && self.may_promise(load.extent) {
            self.promise(id, now);
        }
        self.end_waits(&load);
        self.keep_for(id, load.waiters, now.after(self.config.promise_window_ms));
    }

    /// The row of a finished load, linked to its entry; none if its time is over.
    fn row_of(
        &mut self,
        load: &Load,
        hinted_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<RowId> {
        let tablespace = self.disk.devices[usize::from(load.below.device)].tablespace()?;
        let entry = tablespace.entry(load.below.entry);
        let namespace = tablespace.namespace_of(load.below.entry);
        let checksum = entry.checksum();
        let expires_at = self.config.disk.monotonic(entry.expires_at());
        let named = self.named(namespace);
        if expires_at <= now || (named.id.is_none() && self.namespaces.is_full()) {
            return None;
        }
        let hash = self.hash(named.hash, entry.key());
        debug_assert!(named.id.is_none_or(|id| self.find(id, hash, entry.key()).is_none()));
        let room = self.config.lineage_bytes_max - self.lineage_bytes;
        let lineage = entry.lineage().filter(|bytes| bytes.len() as u64 <= room);
        let mut marks = Marks::new(Copied::Clean);
        let copy_expires_at = hinted_until.map_or(expires_at, |until| until.min(expires_at));
        marks.set_hinted(copy_expires_at < expires_at);
        let row = Row {
            key: Key::new(entry.key()),
            expires_at: copy_expires_at,
            promised_until: Timestamp(0),
            extra: Extra::new(lineage, None),
            namespace: self.namespaces.add_row(namespace, named.hash),
            place: Place::Host(load.extent),
            len_bytes: load.len_bytes,
            kin_previous: RowId::NONE,
            kin_next: RowId::NONE,
            hand_out: NOWHERE,
            class: load.class,
            parked: false,
            device: load.below.device,
            marks,
            entry: load.below.entry,
        };
        let id = self.rows.insert(row);
        self.enter(id, hash);
        self.evict.insert(id, load.class);
        self.space.store(load.extent, id, load.class);
        self.count_evictable(load.extent);
        self.host_bytes += u64::from(load.len_bytes);
        self.lineage_bytes += self.rows[id].lineage_bytes();
        if copy_expires_at != Timestamp::NEVER {
            self.expiries.insert((copy_expires_at, id));
        }
        self.link(id, load.below);
        // The copy that a hint made is not worth remembering.
        if copy_expires_at == expires_at {
            self.record_row(id, Some(checksum));
        }
        self.tell_stored(id);
        Some(id)
    }

    /// A read failed: the block is not tried again, or not for a while.
    fn blame(&mut self, below: Below, fault: LoadFault, now: Timestamp) {
        match fault {
            LoadFault::Io => {
                self.disk.totals.load_faults_total += 1;
                self.remove_below(below, Reason::Faulty);
            }
            LoadFault::Corrupt => {
                self.disk.totals.corrupt_total += 1;
                self.remove_below(below, Reason::Corrupt);
            }
            LoadFault::TimedOut => {
                self.disk.totals.load_faults_total += 1;
                self.disk.rests.add(below, now);
            }
        }
    }
}

impl Load {
    /// Whether there is more to it than a hint.
    fn is_wanted_now(&self) -> bool {
        !self.waiters.is_empty() || self.promised_until.is_some()
    }
}

/// The reason by which a miss is explained after a block left a device.
pub(crate) const fn miss_of(reason: Reason) -> Option<MissReason> {
    match reason {
        Reason::Expired => Some(MissReason::Expired),
        Reason::Cleared => Some(MissReason::Cleared),
        Reason::Corrupt | Reason::Faulty => Some(MissReason::Corrupt),
        // The row that left before it has said what there is to say, or stands in its place.
        Reason::Evicted | Reason::Superseded => None,
    }
}
