//! What many entries cost, and that they all come back.

use std::collections::BTreeMap;

use allocation_counter::measure;

use crate::disk::Half;
use crate::tablespace::format::BLOCK_BYTES;
use crate::tablespace::recovery::{Recovery, Report};
use crate::tablespace::rehearsal::{MetadataFile, settings_for, write_files};
use crate::tablespace::{SEGMENTS_OFFSET, Tablespace};

const ENTRIES: u32 = 200_000;
/// All tables included.
const ENTRY_BYTES_MAX: u64 = 160;
/// An index has 4096 shards, each with some slack; chunks of tables are filled in part.
const FIXED_BYTES_MAX: u64 = 1 << 20;

#[derive(Default)]
struct Image(BTreeMap<(bool, bool), Vec<u8>>);

impl Image {
    fn of(file: MetadataFile) -> (bool, bool) {
        match file {
            MetadataFile::Journal(half) => (false, half == Half::B),
            MetadataFile::Snapshot(half) => (true, half == Half::B),
        }
    }

    fn write(&mut self, file: MetadataFile, offset: u64, bytes: &[u8]) {
        let at = self.0.entry(Self::of(file)).or_default();
        let offset = usize::try_from(offset).unwrap();
        at.resize(at.len().max(offset + bytes.len()), 0);
        at[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn at(&self, file: MetadataFile) -> &[u8] {
        self.0.get(&Self::of(file)).map_or(&[], Vec::as_slice)
    }

    fn recover(&self, entries: u32) -> (Tablespace, Report) {
        let mut recovery = Recovery::new(settings_for(entries));
        let head = |half| {
            let file = self.at(MetadataFile::Snapshot(half));
            &file[..file.len().min(2 * BLOCK_BYTES as usize)]
        };
        let (half, head) = recovery.choose_snapshot(head(Half::A), head(Half::B)).unwrap();
        let range = SEGMENTS_OFFSET as usize..head.end_offset as usize;
        for piece in self.at(MetadataFile::Snapshot(half))[range].chunks(4 << 20) {
            recovery.feed_snapshot(piece);
        }
        let start = |half| {
            let file = self.at(MetadataFile::Journal(half));
            &file[..file.len().min(1 << 20)]
        };
        for half in recovery.journal_order(start(Half::A), start(Half::B)) {
            recovery.begin_journal(half);
            for piece in self.at(MetadataFile::Journal(half)).chunks(4 << 20) {
                recovery.feed_journal(piece);
            }
        }
        recovery.finish()
    }
}

#[test]
fn two_hundred_thousand_entries_come_back_at_160_bytes_each() {
    let mut image = Image::default();
    let before = write_files(settings_for(ENTRIES), ENTRIES, |file, offset, bytes| {
        image.write(file, offset, bytes);
    });
    let mut recovered = None;
    let cost = measure(|| recovered = Some(image.recover(ENTRIES)));
    let (back, report) = recovered.unwrap();
    assert_eq!(report.entries, u64::from(ENTRIES));
    assert_eq!(report.snapshot_entries, report.snapshot_entries_read);
    assert!(!report.is_damaged() && report.dropped == Default::default(), "{report:?}");
    assert_eq!(back.figures(), before.figures());
    back.assert_consistent();
    let order = |tablespace: &Tablespace| {
        let class = kvd_proto::retention::Retention::Long;
        let mut all = Vec::new();
        tablespace.each_coldest(class, |entry| all.push(entry.generation()));
        all
    };
    assert_eq!(order(&back), order(&before), "the order of eviction is lost");
    let bytes = u64::try_from(cost.bytes_current).unwrap();
    let each = bytes as f64 / f64::from(ENTRIES);
    let peak = cost.bytes_max as f64 / f64::from(ENTRIES);
    println!("{each:.1} bytes an entry, {peak:.1} at the peak of the recovery");
    assert!(bytes <= u64::from(ENTRIES) * ENTRY_BYTES_MAX + FIXED_BYTES_MAX, "{each:.1}");
}
