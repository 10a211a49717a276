//! Looking at devices without a trace.

use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;

use super::{DeviceId, DeviceInfo, DiskStats};
use crate::disk::loads::Step;
use crate::rows::RowId;
use crate::store::Store;
use crate::tablespace::{EntryId, Tablespace, WallTime};
use crate::time::Timestamp;

/// Places in the table of entries that one page of a listing looks at.
const ENTRY_VISITS: usize = 4096;

/// Where a listing of blocks goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCursor(pub u32);

/// Everything worth knowing about one block on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryInfo {
    /// Which device.
    pub device: DeviceId,
    /// Model part of its namespace.
    pub model: String,
    /// Compatibility key of its namespace.
    pub compat_key: String,
    /// Its key.
    pub key: Vec<u8>,
    /// Payload length.
    pub len_bytes: u32,
    /// Its class.
    pub retention: Retention,
    /// When its time to live ends: wall clock, milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
    /// Where it begins, counted through all containers.
    pub offset: u64,
    /// Bytes of its encoded lineage.
    pub lineage_bytes: u64,
    /// Whether the arena holds a copy.
    pub in_memory: bool,
}

impl Store {
    /// Every device, in the order of their numbers.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceInfo> {
        (0..self.disk.count()).map(|device| self.device_info(device)).collect()
    }

    fn device_info(&self, device: u8) -> DeviceInfo {
        let at = &self.disk.devices[usize::from(device)];
        let figures = at.tablespace().map(Tablespace::figures).unwrap_or_default();
        DeviceInfo {
            device: DeviceId(device),
            health: at.health(),
            entries: figures.entries,
            payload_bytes: figures.payload_bytes,
            capacity_bytes: figures.space_bytes,
            free_bytes: figures.free_bytes,
            quarantined_bytes: figures.quarantined_bytes,
            loads: at.loads.into(),
            spills: at.writes.in_flight().into(),
            load_bytes: at.load_bytes,
            read_bytes_per_s: at.reads.bytes_per_s(),
            read_latency_us: at.reads.latency_us(),
            write_bytes_per_s: at.writes.bytes_per_s(),
            faults_in_a_row: at.faults_in_a_row,
        }
    }

    /// At most `limit` blocks of a device in storage order from `cursor` on, and where to go on.
    /// Fewer than `limit` do not mean the end. Nothing of a device that is not of use.
    ///
    /// # Panics
    /// If there is no such device.
    #[must_use]
    pub fn entries(
        &self,
        device: DeviceId,
        cursor: EntryCursor,
        limit: usize,
    ) -> (Vec<EntryInfo>, Option<EntryCursor>) {
        let Some(tablespace) = self.disk.devices[usize::from(device)].tablespace() else {
            return (Vec::new(), None);
        };
        let EntryCursor(from) = cursor;
        let seen = tablespace.entries_from(from).take(limit.min(ENTRY_VISITS));
        let seen: Vec<EntryId> = seen.map(|(id, _)| id).collect();
        let next = seen.last().map(|last| EntryCursor(last.0 + 1));
        let next = next.filter(|next| next.0 < tablespace.entries_end());
        (seen.into_iter().map(|id| entry_info(device, tablespace, id)).collect(), next)
    }

    /// The block that a device holds under this name.
    #[must_use]
    pub fn entry(&self, namespace: Namespace<'_>, key: &[u8], now: Timestamp) -> Option<EntryInfo> {
        let wall = self.config.disk.wall(now);
        let found = (0..self.disk.count()).filter_map(|device| {
            let tablespace = self.disk.devices[usize::from(device)].tablespace()?;
            let id = tablespace.find(namespace, key, wall)?;
            Some((tablespace.entry(id).generation(), device, id))
        });
        let (_, device, id) = found.max()?;
        let tablespace = self.disk.devices[usize::from(device)].tablespace()?;
        Some(entry_info(DeviceId(device), tablespace, id))
    }

    /// What the bytes of a row must sum up to, if the row is still the one with this version and
    /// anybody knows: CRC-64/NVME over the value, then the key.
    #[must_use]
    pub fn checksum_of(&self, namespace: Namespace<'_>, key: &[u8], version: u32) -> Option<u64> {
        let named = self.named(namespace);
        let id = self.find(named.id?, self.hash(named.hash, key), key)?;
        let row = &self.rows[id];
        if self.space[row.host_extent()].version() != version {
            return None;
        }
        row.checksum().or_else(|| {
            let below = self.below(id)?;
            let tablespace = self.disk.devices[usize::from(below.device)].tablespace()?;
            Some(tablespace.entry(below.entry).checksum())
        })
    }

    /// The device that holds a copy of a row.
    pub(crate) fn device_of(&self, id: RowId) -> Option<DeviceId> {
        let below = self.below(id)?;
        let device = &self.disk.devices[usize::from(below.device)];
        device.tablespace().map(|_| DeviceId(below.device))
    }

    pub(crate) fn disk_stats(&self) -> DiskStats {
        let tier = &self.disk;
        let tablespaces = tier.devices.iter().filter_map(|device| device.tablespace());
        let (mut entries, mut payload_bytes, mut unsynced_devices) = (0, 0, 0);
        for tablespace in tablespaces {
            let figures = tablespace.figures();
            entries += figures.entries;
            payload_bytes += figures.payload_bytes;
            let is_synced = !tablespace.has_records()
                && tablespace.durable_sequence() == tablespace.written_sequence();
            unsynced_devices += u64::from(!is_synced);
        }
        let waiting = tier.loads.iter().filter(|(_, load)| load.step == Step::Waiting).count();
        DiskStats {
            entries,
            payload_bytes,
            unsynced_devices,
            dirty_rows: tier.dirty.rows,
            dirty_bytes: tier.dirty.bytes,
            drain_no_room_rows: tier.drain.map_or(0, |drain| drain.no_room_rows()),
            is_draining: tier
                .drain
                .is_some_and(|drain| !drain.is_over() || tier.bereaved.is_some()),
            loads_waiting: waiting as u64,
            loads_in_flight: (tier.loads.len() - waiting) as u64,
            load_bytes: tier.loads.extent_bytes,
            landed_rows: tier.landings.rows.len() as u64,
            spills_in_flight: tier.spills.len() as u64,
            spill_bytes: tier.spills.values().map(|spill| u64::from(spill.len_bytes)).sum(),
            hints_waiting: tier.hints as u64,
            waits: tier.waits.len() as u64,
            totals: super::DiskTotals {
                waits_durable_total: tier.waits.durable_total,
                waits_failed_total: tier.waits.failed_total,
                ..tier.totals
            },
        }
    }
}

fn entry_info(device: DeviceId, tablespace: &Tablespace, id: EntryId) -> EntryInfo {
    let (entry, namespace) = (tablespace.entry(id), tablespace.namespace_of(id));
    let expires_at = entry.expires_at();
    EntryInfo {
        device,
        model: namespace.model.to_owned(),
        compat_key: namespace.compat_key.to_owned(),
        key: entry.key().to_vec(),
        len_bytes: entry.len_bytes(),
        retention: entry.class(),
        expires_at_ms: (expires_at != WallTime::NEVER).then_some(expires_at.0),
        offset: tablespace.range(id).0,
        lineage_bytes: entry.lineage().map_or(0, |lineage| lineage.len() as u64),
        in_memory: entry.host() != RowId::NONE,
    }
}
