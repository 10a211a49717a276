//! Files that are zeros for the most part, packed: their length (8 bytes, little-endian), then each run of other bytes as
//! its place (8), its length (4) and itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// What is not zero is told apart in pieces of this size. Divides [`CHUNK`].
const PIECE: usize = 64;
/// Read at a time.
const CHUNK: usize = 1 << 20;

/// Packs a file.
///
/// # Errors
/// As `read(2)`.
///
/// # Panics
/// If a run is 4 GiB long.
pub fn pack(file: &File) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut chunk = vec![0; CHUNK];
    for start in (0..len).step_by(CHUNK) {
        let here = usize::try_from(len - start).map_or(CHUNK, |left| left.min(CHUNK));
        file.read_exact_at(&mut chunk[..here], start)?;
        if chunk[..here].iter().all(|byte| *byte == 0) {
            continue;
        }
        for (offset, piece) in (start..).step_by(PIECE).zip(chunk[..here].chunks(PIECE)) {
            if piece.iter().all(|byte| *byte == 0) {
                continue;
            }
            match runs.last_mut() {
                Some((at, run)) if *at + run.len() as u64 == offset => run.extend(piece),
                _ => runs.push((offset, piece.to_vec())),
            }
        }
    }
    let mut packed = len.to_le_bytes().to_vec();
    for (offset, run) in runs {
        packed.extend(offset.to_le_bytes());
        packed.extend(u32::try_from(run.len()).expect("a run below 4 GiB").to_le_bytes());
        packed.extend(run);
    }
    Ok(packed)
}

/// The length of the file that was packed.
///
/// # Panics
/// If `packed` is none.
#[must_use]
pub fn len_bytes(packed: &[u8]) -> u64 {
    u64::from_le_bytes(*packed.first_chunk().expect("a length"))
}

/// Writes what was packed into a file that is as long and empty.
///
/// # Errors
/// As `write(2)`.
///
/// # Panics
/// If `packed` is cut off.
pub fn unpack(packed: &[u8], into: &File) -> io::Result<()> {
    let (_len, mut rest) = packed.split_first_chunk::<8>().expect("a length");
    while !rest.is_empty() {
        let (offset, after) = rest.split_first_chunk().expect("the place of a run");
        let (len, after) = after.split_first_chunk().expect("the length of a run");
        let len = u32::from_le_bytes(*len) as usize;
        let (run, after) = after.split_at(len);
        into.write_all_at(run, u64::from_le_bytes(*offset))?;
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back_whole_and_its_holes_take_nothing() {
        let len = 3 * CHUNK as u64 + 17;
        let file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        for (offset, bytes) in
            [(0, vec![1; 200]), (CHUNK as u64 - 32, vec![2; 64]), (len - 1, vec![3])]
        {
            file.write_all_at(&bytes, offset).unwrap();
        }
        let packed = pack(&file).unwrap();
        assert!(packed.len() < 1_000, "{}", packed.len());
        assert_eq!(len_bytes(&packed), len);
        let again = tempfile::tempfile().unwrap();
        again.set_len(len).unwrap();
        unpack(&packed, &again).unwrap();
        let read = |file: &File| {
            let mut bytes = vec![0; usize::try_from(len).unwrap()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        assert!(read(&file) == read(&again));
        let empty = tempfile::tempfile().unwrap();
        assert_eq!(pack(&empty).unwrap(), [0; 8]);
    }
}
