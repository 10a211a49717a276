//! The figures of the disk tier, all devices together: one table for metrics, `/v1/stats` and the
//! `stats` of protocol 2.

use kvd_store::DiskStats;

/// One figure. Its name is that of the metric; elsewhere it is shortened.
#[derive(Debug)]
pub struct DiskFigure {
    /// Full name; counters end in `_total`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// How it is read.
    pub read: fn(&DiskStats) -> u64,
}

impl DiskFigure {
    /// The name without the daemon's: `disk_entries`.
    #[must_use]
    pub fn short_name(&self) -> &'static str {
        self.name.strip_prefix("infera_kvd_").unwrap_or(self.name)
    }

    /// The name without the tier's: `entries`.
    #[must_use]
    pub fn bare_name(&self) -> &'static str {
        self.name.strip_prefix("infera_kvd_disk_").unwrap_or(self.name)
    }
}

const fn figure(name: &'static str, help: &'static str, read: fn(&DiskStats) -> u64) -> DiskFigure {
    DiskFigure { name, help, read }
}

/// All of them, in the order of the page.
pub static DISK_FIGURES: [DiskFigure; 38] = [
    figure("infera_kvd_disk_entries", "Blocks on disk.", |d| d.entries),
    figure("infera_kvd_disk_payload_bytes", "Payload bytes of the blocks on disk.", |d| {
        d.payload_bytes
    }),
    figure(
        "infera_kvd_disk_dirty_rows",
        "Rows of class long or short that only memory holds: what a drain would write.",
        |d| d.dirty_rows,
    ),
    figure("infera_kvd_disk_dirty_bytes", "Payload bytes of those rows.", |d| d.dirty_bytes),
    figure("infera_kvd_disk_loads_waiting", "Reads that wait for their turn.", |d| d.loads_waiting),
    figure("infera_kvd_disk_loads_in_flight", "Reads under way.", |d| d.loads_in_flight),
    figure("infera_kvd_disk_load_bytes", "Arena bytes that reads hold.", |d| d.load_bytes),
    figure(
        "infera_kvd_disk_landed_rows",
        "Rows that were read and wait for who asked for them.",
        |d| d.landed_rows,
    ),
    figure("infera_kvd_disk_spills_in_flight", "Writes of blocks under way.", |d| {
        d.spills_in_flight
    }),
    figure("infera_kvd_disk_spill_bytes", "Payload bytes of those writes.", |d| d.spill_bytes),
    figure("infera_kvd_disk_hints_waiting", "Keys of prefetch hints that wait.", |d| {
        d.hints_waiting
    }),
    figure("infera_kvd_disk_waits", "Acknowledgements that wait for the disk.", |d| d.waits),
    figure("infera_kvd_disk_loading_total", "Keys asked for that only disk held.", |d| {
        d.totals.loading_total
    }),
    figure(
        "infera_kvd_disk_loads_joined_total",
        "Of those, keys that were being read already.",
        |d| d.totals.loads_joined_total,
    ),
    figure(
        "infera_kvd_disk_loads_starved_total",
        "Of those, keys that had to wait for a free read.",
        |d| d.totals.loads_starved_total,
    ),
    figure("infera_kvd_disk_loads_total", "Blocks read.", |d| d.totals.loads_total),
    figure("infera_kvd_disk_load_bytes_total", "Payload bytes of the blocks read.", |d| {
        d.totals.load_bytes_total
    }),
    figure("infera_kvd_disk_load_faults_total", "Reads that failed.", |d| {
        d.totals.load_faults_total
    }),
    figure(
        "infera_kvd_disk_corrupt_total",
        "Blocks that did not fit their checksum, read from disk or sampled in memory.",
        |d| d.totals.corrupt_total,
    ),
    figure(
        "infera_kvd_disk_loads_cancelled_total",
        "Reads given up before they began: nobody wanted them any more.",
        |d| d.totals.loads_cancelled_total,
    ),
    figure("infera_kvd_disk_spills_total", "Blocks written.", |d| d.totals.spills_total),
    figure("infera_kvd_disk_spill_bytes_total", "Payload bytes of the blocks written.", |d| {
        d.totals.spill_bytes_total
    }),
    figure("infera_kvd_disk_spill_faults_total", "Writes of blocks that failed.", |d| {
        d.totals.spill_faults_total
    }),
    figure(
        "infera_kvd_disk_mismatches_total",
        "Blocks not written because memory did not fit the checksum of the client that stored them.",
        |d| d.totals.mismatches_total,
    ),
    figure(
        "infera_kvd_disk_spills_void_total",
        "Blocks written for nothing: replaced or removed meanwhile.",
        |d| d.totals.spills_void_total,
    ),
    figure("infera_kvd_disk_demotions_total", "Rows that left memory and stayed on disk.", |d| {
        d.totals.demotions_total
    }),
    figure(
        "infera_kvd_disk_dropped_unwritten_total",
        "Rows that left memory before they could be written.",
        |d| d.totals.dropped_unwritten_total,
    ),
    figure(
        "infera_kvd_disk_dropped_faulty_total",
        "Rows given up because devices failed to write them.",
        |d| d.totals.dropped_faulty_total,
    ),
    figure(
        "infera_kvd_disk_budget_waits_total",
        "Times that the write budget made blocks wait.",
        |d| d.totals.budget_waits_total,
    ),
    figure(
        "infera_kvd_disk_room_waits_total",
        "Times that a device had no room for a block.",
        |d| d.totals.room_waits_total,
    ),
    figure(
        "infera_kvd_disk_untouched_total",
        "Rows of class short that left memory without a second touch.",
        |d| d.totals.untouched_total,
    ),
    figure("infera_kvd_disk_hints_total", "Keys that prefetch hints asked for.", |d| {
        d.totals.hints_total
    }),
    figure(
        "infera_kvd_disk_hints_dropped_total",
        "Of those, dropped because too many wait.",
        |d| d.totals.hints_dropped_total,
    ),
    figure(
        "infera_kvd_disk_hints_stale_total",
        "Of those, too late before their read began.",
        |d| d.totals.hints_stale_total,
    ),
    figure(
        "infera_kvd_disk_superseded_total",
        "Blocks removed from disk because a newer value was stored.",
        |d| d.totals.superseded_total,
    ),
    figure(
        "infera_kvd_disk_stored_again_total",
        "Values stored again, bit for bit, while a disk had them: nothing was written.",
        |d| d.totals.stored_again_total,
    ),
    figure(
        "infera_kvd_disk_waits_durable_total",
        "Acknowledgements that came once the disk had it.",
        |d| d.totals.waits_durable_total,
    ),
    figure(
        "infera_kvd_disk_waits_failed_total",
        "Acknowledgements refused because the disk did not have it.",
        |d| d.totals.waits_failed_total,
    ),
];
