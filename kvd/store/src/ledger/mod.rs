//! The ledger: a second piece of memory, which no client ever gets, that says what the arena holds and
//! who may still touch it, so that a successor can trust the arena after the daemon's death.
//!
//! Written only: whatever decides in this process has its own memory of everything. Each decision is
//! said in the ledger in the order in which it is made and before anybody can learn of it; a process
//! that is killed has stored some first part of these words, each of them whole. So everything is
//! written such that *every* first part is true: an extent's row is struck out before anybody may
//! write there, a right is said before it is given, and what is said in several words counts only
//! once the last of them is there. Byte by byte: `docs/ledger.md`; why: ADR 11.
//!
//! [`Ledger`] writes, [`crate::Store::adopt`] reads, `keep` is where the store's decisions become writes.

mod adopt;
mod header;
mod keep;
mod layout;
mod place;
mod read;
mod record;
mod report;
mod slots;
mod tails;
mod writes;

pub use header::{LEDGER_HEADER_BYTES, LEDGER_VERSION, LedgerHeader};
pub use layout::LedgerLayout;
pub use read::LedgerImage;
pub use report::{Adopted, AdoptedSession, DroppedRows, LedgerFault};
pub use slots::Holder;
pub use writes::{LedgerWrite, LedgerWrites};

use kvd_proto::block_key::Namespace;

use crate::slab::NOWHERE;
use header::Mark;
use layout::{
    READ_BYTES, RECENCY_BYTES, RECORD_BYTES, RIGHT_BYTES, Regions, SESSION_BYTES, SUM_BYTES,
    TAIL_BYTES,
};
use record::{Blob, NO_TAIL, RowFields, namespace_words, row_words};
use slots::{Range, RightSlot, SessionSlot, read_words, sum_words};
use tails::Tails;

/// Slots by which a region's mark moves, so that it seldom does.
const STRIDE: u32 = 1024;

/// Word 1 of a record, and the last word of a slot: 0 there means that nothing is.
const RECORD_HEAD: u64 = 8;

/// The writer. Without a ledger it has no slots and writes nothing.
#[derive(Debug)]
pub(crate) struct Ledger {
    layout: LedgerLayout,
    at: Regions,
    exists: bool,
    /// What is to be stored, in order.
    pub(crate) writes: LedgerWrites,
    /// The marks of the six regions, as last written.
    ends: [u32; 6],
    /// Grows with every use of a row.
    clock: u64,
    tails: Tails,
    /// First tail of each row's record that has one.
    row_tails: Vec<u32>,
    /// By number of the namespace.
    names: Vec<Option<Name>>,
    /// Vacant slots for reads below the first one that was never used.
    vacant_reads: Vec<u32>,
    reads_end: u32,
}

/// The record of a namespace.
#[derive(Clone, Copy, Debug)]
struct Name {
    /// Its checksum.
    tie: u64,
    first_tail: u32,
}

/// Everything that a row's record is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowEntry<'a> {
    fields: RowFields,
    namespace: Namespace<'a>,
    key: &'a [u8],
    lineage: &'a [u8],
}

impl Ledger {
    pub(crate) fn new(layout: Option<LedgerLayout>) -> Self {
        let exists = layout.is_some();
        let layout = layout.unwrap_or(LedgerLayout::NONE);
        Self {
            layout,
            at: layout.regions(),
            exists,
            writes: LedgerWrites::default(),
            ends: [0; 6],
            clock: 0,
            tails: Tails::new(layout.tails),
            row_tails: Vec::new(),
            names: Vec::new(),
            vacant_reads: Vec::new(),
            reads_end: 0,
        }
    }

    /// Whether a right with this number of a session with that number finds its slot, or needs none.
    pub(crate) const fn takes_right(&self, right: u32, session: u32) -> bool {
        !self.exists || (right < self.layout.rights && session < self.layout.sessions)
    }

    /// Rights of peers should have numbers below this.
    pub(crate) const fn rights(&self) -> u32 {
        if self.exists { self.layout.rights } else { u32::MAX }
    }

    fn session(&mut self, slot: u32, session: &SessionSlot) {
        if slot < self.layout.sessions {
            self.raise(Mark::Sessions, slot, self.layout.sessions);
            self.writes.push(at(self.at.sessions, slot, SESSION_BYTES), session.words(slot));
        }
    }

    pub(crate) fn session_over(&mut self, slot: u32) {
        if slot < self.layout.sessions {
            self.writes.push(at(self.at.sessions, slot, SESSION_BYTES) + 24, [0]);
        }
    }

    fn right(&mut self, slot: u32, right: &RightSlot) {
        if slot < self.layout.rights {
            self.raise(Mark::Rights, slot, self.layout.rights);
            self.writes.push(at(self.at.rights, slot, RIGHT_BYTES), right.words(slot));
        }
    }

    /// As [`Self::right`], for a right of which only the kind, or the session, is another one.
    fn right_changed(&mut self, slot: u32, right: &RightSlot) {
        if slot < self.layout.rights {
            let [_, _, _, head] = right.words(slot);
            self.writes.push(at(self.at.rights, slot, RIGHT_BYTES) + 24, [head]);
        }
    }

    pub(crate) fn right_over(&mut self, slot: u32) {
        if slot < self.layout.rights {
            self.writes.push(at(self.at.rights, slot, RIGHT_BYTES) + 24, [0]);
        }
    }

    /// Whether one more read may begin.
    pub(crate) const fn takes_read(&self) -> bool {
        !self.exists || !self.vacant_reads.is_empty() || self.reads_end < self.layout.reads
    }

