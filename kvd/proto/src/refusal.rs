//! Why the daemon did not grant or keep something.

/// A typed no. An expected answer, not an error: the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The daemon, or this connection, has no shared arena.
    NoArena,
    /// Larger than the arena can ever hold.
    Oversize,
    /// Nothing that may be evicted frees enough room.
    ArenaFull,
    /// This session is at its cap of leases, tickets or bytes in flight.
    SessionLimit,
    /// Bytes of lost peers whose end nobody can observe fill their bound.
    QuarantineFull,
    /// Only blocks of a higher class could make room.
    HigherPriority,
    /// The key is stored with a higher class and keeps it.
    Downgrade,
    /// No such ticket, or it is finished.
    UnknownTicket,
    /// The ticket belongs to another session.
    WrongOwner,
    /// More bytes committed than were reserved.
    OversizeCommit,
    /// Key or namespace beyond the store's limits.
    BadKey,
    /// Larger than the memory budget.
    ValueLargerThanStore,
    /// The daemon is at a limit and sheds work.
    Shed,
    /// The block was to be acknowledged once it is durable, and no device made it so. It may be in memory.
    NotDurable,
}

impl Refusal {
    /// Every refusal, in the order of the codes.
    pub const ALL: [Self; 14] = [
        Self::NoArena,
        Self::Oversize,
        Self::ArenaFull,
        Self::SessionLimit,
        Self::QuarantineFull,
        Self::HigherPriority,
        Self::Downgrade,
        Self::UnknownTicket,
        Self::WrongOwner,
        Self::OversizeCommit,
        Self::BadKey,
        Self::ValueLargerThanStore,
        Self::Shed,
        Self::NotDurable,
    ];

    /// The byte in an `outcomes` column of protocol 2; never 0, which means granted.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::NoArena => 1,
            Self::Oversize => 2,
            Self::ArenaFull => 3,
            Self::SessionLimit => 4,
            Self::QuarantineFull => 5,
            Self::HigherPriority => 6,
            Self::Downgrade => 7,
            Self::UnknownTicket => 8,
            Self::WrongOwner => 9,
            Self::OversizeCommit => 10,
            Self::BadKey => 11,
            Self::ValueLargerThanStore => 12,
            Self::Shed => 13,
            Self::NotDurable => 14,
        }
    }

    /// The refusal with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.code() == code)
    }

    /// The refusal with this code; one that a later release added reads as [`Refusal::Shed`].
    #[must_use]
    pub fn from_code_or_shed(code: u8) -> Self {
        Self::from_code(code).unwrap_or(Self::Shed)
    }

    /// The word for protocol 2, logs and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoArena => "no_arena",
            Self::Oversize => "oversize",
            Self::ArenaFull => "arena_full",
            Self::SessionLimit => "session_limit",
            Self::QuarantineFull => "quarantine_full",
            Self::HigherPriority => "higher_priority",
            Self::Downgrade => "downgrade",
            Self::UnknownTicket => "unknown_ticket",
            Self::WrongOwner => "wrong_owner",
            Self::OversizeCommit => "oversize_commit",
            Self::BadKey => "bad_key",
            Self::ValueLargerThanStore => "value_larger_than_store",
            Self::Shed => "shed",
            Self::NotDurable => "not_durable",
        }
    }

    /// The reason token of a protocol-1 `set_ack` or `batch_set_ack`.
    ///
    /// The reference knows three of them; for refusals that it cannot have, our own word is sent
    /// (its clients log the token and never branch on it).
    #[must_use]
    pub const fn v1_set_token(self) -> &'static str {
        match self {
            Self::Downgrade => "retention_downgrade_not_allowed",
            Self::ValueLargerThanStore | Self::Oversize => "value_larger_than_store",
            Self::HigherPriority => "would_displace_higher_priority",
            Self::ArenaFull
            | Self::NoArena
            | Self::SessionLimit
            | Self::QuarantineFull
            | Self::UnknownTicket
            | Self::WrongOwner
            | Self::OversizeCommit
            | Self::BadKey
            | Self::Shed
            | Self::NotDurable => self.as_str(),
        }
    }

    /// The reason token of a protocol-1 `set_reserve_response`.
    #[must_use]
    pub const fn v1_reserve_token(self) -> &'static str {
        match self {
            Self::ArenaFull | Self::HigherPriority => "arena_full_no_evictable",
            Self::Oversize | Self::ValueLargerThanStore => "oversize",
            Self::NoArena
            | Self::SessionLimit
            | Self::QuarantineFull
            | Self::Downgrade
            | Self::UnknownTicket
            | Self::WrongOwner
            | Self::OversizeCommit
            | Self::BadKey
            | Self::Shed
            | Self::NotDurable => self.as_str(),
        }
    }

    /// The reason token of a protocol-1 `set_commit_response`; at most 60 characters follow
    /// `commit_failed:`.
    #[must_use]
    pub const fn v1_commit_token(self) -> &'static str {
        match self {
            Self::NoArena => "no_arena",
            Self::UnknownTicket => "unknown_lease",
            Self::WrongOwner => "wrong_owner",
            Self::OversizeCommit | Self::Oversize => "oversize_commit",
            Self::ArenaFull => "commit_failed:arena_full",
            Self::SessionLimit => "commit_failed:session_limit",
            Self::QuarantineFull => "commit_failed:quarantine_full",
            Self::HigherPriority => "commit_failed:would_displace_higher_priority",
            Self::Downgrade => "commit_failed:retention_downgrade_not_allowed",
            Self::BadKey => "commit_failed:bad_key",
            Self::ValueLargerThanStore => "commit_failed:value_larger_than_store",
            Self::Shed => "commit_failed:shed",
            Self::NotDurable => "commit_failed:not_durable",
        }
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Refusal;
    use std::collections::BTreeSet;

    #[test]
    fn codes_and_words_are_distinct_and_round_trip() {
        let words: BTreeSet<&str> = Refusal::ALL.iter().map(|refusal| refusal.as_str()).collect();
        assert_eq!(words.len(), Refusal::ALL.len());
        let known: Vec<Refusal> = (0..=u8::MAX).filter_map(Refusal::from_code).collect();
        assert_eq!(known, Refusal::ALL, "codes are dense from 1, in this order");
        assert_eq!(Refusal::from_code(0), None);
    }

    #[test]
    fn reference_tokens_stay_as_they_are() {
        assert_eq!(Refusal::Downgrade.v1_set_token(), "retention_downgrade_not_allowed");
        assert_eq!(Refusal::ValueLargerThanStore.v1_set_token(), "value_larger_than_store");
        assert_eq!(Refusal::HigherPriority.v1_set_token(), "would_displace_higher_priority");
        assert_eq!(Refusal::NoArena.v1_reserve_token(), "no_arena");
        assert_eq!(Refusal::Oversize.v1_reserve_token(), "oversize");
        assert_eq!(Refusal::ArenaFull.v1_reserve_token(), "arena_full_no_evictable");
        assert_eq!(Refusal::NoArena.v1_commit_token(), "no_arena");
        assert_eq!(Refusal::UnknownTicket.v1_commit_token(), "unknown_lease");
        assert_eq!(Refusal::WrongOwner.v1_commit_token(), "wrong_owner");
        assert_eq!(Refusal::OversizeCommit.v1_commit_token(), "oversize_commit");
        for refusal in Refusal::ALL {
            if let Some(detail) = refusal.v1_commit_token().strip_prefix("commit_failed:") {
                assert!(detail.len() <= 60);
            }
        }
    }
}
