//! What a device says of itself, written once when its files are made, in two copies.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use core::fmt;

use super::bytes::Reader;
use super::checksum::{UNCHECKED_BYTES, crc64, seal};
use super::format::{BLOCK, BLOCK_BYTES, COPIES, FORMAT_VERSION, SUPERBLOCK_MAGIC};
use super::geometry::Fixed;

/// Bytes of the superblock file: both copies.
pub const SUPERBLOCK_BYTES: usize = BLOCK * COPIES;

/// Identity and fixed sizes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Random; the same on all devices that were made together.
    pub set_id: [u8; 16],
    /// Random; never the same on two devices, nor on one that is made anew.
    pub device_id: [u8; 16],
    /// Bytes of each container, a multiple of [`BLOCK_BYTES`].
    pub container_bytes: u64,
    /// Bytes of each journal, a multiple of [`BLOCK_BYTES`].
    pub journal_bytes: u64,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
}

/// Why a device's superblock is of no use. Its files are not to be touched then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockFault {
    /// Neither copy is a superblock of any version, or both are damaged.
    #[error("neither copy of the superblock is whole")]
    Damaged,
    /// Written by another release.
    #[error("the superblock has format version {found}, this release knows {FORMAT_VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// Whole, but with sizes that make no sense.
    #[error(
        "the superblock names containers of {container_bytes} bytes and journals of \
         {journal_bytes} bytes"
    )]
    Geometry {
        /// What it says.
        container_bytes: u64,
        /// What it says.
        journal_bytes: u64,
    },
}

impl Superblock {
    /// The whole file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(SUPERBLOCK_BYTES);
        copy.extend_from_slice(&SUPERBLOCK_MAGIC);
        copy.extend_from_slice(&[0; 8]);
        copy.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        copy.extend_from_slice(&[0; 4]);
        copy.extend_from_slice(&self.set_id);
        copy.extend_from_slice(&self.device_id);
        for field in [self.container_bytes, self.journal_bytes, self.created_ms] {
            copy.extend_from_slice(&field.to_le_bytes());
        }
        copy.resize(BLOCK, 0);
        seal(&mut copy);
        copy.repeat(COPIES)
    }

    /// Reads the whole file; a copy that cannot be read is given as zeros.
    ///
    /// # Errors
    /// [`SuperblockFault`] if neither copy is one that this release can use.
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockFault> {
        let copies = bytes.chunks_exact(BLOCK).take(COPIES);
        let mut fault = SuperblockFault::Damaged;
        for copy in copies {
            match Self::decode_copy(copy) {
                Ok(superblock) => return Ok(superblock),
                Err(SuperblockFault::Damaged) => {}
                Err(other) => fault = other,
            }
        }
        Err(fault)
    }

    fn decode_copy(copy: &[u8]) -> Result<Self, SuperblockFault> {
        let mut reader = Reader::new(copy);
        let damaged = SuperblockFault::Damaged;
        let magic: [u8; 8] = reader.array().ok_or(damaged)?;
        let check = reader.u64().ok_or(damaged)?;
        // Place and reach of the checksum are the same in all versions.
        let checked = copy.get(UNCHECKED_BYTES..).ok_or(damaged)?;
        if magic != SUPERBLOCK_MAGIC || crc64(checked) != check {
            return Err(damaged);
        }
        let version = reader.u32().ok_or(damaged)?;
        if version != FORMAT_VERSION {
            return Err(SuperblockFault::Version { found: version });
        }
        Self::decode_fields(&mut reader).ok_or(damaged)?.validate()
    }

    fn decode_fields(reader: &mut Reader<'_>) -> Option<Self> {
        reader.u32()?;
        Some(Self {
            set_id: reader.array()?,
            device_id: reader.array()?,
            container_bytes: reader.u64()?,
            journal_bytes: reader.u64()?,
            created_ms: reader.u64()?,
        })
    }

    fn validate(self) -> Result<Self, SuperblockFault> {
        let Self { container_bytes, journal_bytes, .. } = self;
        let is_whole = |bytes: u64| bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES);
        let journal_is_useful = (1 << 20..=1 << 40).contains(&journal_bytes);
        if !is_whole(container_bytes) || !is_whole(journal_bytes) || !journal_is_useful {
            return Err(SuperblockFault::Geometry { container_bytes, journal_bytes });
        }
        Ok(self)
    }

    /// The sizes that stay.
    #[must_use]
    pub const fn fixed(&self) -> Fixed {
        Fixed { container_bytes: self.container_bytes, journal_bytes: self.journal_bytes }
    }

    /// What tells journals and snapshots of this device from those of others, and from what a
    /// client could have written: a part of the random device id.
    #[must_use]
    pub const fn tag(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.device_id;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for Superblock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "format {FORMAT_VERSION}, set {:032x}, device {:032x}, containers of {} bytes, \
             journals of {} bytes, made at {} ms",
            u128::from_be_bytes(self.set_id),
            u128::from_be_bytes(self.device_id),
            self.container_bytes,
            self.journal_bytes,
            self.created_ms,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Superblock {
        Superblock {
            set_id: *b"0123456789abcdef",
            device_id: *b"fedcba9876543210",
            container_bytes: 1 << 30,
            journal_bytes: 1 << 20,
            created_ms: 1_700_000_000_000,
        }
    }

    #[test]
    fn one_whole_copy_is_enough() {
        let whole = some().encode();
        assert_eq!(whole.len(), 8192);
        assert_eq!(Superblock::decode(&whole), Ok(some()));
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            assert_eq!(Superblock::decode(&flipped), Ok(some()), "byte {at}");
            flipped[(at + BLOCK) % whole.len()] ^= 1;
            assert_eq!(Superblock::decode(&flipped), Err(SuperblockFault::Damaged));
        }
        for len in 0..BLOCK {
            assert_eq!(Superblock::decode(&whole[..len]), Err(SuperblockFault::Damaged));
        }
    }

    #[test]
    fn another_version_is_named_and_not_interpreted() {
        let mut copy = some().encode()[..BLOCK].to_vec();
        copy[16] = 2;
        copy[24..].fill(0xff);
        seal(&mut copy);
        assert_eq!(Superblock::decode(&copy.repeat(2)), Err(SuperblockFault::Version { found: 2 }));
    }

    #[test]
    fn sizes_without_sense_are_refused() {
        for (container_bytes, journal_bytes) in
            [(0, 1 << 20), (4095, 1 << 20), (4096, 0), (4096, 4096), (4096, (1 << 20) + 1)]
        {
            let superblock = Superblock { container_bytes, journal_bytes, ..some() };
            assert_eq!(
                Superblock::decode(&superblock.encode()),
                Err(SuperblockFault::Geometry { container_bytes, journal_bytes })
            );
        }
    }
}
