//! The figures of the tier below the arena.

use super::DeviceId;
use super::work::DeviceFault;

/// All devices together. Counters end in `_total`; everything else is a gauge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Blocks on devices that are in use.
    pub entries: u64,
    /// Their payload bytes.
    pub payload_bytes: u64,
    /// Rows of class `long` or `short` that no device holds yet. (Those that devices had to let go
    /// do not count.)
    pub dirty_rows: u64,
    /// Their payload bytes.
    pub dirty_bytes: u64,
    /// Devices whose journal is not on stable storage to its end.
    pub unsynced_devices: u64,
    /// Whether a drain has not looked at all rows yet.
    pub is_draining: bool,
    /// Rows that the drain has left out so far, for the devices have no room for them.
    pub drain_no_room_rows: u64,
    /// Loads that wait to be taken.
    pub loads_waiting: u64,
    /// Loads under way.
    pub loads_in_flight: u64,
    /// Bytes of the arena that both kinds hold.
    pub load_bytes: u64,
    /// Loaded rows that are kept for sessions that have not fetched them yet.
    pub landed_rows: u64,
    /// Spills under way.
    pub spills_in_flight: u64,
    /// Their payload bytes.
    pub spill_bytes: u64,
    /// Hints that wait.
    pub hints_waiting: u64,
    /// Waits that are not decided, or not asked for.
    pub waits: u64,
    /// Counters.
    pub totals: DiskTotals,
}

/// Counters since the store was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskTotals {
    /// Keys that a fetch found on a device only, each time it was asked for.
    pub loading_total: u64,
    /// Of those, keys whose load was under way already.
    pub loads_joined_total: u64,
    /// Of those, keys that found no load free.
    pub loads_starved_total: u64,
    /// Blocks read.
    pub loads_total: u64,
    /// Their payload bytes.
    pub load_bytes_total: u64,
    /// Reads that failed.
    pub load_faults_total: u64,
    /// Blocks whose bytes did not fit their checksum: read from a device, or in the arena.
    pub corrupt_total: u64,
    /// Loads that were given up before they were read: nobody wanted them any more, or their block
    /// was removed.
    pub loads_cancelled_total: u64,
    /// Blocks written.
    pub spills_total: u64,
    /// Their payload bytes.
    pub spill_bytes_total: u64,
    /// Writes that failed.
    pub spill_faults_total: u64,
    /// Blocks in the arena that did not fit their client's checksum when they were to be written.
    pub mismatches_total: u64,
    /// Blocks that were written for nothing: replaced or removed meanwhile.
    pub spills_void_total: u64,
    /// Rows that left the arena and stayed on a device.
    pub demotions_total: u64,
    /// Rows that left the arena and should have been on a device, but were not yet, or not any
    /// more.
    pub dropped_unwritten_total: u64,
    /// Rows that left the arena, and the device that held them had failed.
    pub dropped_faulty_total: u64,
    /// Rows that no device could write, however often it was tried, or has room for.
    pub given_up_total: u64,
    /// Turns at which the write budget kept blocks waiting.
    pub budget_waits_total: u64,
    /// Turns at which a device had no room for a block.
    pub room_waits_total: u64,
    /// `short` rows that left without a second touch.
    pub untouched_total: u64,
    /// Keys that hints asked to load.
    pub hints_total: u64,
    /// Hints dropped because too many wait.
    pub hints_dropped_total: u64,
    /// Hints that became stale before their read began.
    pub hints_stale_total: u64,
    /// Keys on a device that were reported missing: too many are promised.
    pub promises_refused_total: u64,
    /// Blocks removed because a newer value was stored.
    pub superseded_total: u64,
    /// Values stored again, bit for bit, while a device had them: nothing was written.
    pub stored_again_total: u64,
    /// Waits that ended well.
    pub waits_durable_total: u64,
    /// Waits that did not.
    pub waits_failed_total: u64,
}

/// What one device is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceHealth {
    /// Being recovered: not yet of use.
    #[default]
    Recovering,
    /// In use.
    Ready,
    /// Out of use.
    Failed(DeviceFault),
}

/// One device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Which.
    pub device: DeviceId,
    /// Whether it is in use.
    pub health: DeviceHealth,
    /// Blocks on it.
    pub entries: u64,
    /// Their payload bytes.
    pub payload_bytes: u64,
    /// Bytes of its containers.
    pub capacity_bytes: u64,
    /// Bytes of them that hold nothing.
    pub free_bytes: u64,
    /// Bytes of them that failed and are left alone until a restart.
    pub quarantined_bytes: u64,
    /// Loads that wait or are under way.
    pub loads: u64,
    /// Payload bytes of the loads.
    pub load_bytes: u64,
    /// Spills under way.
    pub spills: u64,
    /// Reading speed as measured, bytes per second; 0 before the first read.
    pub read_bytes_per_s: u64,
    /// Time that a read takes, as measured, microseconds; 0 before the first read.
    pub read_latency_us: u32,
    /// Writing speed as measured, bytes per second; 0 before the first write.
    pub write_bytes_per_s: u64,
    /// Failures since the last success.
    pub faults_in_a_row: u32,
}
