//! Every byte of every file flipped, and files cut off anywhere.
#![expect(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use kvd_proto::retention::Retention;

use super::files::{File, settings};
use super::life::{Life, SCOPES, key_of};
use crate::disk::Half;
use crate::tablespace::journal::{JournalItem, JournalReader, Reason, half_of};

/// A number that looks random, always the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A life with everything in it: evictions, clears, superseding, snapshots. `extra` more steps
/// than a hundred.
fn life(seed: u64, extra: u64) -> Life {
    let mut life = Life::new();
    live(&mut life, seed, 100 + extra);
    life
}

fn live(life: &mut Life, seed: u64, steps: u64) {
    let mut dice = Dice(seed);
    for step in 0..steps {
        for _ in 0..1 + dice.roll(4) {
            let name = (dice.roll(3) as usize, key_of(dice.roll(40) as u8));
            let class = if dice.roll(2) == 0 { Retention::Short } else { Retention::Long };
            life.insert(name, dice.roll(50_000) as u32, class, None);
        }
        match dice.roll(12) {
            0 => life.clear(SCOPES[1 + dice.roll(3) as usize]),
            1 => life.remove_some(dice.roll(1000) as usize, Reason::Corrupt),
            2 if step == 70 => life.tablespace.ask_snapshot(),
            _ => {}
        }
        life.write(dice.roll(2) == 0, true);
        life.snapshot(true);
    }
    life.check();
}

#[test]
fn power_may_go_during_any_write() {
    for seed in 20..23 {
        let mut life = Life::new();
        life.cuts_tried = Some(0);
        live(&mut life, seed, 100);
        assert!(life.cuts_tried > Some(1000), "{:?}", life.cuts_tried);
    }
}

fn reasons(life: &Life) -> Vec<Reason> {
    life.told.values().filter_map(|told| told.reason()).collect()
}

#[test]
fn the_damaged_lives_have_everything_in_them() {
    let life = life(1, 0);
    for reason in [Reason::Evicted, Reason::Superseded, Reason::Cleared, Reason::Corrupt] {
        assert!(reasons(&life).contains(&reason), "nothing was {reason:?}");
    }
    let (_, report) = life.files.recover(settings(life.now), 4096);
    assert!(report.snapshot.is_some_and(|number| number > 2), "{report:?}");
    assert!(report.entries > 5 && report.snapshot_entries_read > 0, "{report:?}");
}

/// Bytes that matter: all that are not zero, and some of the zeros.
fn worth_flipping(bytes: &[u8]) -> Vec<usize> {
    let all = 0..bytes.len();
    all.filter(|&at| bytes[at] != 0 || at.is_multiple_of(499)).collect()
}

#[test]
fn no_flipped_byte_invents_or_changes_an_entry() {
    let mut life = life(1, 1);
    let (whole, _) = life.files.recover(settings(life.now), 1 << 20);
    let all = whole.figures().entries;
    let mut noticed = 0;
    for file in File::ALL {
        for at in worth_flipping(life.files.at(file)) {
            life.files.at_mut(file)[at] ^= 1 << (at % 8);
            let (back, report) = life.files.recover(settings(life.now), 1 << 20);
            life.judge(&back, life.tablespace.written_sequence(), false);
            noticed += u32::from(report.is_damaged() || report.entries < all);
            life.files.at_mut(file)[at] ^= 1 << (at % 8);
        }
    }
    assert!(noticed > 100, "the flips hit nothing");
}

#[test]
fn a_bad_block_costs_neither_everything_nor_the_truth() {
    let mut life = life(5, 3);
    let whole = life.files.recover(settings(life.now), 1 << 20).1.entries;
    for file in [File::Journal(Half::A), File::Journal(Half::B)] {
        for block in (0..life.files.at(file).len()).step_by(4096) {
            let before = life.files.at(file).to_vec();
            life.files.at_mut(file)[block..block + 4096].fill(0xee);
            let (back, report) = life.files.recover(settings(life.now), 1 << 20);
            life.judge(&back, life.tablespace.written_sequence(), false);
            assert_eq!(report.vitals_lost, 0, "one block lost a vital record: {report:?}");
            assert!(report.entries * 2 > whole, "one block cost too much: {report:?}");
            *life.files.at_mut(file) = before;
        }
    }
}

/// The last batch of the current journal that ends before `end`, and the first batch of all.
fn known_before(life: &Life, file: File, end: usize) -> u64 {
    let mut reader = JournalReader::new(settings(0).tag);
    reader.feed(life.files.at(file));
    reader.end();
    let mut known = 0;
    while let Some(item) = reader.next_item() {
        if let JournalItem::Batch(batch) = item
            && batch.offset as usize + batch.header.bytes_on_device() <= end
        {
            known = known.max(batch.header.sequence);
        }
    }
    known
}

#[test]
fn files_may_end_anywhere() {
    for seed in 7..10 {
        let mut life = life(seed, seed);
        let current = half_of(life.tablespace.journal.number());
        for file in File::ALL {
            let whole = life.files.at(file).to_vec();
            let ends = (0..whole.len()).filter(|end| end % 4096 < 70 || end % 509 == 0);
            for end in ends {
                *life.files.at_mut(file) = whole[..end].to_vec();
                let (back, _) = life.files.recover(settings(life.now), 1 << 20);
                let known = if file == File::Journal(current) {
                    known_before(&life, file, end)
                } else {
                    life.tablespace.written_sequence()
                };
                life.judge(&back, known, false);
            }
            *life.files.at_mut(file) = whole;
        }
    }
}

/// What the journal must prevent: with the write of a clear undone, and nobody the wiser, the
/// cleared entries are back, and the judge must say so.
#[test]
#[should_panic(expected = "is Cleared")]
fn negative_control_a_lost_clear_is_seen() {
    let mut life = life(11, 0);
    while life.write(true, true) {}
    let before = life.files.clone();
    life.clear(SCOPES[0]);
    while life.write(true, true) {}
    let (back, _) = before.recover(settings(life.now), 4096);
    life.judge(&back, life.tablespace.written_sequence(), false);
}

#[test]
fn files_of_another_device_are_nothing() {
    let life = life(12, 0);
    let mut other = settings(life.now);
    other.tag += 1;
    let (back, report) = life.files.recover(other, 1 << 20);
    assert_eq!((report.entries, report.batches), (0, 0));
    back.assert_consistent();
}

#[test]
fn a_smaller_device_forgets_what_is_beyond_its_end() {
    let life = life(13, 0);
    let mut smaller = settings(life.now);
    smaller.space_bytes /= 2;
    smaller.expected_bytes /= 2;
    let (whole, _) = life.files.recover(settings(life.now), 1 << 20);
    let (back, report) = life.files.recover(smaller, 1 << 20);
    let inside = whole
        .entries_from(0)
        .filter(|&(id, entry)| {
            let used = u64::from(entry.len_bytes()).max(1).next_multiple_of(4096);
            whole.range(id).0 + used <= smaller.space_bytes
        })
        .count() as u64;
    assert_eq!(report.entries, inside);
    assert_eq!(report.entries + report.dropped.outside, whole.figures().entries);
    back.assert_consistent();
}
