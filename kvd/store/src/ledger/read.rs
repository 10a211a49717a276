//! What stands in a ledger: everything is checked against itself, nothing yet against anything else.

use super::header::{LEDGER_HEADER_BYTES, LedgerHeader, Mark};
use super::layout::{
    LedgerLayout, READ_BYTES, RECORD_BYTES, RIGHT_BYTES, Regions, SESSION_BYTES, TAIL_BYTES,
};
use super::record::{self, NO_TAIL, Record, RowFields, from_bytes, tails_for};
use super::report::LedgerFault;
use super::slots::{Range, RightSlot, SessionSlot, Slot, read_of, sum_words};
use crate::rows::Key;
use crate::space::Layout;

/// Slots that are read at once.
const SLOTS_AT_ONCE: u32 = 1024;

/// The bytes of a ledger, wherever they are. Nobody writes them meanwhile.
pub trait LedgerImage {
    /// How many there are.
    fn bytes(&self) -> u64;

    /// Copies some of them; `offset` and length are within [`Self::bytes`].
    fn read(&self, offset: u64, to: &mut [u8]);
}

impl LedgerImage for [u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let from = start.checked_add(to.len()).and_then(|end| self.get(start..end));
        if let Some(from) = from {
            to.copy_from_slice(from);
        }
    }
}

/// Everything that is in a ledger.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) header: LedgerHeader,
    pub(super) marks: [u64; Mark::COUNT],
    /// With their slots, likewise all others.
    pub(super) sessions: Vec<(u32, SessionSlot)>,
    pub(super) rights: Vec<(u32, RightSlot)>,
    /// How often each slot of a right was used.
    pub(super) uses: Vec<u32>,
    pub(super) reads: Vec<(u32, Range)>,
    pub(super) namespaces: Vec<FoundNamespace>,
    pub(super) rows: Vec<FoundRow>,
    /// Slots of rows where something stands that is not whole.
    pub(super) torn: Vec<u32>,
    /// The chains of tails, of all records that are whole; no entry is used twice.
    pub(super) tails: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct FoundNamespace {
    pub(super) slot: u32,
    pub(super) model: Box<str>,
    pub(super) compat_key: Box<str>,
    pub(super) tie: u64,
    pub(super) first_tail: u32,
    pub(super) rows: u32,
}

#[derive(Debug)]
pub(super) struct FoundRow {
    pub(super) slot: u32,
    pub(super) fields: RowFields,
    pub(super) range: Range,
    pub(super) key: Key,
    pub(super) lineage: Option<Box<[u8]>>,
    pub(super) recency: u64,
    pub(super) first_tail: u32,
}

impl Found {
    pub(super) fn read<I: LedgerImage + ?Sized>(image: &I) -> Result<Self, LedgerFault> {
        let bytes = image.bytes();
        let too_short = LedgerFault::TooShort { bytes };
        let mut page = vec![0; LEDGER_HEADER_BYTES];
        if bytes < page.len() as u64 {
            return Err(too_short);
        }
        image.read(0, &mut page);
        let header = LedgerHeader::decode(&page)?;
        if bytes < header.layout.bytes() {
            return Err(too_short);
        }
        let marks = marks(&page, &header.layout)?;
        let mut reading = Reading {
            image,
            at: header.layout.regions(),
            tails: vec![NO_TAIL; usize::try_from(marks[Mark::Tails as usize]).unwrap_or(0)],
            claimed: Vec::new(),
            blob: Vec::new(),
        };
        reading.claimed = vec![false; reading.tails.len()];
        let end = |mark: Mark| u32::try_from(marks[mark as usize]).unwrap_or(0);
        let sessions = reading.sessions(end(Mark::Sessions))?;
        let (rights, uses) = reading.rights(end(Mark::Rights))?;
        let reads = reading.reads(end(Mark::Reads))?;
        let mut namespaces = reading.namespaces(end(Mark::Namespaces));
        let limit = header.arena_bytes;
        let (rows, torn) = reading.rows(end(Mark::Rows), &mut namespaces, limit);
        let tails = reading.tails;
        Ok(Self { header, marks, sessions, rights, uses, reads, namespaces, rows, torn, tails })
    }

    pub(super) fn mark(&self, mark: Mark) -> u64 {
        self.marks[mark as usize]
    }
}

fn marks(page: &[u8], layout: &LedgerLayout) -> Result<[u64; Mark::COUNT], LedgerFault> {
    let most = [
        layout.sessions,
        layout.rights,
        layout.reads,
        layout.namespaces,
        layout.rows,
        layout.tails,
        u32::MAX,
    ];
    let most = most.into_iter().map(u64::from).chain([u64::MAX; 2]);
    let mut marks = [0; Mark::COUNT];
    for ((found, mark), most) in marks.iter_mut().zip(Mark::ALL).zip(most) {
        let at = usize::try_from(mark.offset()).unwrap_or(0);
        let [word] = from_bytes(page.get(at..).unwrap_or_default());
        *found = mark.value(word).filter(|&value| value <= most).ok_or(LedgerFault::Damaged)?;
    }
    Ok(marks)
}

