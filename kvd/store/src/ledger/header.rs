//! The first page of a ledger: what it is about, and how far its regions were ever used.
//!
//! The upper part is written once, when the ledger is made. The *marks* below it move: each is one
//! word that carries its own check.

use super::LedgerFault;
use super::layout::LedgerLayout;
use super::writes::check;
use crate::tablespace::crc64;

/// Version of everything that is described in this room.
pub const LEDGER_VERSION: u32 = 1;

/// Bytes of [`LedgerHeader::encode`]'s page.
pub const LEDGER_HEADER_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"IKVDLEDG";
/// Bytes that the checksum behind them covers.
const CHECKED_BYTES: usize = 80;
const MARKS_OFFSET: u64 = 512;
/// Bits of a mark's value; the rest is its check.
const VALUE_BITS: u32 = 40;

/// What a ledger says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerHeader {
    /// Random: tells which arena it is about.
    pub arena_id: [u8; 16],
    /// Size of that arena.
    pub arena_bytes: u64,
    /// The epoch of the daemon that made it.
    pub epoch: u64,
    /// How it is laid out.
    pub layout: LedgerLayout,
}

impl LedgerHeader {
    /// The first page of an empty ledger. All that follows it is zeros.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let LedgerLayout { sessions, rights, reads, namespaces, rows, tails } = self.layout;
        let mut page = Vec::with_capacity(LEDGER_HEADER_BYTES);
        page.extend(MAGIC);
        page.extend(LEDGER_VERSION.to_le_bytes());
        page.extend([0; 4]);
        page.extend(self.arena_id);
        page.extend(self.arena_bytes.to_le_bytes());
        page.extend(self.epoch.to_le_bytes());
        for slots in [sessions, rights, reads, namespaces, rows, tails] {
            page.extend(slots.to_le_bytes());
        }
        page.resize(CHECKED_BYTES, 0);
        page.extend(crc64(&page).to_le_bytes());
        page.resize(LEDGER_HEADER_BYTES, 0);
        for mark in Mark::ALL {
            let at = usize::try_from(mark.offset()).unwrap_or(0);
            page[at..at + 8].copy_from_slice(&mark.word(0).to_le_bytes());
        }
        page
    }

    /// Reads what [`Self::encode`] wrote.
    ///
    /// # Errors
    /// If it is not a ledger, one of another version, or damaged.
    pub fn decode(page: &[u8]) -> Result<Self, LedgerFault> {
        if page.len() < LEDGER_HEADER_BYTES {
            return Err(LedgerFault::TooShort { bytes: page.len() as u64 });
        }
        let (checked, rest) = page.split_at(CHECKED_BYTES);
        let mut reader = crate::tablespace::Reader::new(checked);
        let mut parts = || -> Option<_> {
            let (magic, version) = (reader.array::<8>()?, reader.u32()?);
            let _reserved = reader.u32()?;
            let (arena_id, arena_bytes, epoch) = (reader.array()?, reader.u64()?, reader.u64()?);
            let layout = LedgerLayout {
                sessions: reader.u32()?,
                rights: reader.u32()?,
                reads: reader.u32()?,
                namespaces: reader.u32()?,
                rows: reader.u32()?,
                tails: reader.u32()?,
            };
            Some((magic, version, Self { arena_id, arena_bytes, epoch, layout }))
        };
        let (magic, version, header) = parts().ok_or(LedgerFault::Damaged)?;
        if magic != MAGIC {
            return Err(LedgerFault::NoLedger);
        }
        if version != LEDGER_VERSION {
            return Err(LedgerFault::Version { found: version });
        }
        if !rest.starts_with(&crc64(checked).to_le_bytes()) || !header.layout.is_sound() {
            return Err(LedgerFault::Damaged);
        }
        Ok(header)
    }
}

/// A number in the first page that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Slots of this region from here on were never used; likewise the next ones.
    Sessions,
    Rights,
    Reads,
    Namespaces,
    Rows,
    Tails,
    /// The latest version of a header in the arena.
    Version,
    /// Granules of 64 bytes of the arena that have been touched.
    Ready,
    /// The next session's id.
    NextSession,
}

impl Mark {
    pub(super) const COUNT: usize = 9;
    pub(super) const ALL: [Self; Self::COUNT] = [
        Self::Sessions,
        Self::Rights,
        Self::Reads,
        Self::Namespaces,
        Self::Rows,
        Self::Tails,
        Self::Version,
        Self::Ready,
        Self::NextSession,
    ];

    pub(super) const fn offset(self) -> u64 {
        MARKS_OFFSET + 8 * self as u64
    }

    /// The word that says `value`, which is cut to what a mark can say.
    pub(super) const fn word(self, value: u64) -> u64 {
        let value = value & ((1 << VALUE_BITS) - 1);
        let sum = check(self.offset(), [value]);
        value | sum >> VALUE_BITS << VALUE_BITS
    }

    /// The value that a word says, if it is whole.
    pub(super) const fn value(self, word: u64) -> Option<u64> {
        let value = word & ((1 << VALUE_BITS) - 1);
        if self.word(value) == word { Some(value) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::{LEDGER_HEADER_BYTES, LedgerHeader, Mark};
    use crate::ledger::{LedgerFault, LedgerLayout};

    fn header() -> LedgerHeader {
        let layout = LedgerLayout::for_arena(1 << 30, 100);
        LedgerHeader { arena_id: [7; 16], arena_bytes: 1 << 30, epoch: 5, layout }
    }

    #[test]
    fn a_header_comes_back_and_no_other_is_believed() {
        let page = header().encode();
        assert_eq!(page.len(), LEDGER_HEADER_BYTES);
        assert_eq!(LedgerHeader::decode(&page), Ok(header()));
        for at in 0..88 {
            let mut damaged = page.clone();
            damaged[at] ^= 1;
            assert!(LedgerHeader::decode(&damaged).is_err(), "byte {at}");
        }
        let mut later = page.clone();
        later[8] = 2;
        assert_eq!(LedgerHeader::decode(&later), Err(LedgerFault::Version { found: 2 }));
        assert_eq!(LedgerHeader::decode(&[0; 4096]), Err(LedgerFault::NoLedger));
        let short = LedgerHeader::decode(&page[..100]);
        assert_eq!(short, Err(LedgerFault::TooShort { bytes: 100 }));
    }

    #[test]
    fn a_mark_is_whole_or_nothing() {
        for mark in Mark::ALL {
            let word = mark.word(123_456);
            assert_eq!(mark.value(word), Some(123_456));
            for bit in 0..64 {
                assert_eq!(mark.value(word ^ (1 << bit)), None);
            }
            assert_eq!(mark.value(0), None);
        }
        assert_eq!(Mark::Rows.value(Mark::Tails.word(1)), None);
    }
}
