//! The question: which part of a prompt each target has, and where.

use kvd_proto::events::CacheTier;

use super::Index;
use super::fleet::{Fleet, Lower, PASS_PAGES, Pass, Row};
use super::name::{Kind, Name};
use super::table::Reading;

/// How far a question jumps where it may.
const JUMP: usize = 64;
/// How many chunks it looks ahead where it goes step by step.
const AHEAD: usize = 16;

/// The names of a prompt's blocks, first block first. A kind that nobody computed is empty, and finds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chains<'a> {
    /// The router's hashes.
    pub router: &'a [u64],
    /// Of SGLang's pages.
    pub sglang: &'a [u64],
    /// Of vLLM's blocks.
    pub vllm: &'a [u64],
    /// The daemon's keys, for each number of blocks that a chunk may have.
    pub chunk_keys: &'a [(u32, &'a [Name])],
}

impl Chains<'_> {
    /// Chunks of `stride` blocks.
    fn len(&self, kind: Kind, stride: u32) -> usize {
        let blocks = match kind {
            Kind::Router => self.router,
            Kind::Sglang => self.sglang,
            Kind::Vllm => self.vllm,
            Kind::ChunkKey => return self.keys(stride).len(),
        };
        blocks.len() / stride.max(1) as usize
    }

    /// The chunk at `index`: its last block's name, or its key's.
    pub(crate) fn name(&self, kind: Kind, stride: u32, index: usize) -> Option<Name> {
        let blocks = match kind {
            Kind::Router => self.router,
            Kind::Sglang => self.sglang,
            Kind::Vllm => self.vllm,
            Kind::ChunkKey => return self.keys(stride).get(index).copied(),
        };
        let bits = blocks.get((index + 1) * stride.max(1) as usize - 1)?;
        Some(Name::new(kind, *bits))
    }

    fn keys(&self, stride: u32) -> &[Name] {
        let keys = self.chunk_keys.iter().find(|(blocks, _)| *blocks == stride);
        keys.map_or(&[], |(_, keys)| keys)
    }
}

/// Blocks in one tier, end to end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// First block.
    pub start: u32,
    /// Behind the last block.
    pub end: u32,
    /// Where they are.
    pub tier: CacheTier,
    /// What they are worth, 0 to 1.
    pub credit: f32,
    /// Blocks that are loaded together; the run ends with such a chunk.
    pub chunk_blocks: u32,
    /// Bytes of a chunk; 0 if nobody said.
    pub chunk_bytes: u64,
}

impl Run {
    /// Bytes to be loaded: whole chunks. 0 if nobody said.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let chunks = (self.end - self.start).div_ceil(self.chunk_blocks.max(1));
        u64::from(chunks) * self.chunk_bytes
    }
}

/// What one target has.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// Blocks on the device, from the first one on.
    pub device_blocks: u32,
    /// What they are worth, 0 to 1.
    pub device_credit: f32,
    /// Runs in lower tiers, ascending and apart; each block in its nearest tier. They may overlap the device's.
    pub runs: &'a [Run],
}

impl<'a> Held<'a> {
    /// The same with so many blocks on the device; what is more than it has is certain.
    #[must_use]
    pub const fn with_device(self, blocks: u32) -> Self {
        if blocks <= self.device_blocks {
            return self;
        }
        Self { device_blocks: blocks, device_credit: 1.0, ..self }
    }

    /// What is to be loaded behind the device's blocks: runs without a gap, up to the first block that nobody has.
    pub fn below(&self) -> impl Iterator<Item = Run> + Clone + use<'a> {
        let mut at = self.device_blocks;
        let first = at;
        let runs = self.runs.iter().skip_while(move |run| run.end <= first);
        runs.map_while(move |run| {
            let start = run.start.max(at);
            (run.start <= at).then(|| {
                at = run.end;
                Run { start, ..*run }
            })
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Device {
    blocks: u32,
    credit: f32,
}

/// What all targets have, in the order of the fleet.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    devices: Vec<Device>,
    sites: Vec<Vec<Run>>,
    site_of: Vec<usize>,
}

impl Answer {
    /// Number of targets.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.devices.len()
    }

    /// Whether there is no target.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// What the target has. Nothing, if there is no such target.
    #[must_use]
    pub fn held(&self, target: usize) -> Held<'_> {
        let device = self.devices.get(target).copied();
        let device = device.unwrap_or(Device { blocks: 0, credit: 0.0 });
        let runs = self.site_of.get(target).and_then(|site| self.sites.get(*site));
        Held {
            device_blocks: device.blocks,
            device_credit: device.credit,
            runs: runs.map_or(&[], Vec::as_slice),
        }
    }