struct Reading<'a, I: ?Sized> {
    image: &'a I,
    at: Regions,
    tails: Vec<u32>,
    claimed: Vec<bool>,
    /// Memory for one blob at a time.
    blob: Vec<u8>,
}

impl<I: LedgerImage + ?Sized> Reading<'_, I> {
    /// Calls `visit` with the words of each slot before `end`, in order.
    fn each<const N: usize>(
        &self,
        region: u64,
        bytes: u64,
        end: u32,
        mut visit: impl FnMut(u32, [u64; N]) -> Result<(), LedgerFault>,
    ) -> Result<(), LedgerFault> {
        let size = usize::try_from(bytes).unwrap_or(0);
        let mut chunk = vec![0; size.saturating_mul(SLOTS_AT_ONCE as usize)];
        for from in (0..end).step_by(SLOTS_AT_ONCE as usize) {
            let slots = end.saturating_sub(from).min(SLOTS_AT_ONCE);
            let chunk = chunk.get_mut(..size.saturating_mul(slots as usize)).unwrap_or_default();
            self.image.read(place(region, from, bytes), chunk);
            for (slot, slot_bytes) in (from..).zip(chunk.chunks_exact(size)) {
                visit(slot, from_bytes(slot_bytes))?;
            }
        }
        Ok(())
    }

    fn sessions(&self, end: u32) -> Result<Vec<(u32, SessionSlot)>, LedgerFault> {
        let mut all = Vec::new();
        self.each(self.at.sessions, SESSION_BYTES, end, |slot, words| {
            let found = SessionSlot::of(words, slot);
            all.extend(believed(found, "session", slot)?.map(|session| (slot, session)));
            Ok(())
        })?;
        Ok(all)
    }

    #[expect(clippy::type_complexity, reason = "two lists")]
    fn rights(&self, end: u32) -> Result<(Vec<(u32, RightSlot)>, Vec<u32>), LedgerFault> {
        let (mut all, mut uses) = (Vec::new(), Vec::new());
        self.each(self.at.rights, RIGHT_BYTES, end, |slot, words| {
            let found = RightSlot::of(words, slot);
            all.extend(believed(found, "right", slot)?.map(|right| (slot, right)));
            uses.push(RightSlot::uses_of(words));
            Ok(())
        })?;
        Ok((all, uses))
    }

    fn reads(&self, end: u32) -> Result<Vec<(u32, Range)>, LedgerFault> {
        let mut all = Vec::new();
        self.each(self.at.reads, READ_BYTES, end, |slot, words| {
            let found = believed(read_of(words, slot), "read", slot)?;
            all.extend(found.map(|range| (slot, range)));
            Ok(())
        })?;
        Ok(all)
    }

    fn namespaces(&mut self, end: u32) -> Vec<FoundNamespace> {
        let mut all = Vec::new();
        for slot in 0..end {
            let mut bytes = [0; 128];
            self.image.read(place(self.at.namespaces, slot, RECORD_BYTES), &mut bytes);
            all.extend(self.namespace(slot, &Record::new(&bytes)));
        }
        all
    }

    fn namespace(&mut self, slot: u32, record: &Record) -> Option<FoundNamespace> {
        if !record.is_there() || !record.is_namespace() {
            return None;
        }
        let blob = self.whole_blob(slot, record, 0)?;
        let (model, compat_key) = record.split(&blob)?;
        let found = FoundNamespace {
            slot,
            model: core::str::from_utf8(model).ok()?.into(),
            compat_key: core::str::from_utf8(compat_key).ok()?.into(),
            tie: record.sum(),
            first_tail: record.first_tail(),
            rows: 0,
        };
        self.claim(record, blob).then_some(found)
    }

    fn rows(
        &mut self,
        end: u32,
        namespaces: &mut [FoundNamespace],
        limit: u64,
    ) -> (Vec<FoundRow>, Vec<u32>) {
        let (mut all, mut torn) = (Vec::new(), Vec::new());
        let mut places = vec![None; namespaces.last().map_or(0, |last| last.slot as usize + 1)];
        for (index, namespace) in namespaces.iter().enumerate() {
            places[namespace.slot as usize] = Some(index);
        }
        let chunk_slots = SLOTS_AT_ONCE as usize;
        let (mut records, mut recency, mut sums) =
            (vec![0; 128 * chunk_slots], vec![0; 8 * chunk_slots], vec![0; 16 * chunk_slots]);
        for from in (0..end).step_by(chunk_slots) {
            let slots = end.saturating_sub(from).min(SLOTS_AT_ONCE) as usize;
            let read = |region, bytes, to: &mut [u8]| {
                let to = to.get_mut(..slots.saturating_mul(bytes)).unwrap_or_default();
                self.image.read(place(region, from, bytes as u64), to);
            };
            read(self.at.rows, 128, &mut records);
            read(self.at.recency, 8, &mut recency);
            read(self.at.sums, 16, &mut sums);
            let records = records.as_chunks::<128>().0.iter().take(slots);
            let recency = recency.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            let sums = sums.as_chunks::<16>().0.iter().map(|words| from_bytes::<2>(words));
            for (((slot, bytes), recency), sum) in (from..).zip(records).zip(recency).zip(sums) {
                let record = Record::new(bytes);
                if !record.is_there() {
                    continue;
                }
                let place = places.get(record.namespace() as usize).copied().flatten();
                let namespace = place.and_then(|place| namespaces.get_mut(place));
                let tie = namespace.as_ref().map(|namespace| namespace.tie);
                let row = tie.and_then(|tie| self.row(slot, &record, tie, recency, sum, limit));
                match (row, namespace) {
                    (Some(row), Some(namespace)) => {
                        namespace.rows = namespace.rows.saturating_add(1);
                        all.push(row);
                    }
                    _ => torn.push(slot),
                }
            }
        }
        (all, torn)
    }

    fn row(
        &mut self,
        slot: u32,
        record: &Record,
        tie: u64,
        recency: u64,
        sum: [u64; 2],
        limit: u64,
    ) -> Option<FoundRow> {
        let mut fields = record.row()?;
        let blob = self.whole_blob(slot, record, tie)?;
        let (key, lineage) = record.split(&blob)?;
        let layout = Layout::ARENA;
        let bytes = layout.bytes_for(fields.len_bytes.into(), fields.large);
        let range = Range { start: fields.start, bytes };
        let align = if fields.large { layout.large_align } else { layout.granule };
        let fits = range.start.is_multiple_of(align)
            && range.end() <= limit
            && fields.version.is_multiple_of(2);
        let [checksum, _] = sum;
        if fields.checksum.is_none() && sum == sum_words(checksum, slot, fields.version) {
            fields.checksum = Some(checksum);
        }
        let found = FoundRow {
            slot,
            fields,
            range,
            key: Key::new(key),
            lineage: fields.with_lineage.then(|| lineage.into()),
            recency,
            first_tail: record.first_tail(),
        };
        (self.claim(record, blob) && fits).then_some(found)
    }

    /// The blob of a record, if both are whole. Give it back to [`Self::claim`].
    fn whole_blob(&mut self, slot: u32, record: &Record, tie: u64) -> Option<Vec<u8>> {
        let bytes = record.blob_bytes()?;
        let mut blob = core::mem::take(&mut self.blob);
        blob.clear();
        blob.extend(record.inline());
        let mut tail = record.first_tail();
        for _ in 0..tails_for(bytes) {
            if tail as usize >= self.tails.len() {
                return None;
            }
            let mut read = [0; 8 + record::TAIL_BYTES];
            self.image.read(place(self.at.tails, tail, TAIL_BYTES), &mut read);
            let (next, part) = read.split_at(8);
            let [next] = from_bytes(next);
            blob.extend(part);
            // The upper half of the word says nothing.
            tail = u32::try_from(next & u64::from(u32::MAX)).unwrap_or(NO_TAIL);
        }
        blob.truncate(bytes);
        let is_whole = blob.len() == bytes && record.is_whole(slot, &blob, tie);
        if is_whole { Some(blob) } else { None }
    }

    /// Claims the tails of a record that is whole; false if another record has one of them.
    fn claim(&mut self, record: &Record, blob: Vec<u8>) -> bool {
        let count = tails_for(blob.len());
        self.blob = blob;
        let mut chain = Vec::with_capacity(count);
        let mut tail = record.first_tail();
        for _ in 0..count {
            let Some(claimed) = self.claimed.get_mut(tail as usize) else {
                break;
            };
            if core::mem::replace(claimed, true) {
                break;
            }
            chain.push(tail);
            let mut next = [0; 8];
            self.image.read(place(self.at.tails, tail, TAIL_BYTES), &mut next);
            let [next] = from_bytes(&next);
            tail = u32::try_from(next & u64::from(u32::MAX)).unwrap_or(NO_TAIL);
        }
        if chain.len() < count {
            for tail in chain {
                self.claimed[tail as usize] = false;
            }
            return false;
        }
        for pair in chain.windows(2) {
            if let &[tail, next] = pair {
                self.tails[tail as usize] = next;
            }
        }
        true
    }
}

fn place(region: u64, slot: u32, bytes: u64) -> u64 {
    u64::from(slot).saturating_mul(bytes).saturating_add(region)
}

/// Damage to a right or to who has it is the end of all trust.
fn believed<T>(slot: Slot<T>, what: &'static str, number: u32) -> Result<Option<T>, LedgerFault> {
    match slot {
        Slot::Vacant => Ok(None),
        Slot::Used(found) => Ok(Some(found)),
        Slot::Damaged => Err(LedgerFault::Rights { what, slot: number }),
    }
}
