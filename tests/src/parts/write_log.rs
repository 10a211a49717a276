//! What was written to a device and flushed, in order, as `qemu-storage-daemon` records it in the format of the
//! kernel's dm-log-writes; and what a power cut at some moment leaves of it.
//!
//! A sector of 512 bytes names the number of a sector size; then come entries, each with a sector for its head and the
//! data behind. The device serves one operation after the other, so the order of the log is that of the device, and a
//! flush covers every write before it.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::extents::SECTOR_BYTES;
use crate::content::Random;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
/// A write that is on stable storage when it ends.
const FORCED: u64 = 2;
const DISCARD: u64 = 4;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it ends in the log.
    pub end: u64,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// Bytes at `at` of the log went to `to` of the device.
    Write {
        at: u64,
        to: u64,
        bytes: u64,
        is_forced: bool,
    },
    Flush,
}

/// A log that is complete.
#[derive(Debug)]
pub struct WriteLog {
    file: File,
    entries: Vec<Entry>,
}

impl WriteLog {
    /// Reads a log.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let file = File::open(path).expect("the log");
        let [magic, version, _, sizes] = head(&file, 0);
        assert_eq!((magic, version), (MAGIC, 1), "not a log of writes");
        assert_eq!(sizes & u64::from(u32::MAX), SECTOR_BYTES, "its sector size");
        let len = file.metadata().expect("its length").len();
        let (mut entries, mut at) = (Vec::new(), SECTOR_BYTES);
        while at + SECTOR_BYTES <= len {
            let [sector, sectors, flags, _] = head(&file, at);
            if sectors == 0 && flags == 0 {
                break;
            }
            at += SECTOR_BYTES;
            let bytes = sectors * SECTOR_BYTES;
            if flags & FLUSH != 0 {
                entries.push(Entry { end: at, what: What::Flush });
            }
            if bytes > 0 && flags & DISCARD == 0 {
                let what = What::Write {
                    at,
                    to: sector * SECTOR_BYTES,
                    bytes,
                    is_forced: flags & FORCED != 0,
                };
                at += bytes;
                entries.push(Entry { end: at, what });
            }
        }
        Self { file, entries }
    }

    /// Everything in it, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many flushes there are.
    #[must_use]
    pub fn flushes(&self) -> usize {
        self.entries.iter().filter(|entry| entry.what == What::Flush).count()
    }

    /// Writes to `image` what a power cut after the first `count` operations leaves of them: everything before the last
    /// flush, and each later write with a chance of one half. How many of these there were, and how many were lost.
    ///
    /// # Panics
    /// If the image cannot be written.
    pub fn cut(&self, count: usize, random: &mut Random, image: &Path) -> (usize, usize) {
        self.cut_by_a_liar(&[], count, random, image)
    }

    /// As [`WriteLog::cut`], with a device that lies: of what was written to these sectors each write is there with a
    /// chance of one half, flushed or not.
    ///
    /// # Panics
    /// If the image cannot be written.
    pub fn cut_by_a_liar(
        &self,
        lies: &[Range<u64>],
        count: usize,
        random: &mut Random,
        image: &Path,
    ) -> (usize, usize) {
        let before = &self.entries[..count];
        let flushed = before.iter().rposition(|entry| entry.what == What::Flush);
        let is_flushed = |number| flushed.is_some_and(|flushed| number < flushed);
        let is_a_lie = |to| lies.iter().any(|range| range.contains(&(to / SECTOR_BYTES)));
        let image = OpenOptions::new().write(true).open(image).expect("the image");
        let (mut loose, mut lost) = (0, 0);
        for (number, entry) in before.iter().enumerate() {
            let What::Write { at, to, bytes, is_forced } = entry.what else {
                continue;
            };
            if is_a_lie(to) || !is_flushed(number) && !is_forced {
                loose += 1;
                if random.below(2) == 0 {
                    lost += 1;
                    continue;
                }
            }
            self.copy(at..at + bytes, to, &image).expect("playing a write again");
        }
        (loose, lost)
    }

    fn copy(&self, range: Range<u64>, to: u64, image: &File) -> io::Result<()> {
        let len = usize::try_from(range.end - range.start).expect("a write that fits in memory");
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, range.start)?;
        image.write_all_at(&bytes, to)
    }

    /// Random moments in the log, in order, the last one its end.
    pub fn moments(&self, count: usize, random: &mut Random) -> BTreeSet<usize> {
        let mut moments = BTreeSet::from([self.entries.len()]);
        while moments.len() < count.min(self.entries.len()) {
            moments.insert(1 + random.below(self.entries.len()));
        }
        moments
    }

    /// Where in the log the first `count` operations end.
    #[must_use]
    pub fn position(&self, count: usize) -> u64 {
        count.checked_sub(1).map_or(0, |last| self.entries[last].end)
    }
}

/// The four numbers at the beginning of a sector.
fn head(file: &File, at: u64) -> [u64; 4] {
    let mut bytes = [0; 32];
    file.read_exact_at(&mut bytes, at).expect("a sector of the log");
    let (numbers, _) = bytes.as_chunks::<8>();
    let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
    [(); 4].map(|()| numbers.next().expect("32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(numbers: [u64; 4]) -> Vec<u8> {
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.resize(512, 0);
        bytes
    }

    fn log_of(entries: &[(u64, u8)]) -> (tempfile::NamedTempFile, WriteLog) {
        let mut bytes = sector([MAGIC, 1, 0, 512]);
        for (to, fill) in entries {
            if *fill == 0 {
                bytes.extend(sector([0, 0, FLUSH, 0]));
            } else {
                bytes.extend(sector([*to, 1, 0, 0]));
                bytes.extend([*fill; 512]);
            }
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let log = WriteLog::read(file.path());
        (file, log)
    }

    #[test]
    fn what_is_flushed_stays_and_what_is_not_may_go() {
        let (_file, log) = log_of(&[(0, 1), (1, 2), (0, 0), (0, 3), (2, 4)]);
        assert_eq!((log.entries().len(), log.flushes()), (5, 1));
        let mut seen = BTreeSet::new();
        for seed in 0..32 {
            let image = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(image.path(), [9; 1536]).unwrap();
            let (loose, _lost) = log.cut(5, &mut Random::seeded(seed), image.path());
            assert_eq!(loose, 2);
            let bytes = std::fs::read(image.path()).unwrap();
            seen.insert([bytes[0], bytes[512], bytes[1024]]);
        }
        assert_eq!(seen, BTreeSet::from([[1, 2, 9], [3, 2, 9], [1, 2, 4], [3, 2, 4]]));
        let image = tempfile::NamedTempFile::new().unwrap();
        let mut random = Random::seeded(0);
        assert_eq!(log.cut(3, &mut random, image.path()), (0, 0));
        let lies = [Range { start: 1, end: 2 }];
        assert_eq!(log.cut_by_a_liar(&lies, 3, &mut random, image.path()).0, 1);
    }

    #[test]
    fn moments_are_different_and_end_with_the_end() {
        let (_file, log) = log_of(&[(0, 1), (0, 0), (0, 2)]);
        assert_eq!(log.moments(9, &mut Random::seeded(1)), BTreeSet::from([1, 2, 3]));
        assert!(log.moments(2, &mut Random::seeded(1)).contains(&3));
        assert_eq!((log.position(0), log.position(2)), (0, 512 * 4));
    }
}