    /// The site of a target: targets of one site share their runs.
    #[must_use]
    pub fn site(&self, target: usize) -> Option<usize> {
        self.site_of.get(target).copied()
    }
}

/// Asks, and keeps its memory between questions.
#[derive(Clone, Debug, Default)]
pub struct Query {
    answer: Answer,
    /// Per lower holder, what it has: ascending, apart, in blocks.
    spans: Vec<Vec<(u32, u32)>>,
    merged: Vec<Run>,
}

impl Query {
    /// A question without memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks what each target of `fleet` has of a prompt.
    pub fn ask(&mut self, index: &Index, fleet: &Fleet, chains: &Chains<'_>) -> &Answer {
        let reading = index.table.reading();
        let asked = Asked { index, reading: &reading, chains };
        let answer = &mut self.answer;
        answer.site_of.clone_from(&fleet.site_of);
        answer.devices.clear();
        answer.devices.resize(fleet.len(), Device { blocks: 0, credit: 1.0 });
        for pass in &fleet.devices {
            asked.prefixes(pass, |target, id, blocks| {
                let found = answer.devices.get_mut(target).filter(|known| known.blocks < blocks);
                if let Some(device) = found {
                    *device = Device { blocks, credit: index.credit(id) };
                }
            });
        }
        let blocks = answer.devices.iter().map(|device| device.blocks);
        let (least, most) = (blocks.clone().min().unwrap_or(0), blocks.max().unwrap_or(0));
        self.spans.resize_with(self.spans.len().max(fleet.lower.len()), Vec::new);
        self.spans.iter_mut().for_each(Vec::clear);
        for pass in &fleet.below {
            asked.spans(pass, least, most, &mut self.spans);
        }
        answer.sites.resize_with(answer.sites.len().max(fleet.sites.len()), Vec::new);
        for (site, runs) in fleet.sites.iter().zip(&mut answer.sites) {
            runs.clear();
            for number in site {
                let (Some(lower), Some(spans)) =
                    (fleet.lower.get(*number), self.spans.get(*number))
                else {
                    continue;
                };
                fill_gaps(runs, spans, asked.worth(lower), &mut self.merged);
            }
        }
        &self.answer
    }
}

/// A question while it is being answered.
struct Asked<'q> {
    index: &'q Index,
    reading: &'q Reading,
    chains: &'q Chains<'q>,
}

