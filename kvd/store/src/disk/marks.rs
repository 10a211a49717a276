//! What a row knows of the tier below, in one byte that a hit has in its hands anyway.

/// How the bytes of a row relate to devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// Not to be written: its class never leaves the arena, there is no device, or it was given up.
    Never,
    /// On no device yet, after so many writes that failed.
    Dirty { failures: u8 },
    /// Being written.
    Spilling,
    /// On a device: device and entry of the row say where.
    Clean,
    /// On no device any more, which had to make room. It is written again only before it must
    /// leave the arena, or by a drain.
    Displaced,
}

/// Writes of one row that may fail before it is given up.
pub(crate) const FAILURES_MAX: u8 = 3;

/// [`Copied`] and four flags.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks(u8);

const COPIED: u8 = 0b111;
const DIRTY: u8 = 1;
const SPILLING: u8 = DIRTY + FAILURES_MAX;
const CLEAN: u8 = SPILLING + 1;
const DISPLACED: u8 = CLEAN + 1;
const TOUCHED: u8 = 1 << 3;
const LANDED: u8 = 1 << 4;
const OLDER: u8 = 1 << 5;
const HINTED: u8 = 1 << 6;

impl Marks {
    pub(crate) const fn new(copied: Copied) -> Self {
        Self(code(copied))
    }

    pub(crate) const fn copied(self) -> Copied {
        match self.0 & COPIED {
            0 => Copied::Never,
            CLEAN => Copied::Clean,
            DISPLACED => Copied::Displaced,
            SPILLING => Copied::Spilling,
            code => Copied::Dirty { failures: code - DIRTY },
        }
    }

    pub(crate) const fn set_copied(&mut self, copied: Copied) {
        self.0 = self.0 & !COPIED | code(copied);
    }

    /// Nothing to do with any device.
    pub(crate) const fn is_plain(self) -> bool {
        self.0 & !TOUCHED == 0
    }

    pub(crate) const fn is_dirty(self) -> bool {
        matches!(self.copied(), Copied::Dirty { .. })
    }

    /// Fetched since it was stored, or stored before.
    pub(crate) const fn touched(self) -> bool {
        self.0 & TOUCHED != 0
    }

    pub(crate) const fn set_touched(&mut self) {
        self.0 |= TOUCHED;
    }

    /// Loaded, and pinned for sessions that have not fetched it yet.
    pub(crate) const fn landed(self) -> bool {
        self.0 & LANDED != 0
    }

    pub(crate) const fn set_landed(&mut self, landed: bool) {
        self.set(LANDED, landed);
    }

    /// Stored while a device was being recovered: an older value may come up there.
    pub(crate) const fn may_have_older(self) -> bool {
        self.0 & OLDER != 0
    }

    pub(crate) const fn set_may_have_older(&mut self, older: bool) {
        self.set(OLDER, older);
    }

    /// Loaded by a hint: its time to live is that of the copy, not that of the block.
    pub(crate) const fn hinted(self) -> bool {
        self.0 & HINTED != 0
    }

    pub(crate) const fn set_hinted(&mut self, hinted: bool) {
        self.set(HINTED, hinted);
    }

    const fn set(&mut self, flag: u8, on: bool) {
        if on {
            self.0 |= flag;
        } else {
            self.0 &= !flag;
        }
    }
}

impl core::fmt::Debug for Marks {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "{:?} {:04b}", self.copied(), self.0 >> 3)
    }
}

const fn code(copied: Copied) -> u8 {
    match copied {
        Copied::Never => 0,
        Copied::Dirty { failures } => {
            assert!(failures < FAILURES_MAX, "given up before");
            DIRTY + failures
        }
        Copied::Spilling => SPILLING,
        Copied::Clean => CLEAN,
        Copied::Displaced => DISPLACED,
    }
}

#[cfg(test)]
mod tests {
    use super::{Copied, FAILURES_MAX, Marks};

    #[test]
    fn states_and_flags_do_not_mix() {
        let dirty = (0..FAILURES_MAX).map(|failures| Copied::Dirty { failures });
        let others = [Copied::Never, Copied::Spilling, Copied::Clean, Copied::Displaced];
        let all = others.into_iter().chain(dirty);
        for copied in all.clone() {
            for other in all.clone() {
                let mut marks = Marks::new(copied);
                marks.set_touched();
                marks.set_landed(true);
                marks.set_may_have_older(true);
                marks.set_hinted(true);
                marks.set_copied(other);
                assert_eq!(marks.copied(), other);
                assert!(marks.touched() && marks.landed() && marks.hinted());
                marks.set_landed(false);
                marks.set_hinted(false);
                assert!(!marks.landed() && !marks.hinted() && marks.may_have_older());
                marks.set_may_have_older(false);
                assert_eq!((marks.copied(), marks.may_have_older()), (other, false));
            }
        }
    }
}
