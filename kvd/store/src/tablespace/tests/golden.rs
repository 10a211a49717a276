//! The bytes on a device are those of `tests/golden/tablespace.txt`: one line for each block of 4096
//! bytes, with the name of the piece and the bytes without the zeros at the end.

use core::fmt::Write as _;
use kvd_proto::retention::Retention;

use super::files::settings;
use super::life::NAMESPACES;
use crate::disk::Half;
use crate::input::ClearScope;
use crate::rows::RowId;
use crate::tablespace::journal::{JournalItem, JournalReader, Reason};
use crate::tablespace::recovery::Recovery;
use crate::tablespace::snapshot::SnapshotHead;
use crate::tablespace::{NewEntry, Superblock, Tablespace, WallTime};

const GOLDEN: &str = include_str!("../../../tests/golden/tablespace.txt");

fn superblock() -> Superblock {
    Superblock {
        set_id: *b"0123456789abcdef",
        device_id: *b"fedcba9876543210",
        container_bytes: 1 << 30,
        journal_bytes: 1 << 20,
        created_ms: 1_700_000_000_000,
    }
}

/// A tablespace with three entries, and the first write to its journal, which names each kind of
/// record.
fn journal() -> (Tablespace, Vec<u8>) {
    let mut tablespace = Tablespace::new(settings(1_000));
    let mut ids = Vec::new();
    for number in 1..=5_u8 {
        let extent = tablespace.take_room(5_000 * u32::from(number), Retention::Long).unwrap();
        let id = tablespace.insert(NewEntry {
            extent,
            namespace: NAMESPACES[usize::from(number % 2)],
            key: &[number; 8],
            len_bytes: 5_000 * u32::from(number),
            checksum: 0x1111_1111_1111_1111 * u64::from(number),
            class: if number == 2 { Retention::Short } else { Retention::Long },
            expires_at: if number == 3 { WallTime(2_000_000) } else { WallTime::NEVER },
            generation: u64::from(number),
            lineage: (number == 1).then_some(b"lineage".as_slice()),
            host: RowId::NONE,
        });
        ids.push(id.unwrap());
    }
    let _ = tablespace.remove(ids[3], Reason::Evicted);
    let _ = tablespace.remove(ids[4], Reason::Superseded);
    for scope in
        [ClearScope::Namespace(NAMESPACES[2]), ClearScope::Model("absent"), ClearScope::Everything]
    {
        tablespace.begin_clear(scope, 1);
    }
    let write = tablespace.next_batch(true).unwrap();
    tablespace.batch_written(write.sequence, true);
    tablespace.synced(write.sequence);
    (tablespace, write.bytes)
}

/// The segments and the head of its snapshot.
fn snapshot(mut tablespace: Tablespace) -> (Vec<u8>, Vec<u8>) {
    tablespace.ask_snapshot();
    let mut writes = Vec::new();
    while !tablespace.is_settled() {
        if let Some(write) = tablespace.next_snapshot() {
            writes.push(write.bytes);
            tablespace.snapshot_written(true);
        }
    }
    let [segments, head] = writes.try_into().unwrap();
    (segments, head)
}

/// The lines of a piece.
fn lines(name: &str, bytes: &[u8]) -> String {
    let mut text = String::new();
    for block in bytes.chunks(4096) {
        let end = block.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
        write!(text, "{name} ").unwrap();
        block[..end].iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
    }
    text
}

fn golden(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in GOLDEN.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')) {
        let end = bytes.len() + 4096;
        let digits = (0..line.len()).step_by(2).map(|at| &line[at..at + 2]);
        bytes.extend(digits.map(|byte| u8::from_str_radix(byte, 16).unwrap()));
        bytes.resize(end, 0);
    }
    bytes
}

#[test]
fn what_is_written_is_what_was_always_written() {
    let (tablespace, journal) = journal();
    let (segments, head) = snapshot(tablespace);
    let superblock = superblock().encode();
    for (name, bytes) in
        [("superblock", superblock), ("journal", journal), ("segment", segments), ("head", head)]
    {
        assert!(
            golden(name) == bytes,
            "it is now:
{}",
            lines(name, &bytes)
        );
    }
}

#[test]
fn what_was_always_written_is_still_read() {
    assert_eq!(Superblock::decode(&golden("superblock")), Ok(superblock()));
    let tag = settings(0).tag;
    let head = SnapshotHead::decode(&golden("head"), tag).unwrap();
    assert_eq!((head.number, head.entries, head.segments, head.generation), (2, 3, 1, 5));
    let mut reader = JournalReader::new(tag);
    reader.feed(&golden("journal"));
    let mut said = String::new();
    while let Some(item) = reader.next_item() {
        let JournalItem::Batch(batch) = item else { panic!("{item:?}") };
        writeln!(said, "{}", batch.header).unwrap();
        for record in batch.records() {
            writeln!(said, "  {}", record.unwrap()).unwrap();
        }
    }
    assert_eq!(said, SAID);
    // From the journal alone, and from the snapshot alone.
    for with_snapshot in [false, true] {
        let mut recovery = Recovery::new(settings(1_000));
        if with_snapshot {
            let chosen = recovery.choose_snapshot(&golden("head"), &[]);
            assert_eq!(chosen, Some((Half::A, head)));
            recovery.feed_snapshot(&golden("segment"));
        } else {
            recovery.begin_journal(Half::B);
            recovery.feed_journal(&golden("journal"));
        }
        let (back, report) = recovery.finish();
        assert!(!report.is_damaged(), "{report:?}");
        let all: Vec<_> = back
            .entries_from(0)
            .map(|(id, entry)| {
                (entry.generation(), back.range(id), entry.checksum(), entry.key()[0])
            })
            .collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert_eq!(
            sorted,
            [
                (1, (0, 5_000), 0x1111_1111_1111_1111, 1),
                (2, (8_192, 10_000), 0x2222_2222_2222_2222, 2),
                (3, (20_480, 15_000), 0x3333_3333_3333_3333, 3),
            ]
        );
    }
}

const SAID: &str = include_str!("../../../tests/golden/journal.txt");
