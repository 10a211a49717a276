//! The numbers of the ABI. They are stable: a number is never reused, and a new one may be added in any release.

/// Version of this interface. It changes when a function or a struct changes its meaning or its layout; functions and
/// codes may be added without. Pass it to kvd_attach, which refuses another one.
pub const KVD_ABI_VERSION: u32 = 1;

/// Flag of kvd_locate and kvd_fetch: stop after the first miss. Items behind it are KVD_MISS_NOT_ASKED.
pub const KVD_PREFIX: u32 = 1;

/// Flag of kvd_clear: every block of every model.
pub const KVD_EVERYTHING: u32 = 1;

/// Most items of one call. A call with more is KVD_STATUS_ARGUMENT.
pub const KVD_ITEMS_MAX: usize = 1 << 20;

/// Longest key in bytes.
pub const KVD_KEY_BYTES_MAX: usize = 256;

/// Bytes of a server's name, the 0 at its end included.
pub const KVD_SERVER_ID_BYTES: usize = 32;

/// Bytes of a figure's name, the 0 at its end included.
pub const KVD_STAT_NAME_BYTES: usize = 64;

/// What a call ended with. 1 to 19: the caller's side; nothing was done. 20 to 39: trouble with the daemon. 40 to 59: the
/// daemon's answer. The text behind it is kvd_last_error's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// A pointer is null or misaligned, a length or a count is impossible, a text is not UTF-8, a flag or a class is not
    /// known, a key is too long.
    Argument = 1,
    /// The handle was released, committed, cancelled or detached before, is of another kind, or never existed.
    StaleHandle = 2,
    /// The view or ticket was taken before a fork and belongs to the other process. Releasing or cancelling it here is
    /// allowed, and is nothing to the other process.
    OtherProcess = 3,
    /// Another thread is writing to the ticket.
    InUse = 4,
    /// The buffer is too small; nothing was copied.
    TooSmall = 5,
    /// There are 16 million handles of this kind.
    TooManyHandles = 6,
    /// The program was compiled against another version of the header than this library has.
    AbiVersion = 7,
    /// There is no daemon, or it is too early to look for it again.
    NotConnected = 20,
    /// The daemon went away during the call. Whether it did what was asked is unknown.
    Disconnected = 21,
    /// The deadline passed. Whether the daemon did, or still does, what was asked is unknown.
    Deadline = 22,
    /// The daemon broke the protocol, or speaks another one.
    Protocol = 23,
    /// The daemon's arena cannot be mapped.
    Mapping = 24,
    /// The daemon declined the request as a whole.
    Refused = 25,
    /// The daemon shares no arena with this client.
    NoArena = 26,
    /// A ticket of a daemon that is gone. Its room is gone too.
    StaleEpoch = 27,
    /// A ticket of an earlier connection to the same daemon. Its room is gone.
    StaleSession = 28,
    /// The daemon declined this block; the enum kvd_refusal says why.
    Declined = 40,
    /// The block is not there; the enum kvd_miss says why.
    Miss = 41,
    /// A defect of this library. What became of the call is unknown; later calls work.
    Panicked = 60,
}

impl Status {
    /// Every status, in the order of their numbers.
    pub(crate) const ALL: [Self; 20] = [
        Self::Ok,
        Self::Argument,
        Self::StaleHandle,
        Self::OtherProcess,
        Self::InUse,
        Self::TooSmall,
        Self::TooManyHandles,
        Self::AbiVersion,
        Self::NotConnected,
        Self::Disconnected,
        Self::Deadline,
        Self::Protocol,
        Self::Mapping,
        Self::Refused,
        Self::NoArena,
        Self::StaleEpoch,
        Self::StaleSession,
        Self::Declined,
        Self::Miss,
        Self::Panicked,
    ];
}

/// Why a look-up found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Miss {
    /// It is no miss: the block is there.
    None = 0,
    /// Not stored, as far as the daemon remembers.
    NeverStored = 1,
    /// Its time to live ran out.
    Expired = 2,
    /// Removed by a clear.
    Cleared = 3,
    /// Stored under the same key, but in another namespace.
    OtherNamespace = 4,
    /// Its checksum was wrong; it was dropped.
    Corrupt = 5,
    /// No answer in time, from the daemon or from the tier.
    Deadline = 6,
    /// The daemon could not be asked, or is at a limit.
    Shed = 7,
    /// Made room while it was of the class none.
    EvictedNone = 16,
    /// Made room while it was of the class ephemeral.
    EvictedEphemeral = 17,
    /// Made room while it was of the class short.
    EvictedShort = 18,
    /// Made room while it was of the class long.
    EvictedLong = 19,
    /// Not looked for, because an earlier key of the prefix is a miss, or because the call failed.
    NotAsked = 255,
}

