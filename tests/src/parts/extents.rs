//! Where a file lies on its device.

use std::ops::Range;
use std::path::Path;

use super::tool;

/// What devices count in.
pub const SECTOR_BYTES: u64 = 512;

/// A stretch of a file that lies in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file, in bytes.
    pub file_offset: u64,
    /// Where it begins on the device, in bytes.
    pub device_offset: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
}

impl Extent {
    /// Its sectors on the device.
    #[must_use]
    pub fn sectors(&self) -> Range<u64> {
        let begin = self.device_offset / SECTOR_BYTES;
        begin..begin + self.bytes.div_ceil(SECTOR_BYTES)
    }
}

/// All of them, in the order of the file.
///
/// # Panics
/// If the file system does not say.
#[must_use]
pub fn extents_of(path: &Path) -> Vec<Extent> {
    let words = ["-s", "-v", "-b512"].map(AsRef::as_ref);
    parse(&tool::run("filefrag", words.into_iter().chain([path.as_os_str()])))
}

/// The sectors under `range` of a file.
///
/// # Panics
/// If a part of it has no place.
#[must_use]
pub fn sectors_of(path: &Path, range: Range<u64>) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut at = range.start;
    for extent in extents_of(path) {
        let end = extent.file_offset + extent.bytes;
        if at < range.end && (extent.file_offset..end).contains(&at) {
            let begin = extent.device_offset + (at - extent.file_offset);
            let len = range.end.min(end) - at;
            found.push(begin / SECTOR_BYTES..(begin + len).div_ceil(SECTOR_BYTES));
            at += len;
        }
    }
    assert!(at >= range.end, "{range:?} of {} ends at {at}", path.display());
    found
}

/// Lines such as `   0:        0..   16383:      71712..     88095:  16384:             unwritten`.
fn parse(text: &str) -> Vec<Extent> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Extent> {
    let mut columns = line.split(':').map(str::trim);
    columns.next()?.parse::<u64>().ok()?;
    let mut range = || {
        let (begin, end) = columns.next()?.split_once("..")?;
        Some((begin.trim().parse::<u64>().ok()?, end.trim().parse::<u64>().ok()?))
    };
    let (file, device) = (range()?, range()?);
    Some(Extent {
        file_offset: file.0 * SECTOR_BYTES,
        device_offset: device.0 * SECTOR_BYTES,
        bytes: (file.1 + 1 - file.0) * SECTOR_BYTES,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_extents_are_read_and_others_are_not() {
        let text = "Filesystem type is: ef53\n\
                    File size of f is 2097152 (4096 blocks of 512 bytes)\n\
                    \x20ext:     logical_offset:        physical_offset: length:   expected: flags:\n\
                    \x20  0:        0..    1023:      71712..     72735:   1024:             unwritten\n\
                    \x20  1:     1024..    4095:      80000..     83071:   3072:      72736: last,eof\n\
                    f: 2 extents found\n";
        let first = Extent { file_offset: 0, device_offset: 71_712 << 9, bytes: 1_024 << 9 };
        let second =
            Extent { file_offset: 1_024 << 9, device_offset: 80_000 << 9, bytes: 3_072 << 9 };
        assert_eq!(parse(text), [first, second]);
    }
}
