//! Tiers below the accelerator, as they are named on the wire.

/// A place that the daemon can serve a block from.
///
/// Codes follow the usual numbering of cache levels; level 1 (accelerator memory) belongs to the
/// engine and never appears here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Tier {
    /// The shared arena in host memory.
    Host = 2,
    /// Local or mounted files.
    Disk = 3,
    /// A distributed store.
    Remote = 4,
}

impl Tier {
    /// Every tier, fastest first.
    pub const ALL: [Self; 3] = [Self::Host, Self::Disk, Self::Remote];

    /// The byte that stands for the tier in protocol 2 (2, 3 or 4; 0 means "in no tier").
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Host => 2,
            Self::Disk => 3,
            Self::Remote => 4,
        }
    }

    /// The tier with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.code() == code)
    }

    /// A word for people and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Disk => "disk",
            Self::Remote => "remote",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tier;

    #[test]
    fn codes_round_trip_and_nothing_else_parses() {
        let known: Vec<Tier> = (0..=u8::MAX).filter_map(Tier::from_code).collect();
        assert_eq!(known, Tier::ALL);
    }
}