/// Why the daemon would not grant room or keep a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// It is no refusal: granted, or stored.
    None = 0,
    /// No arena is shared with this client.
    NoArena = 1,
    /// Larger than the arena can ever hold.
    Oversize = 2,
    /// Nothing that may be evicted frees enough room.
    ArenaFull = 3,
    /// This connection holds as many rights as it may.
    SessionLimit = 4,
    /// Room of lost clients whose end cannot be observed fills its bound.
    QuarantineFull = 5,
    /// Only blocks of a higher class could make room.
    HigherPriority = 6,
    /// The key is stored with a higher class and keeps it.
    Downgrade = 7,
    /// The daemon does not know the ticket.
    UnknownTicket = 8,
    /// The ticket belongs to another connection.
    WrongOwner = 9,
    /// More bytes committed than were reserved.
    OversizeCommit = 10,
    /// Key or namespace beyond the daemon's limits.
    BadKey = 11,
    /// Larger than the daemon's memory budget.
    ValueLargerThanStore = 12,
    /// The daemon is at a limit.
    Shed = 13,
    /// It was to be stored durably, and no device could. It may be in memory.
    NotDurable = 14,
    /// Not asked for, because the call failed.
    NotAsked = 255,
}

/// How much a block is worth keeping. The lowest class goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Retention {
    /// Goes before anything else.
    None = 0,
    /// Of use for the present burst of work only.
    Ephemeral = 10,
    /// The usual one.
    Short = 50,
    /// Worth a lower tier.
    Long = 100,
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tier {
    /// Nowhere: a miss.
    None = 0,
    /// The shared arena in host memory.
    Host = 2,
    /// Local or mounted files.
    Disk = 3,
    /// A distributed store.
    Remote = 4,
}

#[cfg(test)]
mod tests {
    use kvd_client::MissReason;

    use super::*;

    #[test]
    fn misses_are_those_of_the_client() {
        let ours = [
            Miss::NeverStored,
            Miss::EvictedNone,
            Miss::EvictedEphemeral,
            Miss::EvictedShort,
            Miss::EvictedLong,
            Miss::Expired,
            Miss::Cleared,
            Miss::OtherNamespace,
            Miss::Corrupt,
            Miss::Deadline,
            Miss::Shed,
        ];
        assert_eq!(ours.map(|miss| miss as u8), MissReason::ALL.map(MissReason::code));
        assert_eq!(MissReason::from_code(Miss::NotAsked as u8), None);
    }

    #[test]
    fn refusals_are_those_of_the_client() {
        let ours = [
            Refusal::NoArena,
            Refusal::Oversize,
            Refusal::ArenaFull,
            Refusal::SessionLimit,
            Refusal::QuarantineFull,
            Refusal::HigherPriority,
            Refusal::Downgrade,
            Refusal::UnknownTicket,
            Refusal::WrongOwner,
            Refusal::OversizeCommit,
            Refusal::BadKey,
            Refusal::ValueLargerThanStore,
            Refusal::Shed,
            Refusal::NotDurable,
        ];
        let theirs = kvd_client::Refusal::ALL.map(kvd_client::Refusal::code);
        assert_eq!(ours.map(|refusal| refusal as u8), theirs);
        assert_eq!(kvd_client::Refusal::from_code(Refusal::NotAsked as u8), None);
    }

    #[test]
    fn classes_and_tiers_are_those_of_the_client() {
        let classes = [Retention::None, Retention::Ephemeral, Retention::Short, Retention::Long];
        let theirs = kvd_client::Retention::ALL.map(|class| class as u8);
        assert_eq!(classes.map(|class| class as u8), theirs);
        let tiers = [Tier::Host, Tier::Disk, Tier::Remote];
        assert_eq!(tiers.map(|tier| tier as u8), kvd_client::Tier::ALL.map(kvd_client::Tier::code));
    }

    #[test]
    fn statuses_are_distinct_and_in_order() {
        assert!(Status::ALL.is_sorted_by(|left, right| (*left as i32) < (*right as i32)));
    }

    #[test]
    fn the_longest_key_is_that_of_the_client() {
        assert_eq!(KVD_KEY_BYTES_MAX, kvd_client::KEY_BYTES_MAX);
    }
}