impl Asked<'_> {
    /// Who of the pass has the chunk at `index`.
    fn row(&self, pass: &Pass, index: usize) -> Row {
        let mut row = [0; PASS_PAGES];
        if let Some(name) = self.chains.name(pass.kind, pass.stride, index) {
            self.reading.holders(name, |page, bits| {
                let at = pass.pages.iter().position(|known| *known == page);
                if let Some(word) = at.and_then(|at| row.get_mut(at)) {
                    *word |= bits;
                }
            });
        }
        row
    }

    /// Looks ahead to these chunks.
    fn touch(&self, pass: &Pass, chunks: impl Iterator<Item = usize>) {
        let name = |index| self.chains.name(pass.kind, pass.stride, index);
        self.reading.touch(chunks.filter_map(name));
    }

    /// Finds the prefix that each holder of the pass has, in blocks.
    fn prefixes(&self, pass: &Pass, mut found: impl FnMut(usize, super::HolderId, u32)) {
        let len = self.chains.len(pass.kind, pass.stride);
        let mut report = |lost: &Row, blocks: usize| {
            each_member(pass, lost, |member| {
                found(member.number, member.id, u32::try_from(blocks).unwrap_or(u32::MAX));
            });
        };
        let mut active = pass.mask;
        let mut at = 0;
        self.touch(pass, (JUMP - 1..len).step_by(JUMP).chain([0]));
        while at < len && !is_empty(&active) {
            // Where there may be a crack, one look of its own.
            let end = self.next_crack(pass, at, (at + JUMP).min(len)).max(at + 1);
            let row = self.row(pass, end - 1);
            let lost = without(&active, &row);
            if !is_empty(&lost) {
                self.touch(pass, at..end);
                self.bisect(pass, at, end - 1, &lost, &mut report);
            }
            active = both(&active, &row);
            at = end;
        }
        report(&active, len);
    }

    /// `lost` have everything before `low` and not `high`, and what they have in between is a beginning: finds its end.
    fn bisect(
        &self,
        pass: &Pass,
        low: usize,
        high: usize,
        lost: &Row,
        report: &mut impl FnMut(&Row, usize),
    ) {
        if low == high {
            report(lost, low);
            return;
        }
        let middle = low.midpoint(high);
        let row = self.row(pass, middle);
        let (missing, having) = (without(lost, &row), both(lost, &row));
        if !is_empty(&missing) {
            self.bisect(pass, low, middle, &missing, report);
        }
        if !is_empty(&having) {
            self.bisect(pass, middle + 1, high, &having, report);
        }
    }

    /// The first position from `from` on, and before `end`, where there may be a crack; `end` if there is none.
    fn next_crack(&self, pass: &Pass, from: usize, end: usize) -> usize {
        let is_cracked = |at: &usize| {
            let name = self.chains.name(pass.kind, pass.stride, *at);
            name.is_none_or(|name| self.index.cracks.may_be_at(name))
        };
        (from..end).find(is_cracked).unwrap_or(end)
    }

    /// Finds what each holder of the pass has from block `least` on: chunk after chunk, since lower tiers give up
    /// beginnings too. Stops where nobody has anything, once no device has more than that either.
    fn spans(&self, pass: &Pass, least: u32, most: u32, spans: &mut [Vec<(u32, u32)>]) {
        let len = self.chains.len(pass.kind, pass.stride);
        let block = |index: usize| {
            u32::try_from(index).map_or(u32::MAX, |index| index.saturating_mul(pass.stride))
        };
        let end = block(len);
        let mut before = [0; PASS_PAGES];
        for index in (least / pass.stride.max(1)) as usize..len {
            if index.is_multiple_of(AHEAD) {
                self.touch(pass, index..(index + AHEAD).min(len));
            }
            let row = both(&self.row(pass, index), &pass.mask);
            let at = block(index);
            if row != before {
                each_member(pass, &without(&before, &row), |member| {
                    let spans = spans.get_mut(member.number);
                    if let Some(span) = spans.and_then(|spans| spans.last_mut()) {
                        span.1 = at;
                    }
                });
                each_member(pass, &without(&row, &before), |member| {
                    if let Some(spans) = spans.get_mut(member.number) {
                        spans.push((at, end));
                    }
                });
                before = row;
            }
            if is_empty(&row) && at >= most {
                break;
            }
        }
    }

    fn worth(&self, lower: &Lower) -> Run {
        Run {
            start: 0,
            end: 0,
            tier: lower.tier,
            credit: self.index.credit(lower.id),
            chunk_blocks: lower.stride,
            chunk_bytes: self.index.register.chunk_bytes(lower.id),
        }
    }
}

/// Puts `spans` where `runs` has nothing. Both are ascending and apart.
fn fill_gaps(runs: &mut Vec<Run>, spans: &[(u32, u32)], worth: Run, merged: &mut Vec<Run>) {
    if spans.is_empty() || worth.credit <= 0.0 {
        return;
    }
    merged.clear();
    let mut known = runs.iter().copied().peekable();
    let mut covered = 0;
    for (start, end) in spans {
        let mut at = covered.max(*start);
        while let Some(run) = known.next_if(|run| run.start < *end) {
            if run.start > at {
                merged.push(Run { start: at, end: run.start, ..worth });
            }
            covered = run.end;
            at = at.max(covered);
            merged.push(run);
        }
        if at < *end {
            merged.push(Run { start: at, end: *end, ..worth });
        }
    }
    merged.extend(known);
    core::mem::swap(runs, merged);
}

fn each_member(pass: &Pass, row: &Row, mut each: impl FnMut(super::fleet::Member)) {
    for (at, word) in row.iter().enumerate() {
        let mut bits = *word;
        while bits != 0 {
            let position = at * 64 + bits.trailing_zeros() as usize;
            if let Some(Some(member)) = pass.members.get(position) {
                each(*member);
            }
            bits &= bits - 1;
        }
    }
}

fn is_empty(row: &Row) -> bool {
    row.iter().all(|word| *word == 0)
}

fn both(left: &Row, right: &Row) -> Row {
    core::array::from_fn(|at| left[at] & right[at])
}

fn without(left: &Row, right: &Row) -> Row {
    core::array::from_fn(|at| left[at] & !right[at])
}
