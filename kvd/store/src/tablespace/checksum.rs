//! The check of everything in journals, snapshots and superblocks: CRC-64/NVME, as for blocks.

use crc_fast::CrcAlgorithm;

pub(super) fn crc64(bytes: &[u8]) -> u64 {
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
