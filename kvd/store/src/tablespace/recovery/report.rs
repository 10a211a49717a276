//! What a recovery found.

use core::fmt;

/// What was found on a device, and what was not taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Blocks that are back.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The latest generation that anything named.
    pub generation_max: u64,
    /// Number of the snapshot that was used.
    pub snapshot: Option<u64>,
    /// Entries that it announced.
    pub snapshot_entries: u64,
    /// Entries of it that could be read.
    pub snapshot_entries_read: u64,
    /// Journals that had anything to say.
    pub journals: u32,
    /// Batches in them.
    pub batches: u64,
    /// Records in those.
    pub records: u64,
    /// Stretches of a journal that could not be read, with something readable behind.
    pub damaged_stretches: u64,
    /// Times that vital records were missing: everything from before was dropped.
    pub vitals_lost: u64,
    /// The last write to the journal was cut off.
    pub torn_tail: bool,
    /// Entries that were read and not taken over.
    pub dropped: Dropped,
}

/// Numbers of entries that were not taken over, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// The journal says that they left.
    pub removed: u64,
    /// A clear covers them.
    pub cleared: u64,
    /// Their time to live was over.
    pub expired: u64,
    /// A later entry has the same name.
    pub superseded: u64,
    /// A later entry is in the same place.
    pub overlapping: u64,
    /// They are beyond the containers that exist.
    pub outside: u64,
    /// What was read makes no sense although its checksum fits.
    pub malformed: u64,
    /// There is no room to remember them, since the device is smaller now.
    pub crowded: u64,
    /// They were before a missing vital record.
    pub doubtful: u64,
}

impl Report {
    /// Whether something could not be read that once was whole.
    #[must_use]
    pub const fn is_damaged(&self) -> bool {
        self.damaged_stretches > 0
            || self.vitals_lost > 0
            || self.dropped.malformed > 0
            || self.snapshot_entries_read < self.snapshot_entries
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} blocks of {} bytes", self.entries, self.bytes)?;
        if let Some(number) = self.snapshot {
            let (read, all) = (self.snapshot_entries_read, self.snapshot_entries);
            write!(out, ", {read} of {all} from snapshot {number}")?;
        }
        write!(out, ", {} records in {} batches", self.records, self.batches)?;
        let Dropped { removed, cleared, expired, superseded, .. } = self.dropped;
        let Dropped { overlapping, outside, malformed, crowded, doubtful, .. } = self.dropped;
        for (what, count) in [
            ("removed", removed),
            ("cleared", cleared),
            ("expired", expired),
            ("superseded", superseded),
            ("overlapping", overlapping),
            ("outside", outside),
            ("malformed", malformed),
            ("crowded", crowded),
            ("doubtful", doubtful),
            ("damaged stretches", self.damaged_stretches),
            ("missing vital records", self.vitals_lost),
        ] {
            if count > 0 {
                write!(out, ", {count} {what}")?;
            }
        }
        if self.torn_tail {
            out.write_str(", the last write was cut off")?;
        }
        Ok(())
    }
}
