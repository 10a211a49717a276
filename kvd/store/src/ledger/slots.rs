//! Sessions, rights and reads: slots of a few words, the last of which is stored last and says that
//! the others are there. A slot whose last word is 0 holds nothing.

use kvd_proto::ids::SessionId;

use super::writes::check;
use crate::input::{Peer, ProcessName};
use crate::rights::Kind;

/// Extents begin and end on multiples of this.
const GRANULE: u64 = 64;
/// Bits of a place's length; its start has the rest.
const LENGTH_BITS: u32 = 25;

/// Which kind of slot a check belongs to.
const SESSIONS: u64 = 1 << 32;
const RIGHTS: u64 = 2 << 32;
const READS: u64 = 3 << 32;
const SUMS: u64 = 4 << 32;

/// A range of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

impl Range {
    pub(crate) const fn end(self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    /// # Panics
    /// If it is not of whole granules, or longer than a gibibyte's extent can be.
    const fn word(self) -> u64 {
        assert!(self.start.is_multiple_of(GRANULE) && self.bytes.is_multiple_of(GRANULE));
        assert!(self.bytes / GRANULE < 1 << LENGTH_BITS && self.start / GRANULE < 1 << 39);
        ((self.start / GRANULE) << LENGTH_BITS) | (self.bytes / GRANULE)
    }

    const fn of(word: u64) -> Self {
        let bytes = (word & ((1 << LENGTH_BITS) - 1)) * GRANULE;
        Self { start: (word >> LENGTH_BITS) * GRANULE, bytes }
    }
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot<T> {
    Vacant,
    Used(T),
    Damaged,
}

/// Who holds the rights of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The peer's process.
    Peer,
    /// The kernel: it was reading from a device into the arena when the daemon died, and may still
    /// write there. [`crate::Input::PeerGone`] is to come once that is certainly over.
    Kernel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionSlot {
    pub(crate) id: SessionId,
    pub(crate) process: Option<ProcessName>,
    pub(crate) peer: Peer,
    pub(crate) holder: Holder,
}

impl SessionSlot {
    pub(super) fn words(&self, slot: u32) -> [u64; 4] {
        let unknowable = u64::from(self.peer == Peer::Unknowable);
        let kernel = u64::from(self.holder == Holder::Kernel);
        let named = u64::from(self.process.is_some());
        let flags = unknowable << 32 | kernel << 33 | named << 34;
        let (pid, started) = self.process.map_or((0, 0), |name| (name.pid, name.started));
        let words = [self.id.0, u64::from(pid) | flags, started];
        let [id, who, started] = words;
        [id, who, started, check(SESSIONS | u64::from(slot), words) | 1]
    }

    pub(super) fn of(words: [u64; 4], slot: u32) -> Slot<Self> {
        let [id, who, started, head] = words;
        if head == 0 {
            return Slot::Vacant;
        }
        let [low @ .., _, _, _, _] = who.to_le_bytes();
        let named = who & 1 << 34 != 0;
        let read = Self {
            id: SessionId(id),
            process: named.then_some(ProcessName { pid: u32::from_le_bytes(low), started }),
            peer: if who & 1 << 32 != 0 { Peer::Unknowable } else { Peer::Watched },
            holder: if who & 1 << 33 != 0 { Holder::Kernel } else { Holder::Peer },
        };
        if read.words(slot) == words { Slot::Used(read) } else { Slot::Damaged }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RightSlot {
    pub(crate) kind: Kind,
    /// Slot of its session.
    pub(crate) session: u32,
    pub(crate) range: Range,
    /// The range is laid out as large.
    pub(crate) large: bool,
    /// Version of the range's header.
    pub(crate) version: u32,
    /// How often the slot was used, this time included.
    pub(crate) uses: u32,
    pub(crate) asked_bytes: u32,
    pub(crate) owes_reserve: bool,
}

impl RightSlot {
    pub(super) fn words(&self, slot: u32) -> [u64; 4] {
        let place = self.range.word();
        let named = u64::from(self.uses) | u64::from(self.asked_bytes) << 32;
        let shape = u64::from(self.version)
            | u64::from(self.large) << 32
            | u64::from(self.owes_reserve) << 33;
        let head = code(self.kind) | u64::from(self.session) << 8;
        let sum = check(RIGHTS | u64::from(slot), [place, named, shape, head]);
        [place, named, shape, head | sum >> 32 << 32]
    }

    pub(super) fn of(words: [u64; 4], slot: u32) -> Slot<Self> {
        let [place, named, shape, head] = words;
        if head == 0 {
            return Slot::Vacant;
        }
        let [kind, s0, s1, s2, ..] = head.to_le_bytes();
        let Some(kind) = kind_of(kind) else {
            return Slot::Damaged;
        };
        let ((uses, asked_bytes), (version, flags)) = (halves(named), halves(shape));
        let read = Self {
            kind,
            session: u32::from_le_bytes([s0, s1, s2, 0]),
            range: Range::of(place),
            large: flags & 1 != 0,
            version,
            uses,
            asked_bytes,
            owes_reserve: flags & 2 != 0,
        };
        if read.words(slot) == words { Slot::Used(read) } else { Slot::Damaged }
    }

    /// How often a slot was used, whatever it holds now.
    pub(super) fn uses_of(words: [u64; 4]) -> u32 {
        halves(words[1]).0
    }
}

pub(super) fn read_words(range: Range, slot: u32) -> [u64; 2] {
    let place = range.word();
    [place, check(READS | u64::from(slot), [place]) | 1]
}

pub(super) fn read_of(words: [u64; 2], slot: u32) -> Slot<Range> {
    let [place, head] = words;
    match head {
        0 => Slot::Vacant,
        head if head == check(READS | u64::from(slot), [place]) | 1 => Slot::Used(Range::of(place)),
        _ => Slot::Damaged,
    }
}

/// The checksum of a row's bytes that became known after the row was stored. It belongs to one
/// version of the row.
pub(super) fn sum_words(checksum: u64, row: u32, version: u32) -> [u64; 2] {
    [checksum, check(SUMS | u64::from(row), [checksum, version.into()])]
}

fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

/// # Panics
/// For rights of the daemon itself, which end with it.
const fn code(kind: Kind) -> u64 {
    match kind {
        Kind::Ticket => 1,
        Kind::Lease => 2,
        Kind::HandOut => 3,
        Kind::Lingering => 4,
        Kind::DaemonTicket | Kind::DaemonLease => panic!("a right of the daemon itself"),
    }
}

const fn kind_of(code: u8) -> Option<Kind> {
    Some(match code {
        1 => Kind::Ticket,
        2 => Kind::Lease,
        3 => Kind::HandOut,
        4 => Kind::Lingering,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{Holder, Range, RightSlot, SessionSlot, Slot, read_of, read_words};
    use crate::input::{Peer, ProcessName};
    use crate::rights::Kind;
    use kvd_proto::ids::SessionId;

    const RANGE: Range = Range { start: 64 << 38, bytes: (1 << 30) + 4096 };

    /// Every bit counts, and the slot.
    fn assert_checked<const N: usize>(words: [u64; N], holds: impl Fn([u64; N]) -> bool) {
        assert!(holds(words));
        for bit in 0..64 * N {
            let mut damaged = words;
            damaged[bit / 64] ^= 1 << (bit % 64);
            assert!(!holds(damaged), "bit {bit}");
        }
    }

    #[test]
    fn slots_come_back_and_damage_is_seen() {
        let process = Some(ProcessName { pid: u32::MAX, started: 77 });
        let (id, peer) = (SessionId(9), Peer::Unknowable);
        let session = SessionSlot { id, process, peer, holder: Holder::Kernel };
        let of = SessionSlot::of;
        assert_checked(session.words(3), |words| of(words, 3) == Slot::Used(session));
        assert_eq!(of(session.words(3), 4), Slot::Damaged);
        assert_eq!(of([1, 2, 3, 0], 3), Slot::Vacant);
        let right = RightSlot {
            kind: Kind::Ticket,
            session: (1 << 20) - 1,
            range: RANGE,
            large: true,
            version: 8,
            uses: 9,
            asked_bytes: 10,
            owes_reserve: true,
        };
        assert_checked(right.words(3), |words| RightSlot::of(words, 3) == Slot::Used(right));
        assert_eq!(RightSlot::of(right.words(3), 4), Slot::Damaged);
        assert_eq!(RightSlot::uses_of(right.words(3)), 9);
        assert_checked(read_words(RANGE, 3), |words| read_of(words, 3) == Slot::Used(RANGE));
        assert_eq!(read_of(read_words(RANGE, 3), 4), Slot::Damaged);
    }
}
