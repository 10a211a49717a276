//! Why a lookup found nothing.

use crate::retention::Retention;

/// The reason of a miss. Everything that goes wrong below the engine ends up as one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MissReason {
    /// Not stored, as far as the daemon's bounded memory of the past reaches.
    NeverStored,
    /// Made room for something else while it was of this class.
    Evicted(Retention),
    /// Its time to live ran out.
    Expired,
    /// Removed by a clear.
    Cleared,
    /// The same key bytes are stored, but under another model or compatibility key.
    OtherNamespace,
    /// A checksum failed; the block was dropped.
    Corrupt,
    /// The tier that holds it would answer too late.
    Deadline,
    /// Present perhaps, but the daemon is at a limit and does not look or lend.
    Shed,
}

impl MissReason {
    /// Every reason, one per retention class for evictions.
    pub const ALL: [Self; 11] = [
        Self::NeverStored,
        Self::Evicted(Retention::None),
        Self::Evicted(Retention::Ephemeral),
        Self::Evicted(Retention::Short),
        Self::Evicted(Retention::Long),
        Self::Expired,
        Self::Cleared,
        Self::OtherNamespace,
        Self::Corrupt,
        Self::Deadline,
        Self::Shed,
    ];

    /// The byte in an `outcomes` column; never 0, which means present.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::NeverStored => 1,
            Self::Expired => 2,
            Self::Cleared => 3,
            Self::OtherNamespace => 4,
            Self::Corrupt => 5,
            Self::Deadline => 6,
            Self::Shed => 7,
            Self::Evicted(Retention::None) => 0x10,
            Self::Evicted(Retention::Ephemeral) => 0x11,
            Self::Evicted(Retention::Short) => 0x12,
            Self::Evicted(Retention::Long) => 0x13,
        }
    }

    /// The reason with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }

    /// The reason with this code; one that a later release added reads as [`MissReason::Shed`].
    #[must_use]
    pub fn from_code_or_shed(code: u8) -> Self {
        Self::from_code(code).unwrap_or(Self::Shed)
    }

    /// The word for logs, labels and people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NeverStored => "never_stored",
            Self::Evicted(Retention::None) => "evicted_none",
            Self::Evicted(Retention::Ephemeral) => "evicted_ephemeral",
            Self::Evicted(Retention::Short) => "evicted_short",
            Self::Evicted(Retention::Long) => "evicted_long",
            Self::Expired => "expired",
            Self::Cleared => "cleared",
            Self::OtherNamespace => "other_namespace",
            Self::Corrupt => "corrupt",
            Self::Deadline => "deadline",
            Self::Shed => "shed",
        }
    }
}

impl core::fmt::Display for MissReason {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::MissReason;
    use std::collections::BTreeSet;

    #[test]
    fn codes_and_words_are_distinct_and_round_trip() {
        let codes: BTreeSet<u8> = MissReason::ALL.iter().map(|reason| reason.code()).collect();
        let words: BTreeSet<&str> = MissReason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(codes.len(), MissReason::ALL.len());
        assert_eq!(words.len(), MissReason::ALL.len());
        assert!(!codes.contains(&0), "0 means present");
        for code in 0..=u8::MAX {
            assert_eq!(MissReason::from_code(code).is_some(), codes.contains(&code));
        }
        for reason in MissReason::ALL {
            assert_eq!(MissReason::from_code(reason.code()), Some(reason));
        }
    }
}
