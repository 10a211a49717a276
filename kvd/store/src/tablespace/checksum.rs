//! The check of everything in journals, snapshots and superblocks: CRC-64/NVME, as for blocks.

use crc_fast::CrcAlgorithm;

/// Magic word and checksum in front of every checked piece.
pub(super) const UNCHECKED_BYTES: usize = 16;

/// Puts the checksum of all that follows behind the magic word.
///
/// # Panics
/// If the piece is shorter than those two.
pub(super) fn seal(piece: &mut [u8]) {
    let (unchecked, checked) = piece.split_at_mut(UNCHECKED_BYTES);
    unchecked[8..].copy_from_slice(&crc64(checked).to_le_bytes());
}

pub(crate) fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

#[cfg(test)]
mod tests {
    use super::crc64;

    #[test]
    fn it_is_the_published_function() {
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
    }
}