    /// The kernel may write to `range` from now on. The slot, for [`Self::read_over`].
    fn read(&mut self, range: Range) -> u32 {
        let slot = self.vacant_reads.pop().unwrap_or(self.reads_end);
        if slot >= self.layout.reads {
            return NOWHERE;
        }
        self.reads_end = self.reads_end.max(slot + 1);
        self.raise(Mark::Reads, slot, self.layout.reads);
        self.writes.push(at(self.at.reads, slot, READ_BYTES), read_words(range, slot));
        slot
    }

    pub(crate) fn read_over(&mut self, slot: u32) {
        if slot < self.layout.reads {
            self.writes.push(at(self.at.reads, slot, READ_BYTES) + 8, [0]);
            self.vacant_reads.push(slot);
        }
    }

    /// Whether the row with this number has a slot.
    const fn keeps_row(&self, slot: u32) -> bool {
        slot < self.layout.rows
    }

    /// Says what a row is; nothing if there is no room for it.
    fn row(&mut self, slot: u32, entry: &RowEntry<'_>) {
        let Some(tie) = self.tie(entry.fields.namespace, entry.namespace) else {
            return;
        };
        let blob = Blob { first: entry.key, second: entry.lineage };
        let Some(first_tail) = self.write_tails(blob) else {
            return;
        };
        if first_tail != NO_TAIL {
            *slot_mut(&mut self.row_tails, slot, NO_TAIL) = first_tail;
        }
        self.raise(Mark::Rows, slot, self.layout.rows);
        self.touched(slot);
        let words = row_words(slot, &entry.fields, blob, first_tail, tie);
        self.writes.push(at(self.at.rows, slot, RECORD_BYTES), words);
    }

    /// The row was used.
    #[inline]
    pub(crate) fn touched(&mut self, slot: u32) {
        if slot < self.layout.rows {
            self.clock = self.clock.wrapping_add(1);
            self.writes.push(at(self.at.recency, slot, RECENCY_BYTES), [self.clock]);
        }
    }

    /// The checksum of a row's bytes became known.
    pub(crate) fn summed(&mut self, slot: u32, version: u32, checksum: u64) {
        if slot < self.layout.rows {
            let words = sum_words(checksum, slot, version);
            self.writes.push(at(self.at.sums, slot, SUM_BYTES), words);
        }
    }

    /// Strikes a row out. Its extent may be somebody else's from now on.
    pub(crate) fn row_over(&mut self, slot: u32) {
        if slot < self.layout.rows {
            self.writes.push(at(self.at.rows, slot, RECORD_BYTES) + RECORD_HEAD, [0]);
            if let Some(first) = self.row_tails.get_mut(slot as usize) {
                let first = core::mem::replace(first, NO_TAIL);
                self.tails.give_back(first);
            }
        }
    }

    /// The last row of a namespace is gone.
    pub(crate) fn namespace_over(&mut self, slot: u32) {
        if let Some(name) = self.names.get_mut(slot as usize).and_then(Option::take) {
            self.writes.push(at(self.at.namespaces, slot, RECORD_BYTES) + RECORD_HEAD, [0]);
            self.tails.give_back(name.first_tail);
        }
    }

    pub(crate) fn mark_version(&mut self, version: u32) {
        self.mark(Mark::Version, version.into());
    }

    pub(crate) fn mark_ready(&mut self, bytes: u64) {
        self.mark(Mark::Ready, bytes / 64);
    }

    fn mark_next_session(&mut self, id: u64) {
        self.mark(Mark::NextSession, id);
    }

    fn mark(&mut self, mark: Mark, value: u64) {
        if self.exists {
            self.writes.push(mark.offset(), [mark.word(value)]);
        }
    }

    /// The checksum of the namespace's record, which is written if it is not there yet.
    fn tie(&mut self, slot: u32, namespace: Namespace<'_>) -> Option<u64> {
        if slot >= self.layout.namespaces {
            return None;
        }
        if let Some(Some(name)) = self.names.get(slot as usize) {
            return Some(name.tie);
        }
        let blob =
            Blob { first: namespace.model.as_bytes(), second: namespace.compat_key.as_bytes() };
        let first_tail = self.write_tails(blob)?;
        self.raise(Mark::Namespaces, slot, self.layout.namespaces);
        let words = namespace_words(slot, blob, first_tail);
        self.writes.push(at(self.at.namespaces, slot, RECORD_BYTES), words);
        let [tie, ..] = words;
        *slot_mut(&mut self.names, slot, None) = Some(Name { tie, first_tail });
        Some(tie)
    }

    /// Writes what of a blob does not fit into its record; none if there is no room.
    fn write_tails(&mut self, blob: Blob<'_>) -> Option<u32> {
        let first = self.tails.take(blob.tails())?;
        let mut tail = first;
        for number in 0..blob.tails() {
            self.raise(Mark::Tails, tail, self.layout.tails);
            let next = self.tails.next(tail);
            self.writes.push(at(self.at.tails, tail, TAIL_BYTES), blob.tail(number, next));
            tail = next;
        }
        Some(first)
    }

    /// Sees to it that the mark of a region is above a slot that is about to be written.
    fn raise(&mut self, mark: Mark, slot: u32, slots: u32) {
        let end = &mut self.ends[mark as usize];
        if slot >= *end {
            *end = (slot - slot % STRIDE).saturating_add(STRIDE).min(slots);
            let end = *end;
            self.mark(mark, end.into());
        }
    }
}

const fn at(region: u64, slot: u32, bytes: u64) -> u64 {
    region + slot as u64 * bytes
}

/// An item of a list that grows as far as it is used.
fn slot_mut<T: Clone>(list: &mut Vec<T>, slot: u32, empty: T) -> &mut T {
    let slot = slot as usize;
    if list.len() <= slot {
        list.resize(slot + 1, empty);
    }
    &mut list[slot]
}
