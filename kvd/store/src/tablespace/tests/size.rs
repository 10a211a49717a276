//! What many entries cost, and that they all come back.
#![expect(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use std::collections::BTreeMap;

use allocation_counter::measure;
use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;

use crate::disk::Half;
use crate::tablespace::image::{Image, ImageEntry, ImageFile, ImagePiece};
use crate::tablespace::recovery::{Dropped, Recovery, Report};
use crate::tablespace::{BLOCK_BYTES, SEGMENTS_OFFSET, Settings, Tablespace, WallTime};

const ENTRIES: u32 = 200_000;
/// All tables included.
const ENTRY_BYTES_MAX: u64 = 160;
/// An index has 4096 shards, each with some slack; chunks of tables are filled in part.
const FIXED_BYTES_MAX: u64 = 1 << 20;

fn settings() -> Settings {
    let space_bytes = u64::from(ENTRIES) * BLOCK_BYTES * 5 / 4;
    Settings {
        tag: 0x6b76_6469_6e66_6572,
        journal_bytes: 4 << 20,
        snapshot_bytes_max: 64 << 20,
        space_bytes,
        expected_bytes: space_bytes,
        hash_seed: 0,
        now: WallTime(1),
    }
}

#[derive(Default)]
struct Files(BTreeMap<(bool, bool), Vec<u8>>);

impl Files {
    /// A device with entries of both classes in eight namespaces, of keys of 32 bytes.
    fn filled() -> Self {
        let mut files = Self::default();
        let mut image = Image::new(settings());
        let compat_keys = ["tp1", "tp2", "tp3", "tp4", "tp5", "tp6", "tp7", "tp8"];
        for number in 0..ENTRIES {
            let class = if number.is_multiple_of(2) { Retention::Short } else { Retention::Long };
            let compat_key = compat_keys[number as usize % 8];
            let mut key = [0x5a; 32];
            key[..4].copy_from_slice(&number.to_le_bytes());
            let entry = ImageEntry {
                namespace: Namespace { model: "some/model-70b", compat_key },
                key: &key,
                len_bytes: 4096,
                checksum: number.into(),
                class,
            };
            assert!(image.add(entry, &mut |piece| files.write(&piece)), "no room for {number}");
        }
        image.finish(&mut |piece| files.write(&piece));
        files
    }

    fn of(file: ImageFile) -> (bool, bool) {
        match file {
            ImageFile::Journal(half) => (false, half == Half::B),
            ImageFile::Snapshot(half) => (true, half == Half::B),
        }
    }

    fn write(&mut self, piece: &ImagePiece) {
        let at = self.0.entry(Self::of(piece.file)).or_default();
        let offset = usize::try_from(piece.offset).unwrap();
        at.resize(at.len().max(offset + piece.bytes.len()), 0);
        at[offset..offset + piece.bytes.len()].copy_from_slice(&piece.bytes);
    }

    fn at(&self, file: ImageFile) -> &[u8] {
        self.0.get(&Self::of(file)).map_or(&[], Vec::as_slice)
    }

    fn recover(&self) -> (Tablespace, Report) {
        let mut recovery = Recovery::new(settings());
        let head = |half| {
            let file = self.at(ImageFile::Snapshot(half));
            &file[..file.len().min(2 * BLOCK_BYTES as usize)]
        };
        let (half, head) = recovery.choose_snapshot(head(Half::A), head(Half::B)).unwrap();
        let range = SEGMENTS_OFFSET as usize..head.end_offset as usize;
        for piece in self.at(ImageFile::Snapshot(half))[range].chunks(4 << 20) {
            recovery.feed_snapshot(piece);
        }
        for half in recovery.journal_order() {
            recovery.begin_journal(half);
            for piece in self.at(ImageFile::Journal(half)).chunks(4 << 20) {
                recovery.feed_journal(piece);
            }
        }
        recovery.finish()
    }
}

#[test]
fn two_hundred_thousand_entries_come_back_at_160_bytes_each() {
    let files = Files::filled();
    let mut recovered = None;
    let cost = measure(|| recovered = Some(files.recover()));
    let (back, report) = recovered.unwrap();
    assert_eq!(report.entries, u64::from(ENTRIES));
    assert!(!report.is_damaged() && report.dropped == Dropped::default(), "{report:?}");
    back.assert_consistent();
    for class in [Retention::Short, Retention::Long] {
        let mut order = Vec::new();
        back.each_coldest(class, |entry| order.push(entry.generation()));
        assert_eq!(order.len(), ENTRIES as usize / 2);
        assert!(order.is_sorted(), "the order of eviction is lost");
    }
    let bytes = u64::try_from(cost.bytes_current).unwrap();
    let each = bytes as f64 / f64::from(ENTRIES);
    let peak = cost.bytes_max as f64 / f64::from(ENTRIES);
    println!("{each:.1} bytes an entry, {peak:.1} at the peak of the recovery");
    assert!(bytes <= u64::from(ENTRIES) * ENTRY_BYTES_MAX + FIXED_BYTES_MAX, "{each:.1}");
}
