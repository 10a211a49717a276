//! Geometry: how many bytes a payload occupies, where they may begin, where its header stands.
//!
//! ```text
//! small (payload < 64 KiB)                     large
//!
//! |<- 64 ->|<- length, up to 64 ->|            |<-- 4 KiB -->|<- length, up to 4 KiB ->|
//! [ ....HDR|payload......._pad____]            [ .........HDR|payload..........._pad____]
//! ^ multiple of 64                             ^ multiple of 4 KiB
//! ```
//!
//! The header of 16 bytes stands right before the payload in both. Large payloads are aligned
//! for direct I/O; small ones need not be and so lose little. Small extents are carved from the
//! low end of a hole and large ones from its high end, so that sizes keep apart by themselves.
//!
//! The figures are a value, not constants: files are carved by the same code with other figures.

/// Figures of one kind of storage. All are powers of two, `granule` divides `large_align`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Every extent starts at and extends over a multiple of this.
    pub(crate) granule: u64,
    /// Payloads of at least this size are laid out as large.
    pub(crate) large_from: u64,
    /// Alignment of large extents, and the unit their payloads are rounded up to.
    pub(crate) large_align: u64,
    /// Bytes before a small payload.
    pub(crate) small_header: u64,
    /// Bytes before a large payload.
    pub(crate) large_header: u64,
}

/// What one payload needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Length of the extent, header and padding included.
    pub(crate) bytes: u64,
    /// The extent starts at a multiple of this.
    pub(crate) align: u64,
    /// Laid out as large.
    pub(crate) large: bool,
}

impl Layout {
    /// The shared arena.
    pub(crate) const ARENA: Self = Self {
        granule: 64,
        large_from: 64 << 10,
        large_align: 4 << 10,
        small_header: 64,
        large_header: 4 << 10,
    };

    /// A device: whole blocks for everything, no headers, from the low end up, so that what is
    /// written one after the other lies one after the other.
    pub(crate) const TABLESPACE: Self = Self {
        granule: 4 << 10,
        large_from: u64::MAX,
        large_align: 4 << 10,
        small_header: 0,
        large_header: 0,
    };

    /// What a payload of `len` bytes needs.
    pub(crate) const fn footprint(&self, len: u64) -> Footprint {
        let large = len >= self.large_from;
        Footprint {
            bytes: self.bytes_for(len, large),
            align: if large { self.large_align } else { self.granule },
            large,
        }
    }

    /// Length of an extent of the given kind around a payload of `len` bytes.
    pub(crate) const fn bytes_for(&self, len: u64, large: bool) -> u64 {
        let unit = if large { self.large_align } else { self.granule };
        self.header(large) + len.next_multiple_of(unit)
    }

    /// Bytes before the payload.
    pub(crate) const fn header(&self, large: bool) -> u64 {
        if large { self.large_header } else { self.small_header }
    }

    /// Where an extent goes in the free range `start..end`, if it fits.
    pub(crate) const fn place(&self, start: u64, end: u64, need: Footprint) -> Option<u64> {
        if end - start < need.bytes {
            return None;
        }
        if !need.large {
            return Some(start);
        }
        let high = end - need.bytes;
        let at = high - high % need.align;
        if at >= start { Some(at) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    const KIB: u64 = 1 << 10;

    #[test]
    fn payload_positions_keep_their_alignment() {
        let layout = Layout::ARENA;
        for (len, bytes, align) in [
            (0, 64, 64),
            (1, 128, 64),
            (64, 128, 64),
            (4 * KIB, 4 * KIB + 64, 64),
            (64 * KIB - 1, 64 * KIB + 64, 64),
            (64 * KIB, 68 * KIB, 4 * KIB),
            (64 * KIB + 1, 72 * KIB, 4 * KIB),
        ] {
            let need = layout.footprint(len);
            assert_eq!((need.bytes, need.align), (bytes, align), "{len}");
            assert_eq!((need.bytes - layout.header(need.large)) % align, 0);
        }
    }

    #[test]
    fn small_goes_low_and_large_goes_high() {
        let layout = Layout::ARENA;
        let (small, large) = (layout.footprint(100), layout.footprint(64 * KIB));
        assert_eq!(layout.place(64, 1 << 20, small), Some(64));
        assert_eq!(layout.place(64, (1 << 20) + 64, large), Some((1 << 20) - 68 * KIB));
        assert_eq!(layout.place(64, 68 * KIB + 64, large), None, "room, but not aligned");
        assert_eq!(layout.place(0, 68 * KIB, large), Some(0));
    }
}
