//! The thread that drives a device: reap what ended, tell the store, take more, submit, wait.
//!
//! Nothing waits for a device in here but memory that is needed anyway: the store hands out work only
//! when it is asked for, so the order of urgency is decided as late as possible. How much is asked
//! for follows from what is under way; fewer bytes are being written while somebody reads.
//!
//! The disk behind it may be any that keeps the contract of `kvd-disk`, a simulated one too.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvd_disk::{Completion, Disk, FileId, Operation};
use kvd_store::{DeviceFault, DiskDone, DiskWork, Effects, Half, Input};

use super::block::{Block, Errand, Place, SUM_BYTES};
use super::device::{Device, Order};
use super::meters::DeviceMeters;
use super::pieces::journal_file;
use super::queue::{Lane, Queue, WRITE_BYTES, WRITE_BYTES_BESIDE_READS};
use super::record::{Record, Step};
use super::token::{Of, Token};
use crate::brain::Brain;
use crate::warm_up::WarmUp;

/// So many times what the device has at once may be under way: it need not wait for the store while
/// blocks wait to be written, or to be summed.
const AHEAD: usize = 2;
/// What is being written stays in memory meanwhile: on all devices together at most this part of the
/// arena, so that a device that hangs leaves room for everything else.
const SPILL_SHARE: u64 = 8;
/// So long after the latest read somebody is taken to be reading.
const READING: Duration = Duration::from_millis(20);
/// Longest sleep; whoever has something to do wakes the thread before.
const SLEEP: Duration = Duration::from_millis(200);

/// What drives one device.
#[derive(Debug)]
pub struct Worker {
    device: Arc<Device>,
    brain: Arc<Brain>,
    disk: Box<dyn Disk>,
    effects: Effects,
    completions: Vec<Completion>,
    done: Vec<DiskDone>,
    queue: Queue,
    blocks: Vec<Option<Block>>,
    free: Vec<u32>,
    loads: usize,
    spills: usize,
    spill_bytes: u64,
    /// Most bytes of blocks being written at once, whatever else is going on.
    spill_bytes_max: u64,
    /// Blocks that were read and are to be summed, first come first: somebody waits for them.
    arrived: VecDeque<u32>,
    /// Blocks being written whose checksum is not complete, first come first.
    to_sum: VecDeque<u32>,
    journal: Option<Record>,
    snapshot: Option<Record>,
    /// Containers written since they were last synced.
    unsynced: BTreeSet<FileId>,
    latest_read: Option<Instant>,
    /// In this turn no block is begun: somebody else is about to decide about the arena.
    held: bool,
    /// The end has been asked for: nothing is read any more, and after this moment nothing begins.
    finish_by: Option<Instant>,
    /// A flush that has been asked for.
    flush: Option<Flush>,
    warm_up: Arc<WarmUp>,
    /// Bytes of the arena that the disk knows to be touched.
    registered_bytes: u64,
}

/// Everything that was written is to be on stable storage.
#[derive(Debug)]
struct Flush {
    number: u64,
    /// Syncs that have not ended; none yet while there is still something to write.
    left: Option<usize>,
    failed: bool,
}

/// Whether a worker has more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    /// Turn again.
    On,
    /// It is finished.
    Over,
}

impl Worker {
    /// A worker for a device whose files are attached as they come.
    pub fn new(
        device: Arc<Device>,
        brain: Arc<Brain>,
        warm_up: Arc<WarmUp>,
        disk: Box<dyn Disk>,
    ) -> Self {
        device.is_driven(disk.waker(), disk.engine());
        brain.drive(device.id, disk.waker());
        let spill_bytes_max =
            brain.arena().bytes() / SPILL_SHARE / u64::from(brain.devices().max(1));
        Self {
            device,
            brain,
            disk,
            effects: Effects::default(),
            completions: Vec::new(),
            done: Vec::new(),
            queue: Queue::default(),
            blocks: Vec::new(),
            free: Vec::new(),
            loads: 0,
            spills: 0,
            spill_bytes: 0,
            spill_bytes_max,
            arrived: VecDeque::new(),
            to_sum: VecDeque::new(),
            journal: None,
            snapshot: None,
            unsynced: BTreeSet::new(),
            latest_read: None,
            held: false,
            finish_by: None,
            flush: None,
            warm_up,
            registered_bytes: 0,
        }
    }

    /// Works until the device is told to finish, then waits for everything in flight.
    pub fn run(mut self) {
        while self.turn(SLEEP) == Turned::On {}
        self.disk.shut_down();
    }

    /// Does what there is to do, and sleeps at most `patience` if that is nothing. Whatever can go to
    /// the device goes there before anything else is done: it works while sums are taken.
    pub fn turn(&mut self, patience: Duration) -> Turned {
        self.held = self.device.is_held();
        self.take_orders();
        self.register_arena();
        self.take_work();
        self.begin_flush();
        self.queue.submit(&mut *self.disk);
        let is_busy = self.has_sums() || !self.done.is_empty();
        if self.wait(if is_busy { Duration::ZERO } else { patience }) {
            self.queue.submit(&mut *self.disk);
            self.wait(Duration::ZERO);
        }
        self.sum();
        self.report();
        self.tell_still();
        self.end_flush();
        if self.is_over() { Turned::Over } else { Turned::On }
    }

    /// Starts what was submitted, and takes what has ended; true if anything has.
    fn wait(&mut self, patience: Duration) -> bool {
        if let Err(error) = self.disk.wait(patience, &mut self.completions) {
            self.device.log_fault(format_args!("waiting for the device failed: {error}"));
            self.fail(DeviceFault::Io);
            // Without a pause a lasting error would spin.
            std::thread::park_timeout(SLEEP);
        }
        let has_ended = !self.completions.is_empty();
        self.reap();
        has_ended
    }

    fn apply(&mut self, input: Input<'_>) {
        self.brain.apply(input, &mut self.effects);
    }

    fn fail(&mut self, fault: DeviceFault) {
        let device = self.device.id;
        self.apply(Input::DeviceFailed { device, fault });
    }

    fn take_orders(&mut self) {
        for order in self.device.take_orders() {
            let device = self.device.id;
            match order {
                Order::Attach { file, handle } => self.disk.attach(file, handle),
                Order::Ready(mut tablespace) => {
                    if self.brain.tiers().is_some() {
                        tablespace.keep_events();
                    }
                    self.apply(Input::TablespaceReady { device, tablespace });
                }
                Order::Space { bytes, expected_bytes } => {
                    self.apply(Input::DeviceSpace { device, bytes, expected_bytes });
                }
                Order::Reads { bytes_per_s } => {
                    self.apply(Input::DeviceReads { device, bytes_per_s });
                }
                Order::Failed(fault) => self.fail(fault),
                Order::Flush(number) => {
                    self.flush = Some(Flush { number, left: None, failed: false });
                }
                Order::Finish(by) => {
                    self.finish_by = Some(by);
                    self.flush = Some(Flush { number: u64::MAX, left: None, failed: false });
                }
            }
        }
    }

    /// Lets the kernel keep the part of the arena that is touched by now ready for I/O.
    fn register_arena(&mut self) {
        if self.registered_bytes == self.brain.arena().bytes() {
            return;
        }
        let ready_bytes = self.warm_up.ready_bytes();
        if ready_bytes > self.registered_bytes {
            self.registered_bytes = ready_bytes;
            self.disk.arena_touched(ready_bytes);
        }
    }

    /// Whether the time to end has passed: nothing is begun any more.
    fn is_late(&self) -> bool {
        self.finish_by.is_some_and(|by| Instant::now() >= by)
    }

    fn take_work(&mut self) {
        if self.is_late() {
            return;
        }
        let depth = self.disk.depth();
        let reading = (self.loads - self.arrived.len()).max(self.queue.reads_waiting());
        // The device reads on while what has arrived is summed, but not far ahead of that.
        let loads = depth.saturating_sub(reading).min((AHEAD * depth).saturating_sub(self.loads));
        let loads = if self.finish_by.is_some() || self.held { 0 } else { loads };
        let is_read = self.latest_read.is_some_and(|at| at.elapsed() < READING);
        let window = if is_read { WRITE_BYTES_BESIDE_READS } else { AHEAD as u64 * WRITE_BYTES };
        let window = if self.held { 0 } else { window };
        let bytes = window.min(self.spill_bytes_max).saturating_sub(self.spill_bytes);
        let spills = if bytes == 0 { 0 } else { (AHEAD * depth).saturating_sub(self.spills) };
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.brain.apply(
            Input::TakeWork {
                device: self.device.id,
                loads_max: count(loads),
                writes_max: count(spills),
                write_bytes_max: bytes,
            },
            &mut self.effects,
        );
        for work in std::mem::take(&mut self.effects.work) {
            self.begin(work);
        }
    }

    fn begin(&mut self, work: DiskWork) {
        match work {
            DiskWork::Load { load, offset, len_bytes, arena_offset, checksum, key } => {
                self.latest_read = Some(Instant::now());
                self.loads += 1;
                let place = Place { offset, arena_offset, len_bytes, key };
                self.begin_block(Errand::Load { load, checksum }, place);
            }
            DiskWork::Spill { spill, offset, len_bytes, arena_offset, checksum, key } => {
                self.spills += 1;
                self.spill_bytes += u64::from(len_bytes);
                let place = Place { offset, arena_offset, len_bytes, key };
                self.begin_block(Errand::Spill { spill, checksum }, place);
            }
            DiskWork::Journal { half, offset, bytes, sequence, sync } => {
                let unsynced = &mut self.unsynced;
                let token = |step| Token::new(Of::Journal(step)).0;
                let (record, operations) =
                    Record::journal((half, offset), &bytes, sequence, sync, unsynced, token);
                self.queue.push(Lane::Record, operations);
                DeviceMeters::add(&self.device.meters.record_bytes, bytes.len() as u64);
                self.journal = Some(record);
                self.go_on_with_records();
            }
            DiskWork::Snapshot { half, offset, bytes, sync: last } => {
                let token = |step| Token::new(Of::Snapshot(step)).0;
                let (record, operations) = Record::snapshot((half, offset), &bytes, last, token);
                self.queue.push(Lane::Record, operations);
                DeviceMeters::add(&self.device.meters.record_bytes, bytes.len() as u64);
                self.snapshot = Some(record);
                self.go_on_with_records();
            }
        }
    }

    fn begin_block(&mut self, errand: Errand, place: Place) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.blocks.push(None);
            u32::try_from(self.blocks.len() - 1).unwrap_or(u32::MAX)
        });
        let token = |part| Token::new(Of::Block { slot, part }).0;
        let container_bytes = self.device.container_bytes();
        let (block, operations) =
            Block::new(errand, place, self.brain.arena(), container_bytes, token);
        let lane = if block.is_load() {
            Lane::Read
        } else {
            self.to_sum.push_back(slot);
            Lane::Write
        };
        self.queue.push(lane, operations);
        self.blocks[slot as usize] = Some(block);
        self.end_if_over(slot);
    }

    /// Whether there is something to sum.
    fn has_sums(&self) -> bool {
        !self.arrived.is_empty() || !self.to_sum.is_empty()
    }

    /// Sums some bytes, first of what was read.
    fn sum(&mut self) {
        let mut left_bytes = SUM_BYTES as u64;
        while left_bytes > 0
            && let Some(slot) = self.arrived.front().or(self.to_sum.front()).copied()
            && let Some(block) = self.blocks[slot as usize].as_mut()
        {
            left_bytes = left_bytes.saturating_sub(block.bytes().max(1));
            if block.sum_more() {
                let line = if block.is_load() { &mut self.arrived } else { &mut self.to_sum };
                line.pop_front();
                self.end_if_over(slot);
            }
        }
    }

    fn reap(&mut self) {
        for completion in std::mem::take(&mut self.completions) {
            if completion.result.is_err() {
                self.device.meters.fault();
            }
            match Token(completion.token).of() {
                Of::Block { slot, part } => self.block_ended(slot, part, completion),
                Of::Journal(step) => {
                    if let Some(record) = &mut self.journal {
                        record.ended(step, completion);
                    }
                }
                Of::Snapshot(step) => {
                    if let Some(record) = &mut self.snapshot {
                        record.ended(step, completion);
                    }
                }
                Of::Flush => {
                    if let Some(Flush { left: Some(left), failed, .. }) = &mut self.flush {
                        *left -= 1;
                        *failed |= completion.result.is_err();
                    }
                }
            }
        }
        self.go_on_with_records();
    }

    fn block_ended(&mut self, slot: u32, part: usize, completion: Completion) {
        let Some(block) = self.blocks[slot as usize].as_mut() else {
            return;
        };
        if block.is_load() {
            self.queue.read_ended();
        } else {
            self.queue.write_ended(block.part_bytes(part));
            self.unsynced.insert(block.file(part));
        }
        if block.ended(part, completion) {
            self.arrived.push_back(slot);
        }
        self.end_if_over(slot);
    }

    fn end_if_over(&mut self, slot: u32) {
        let Some(block) = self.blocks[slot as usize].take_if(|block| block.is_over()) else {
            return;
        };
        if block.is_load() {
            self.loads -= 1;
            self.latest_read = Some(Instant::now());
            DeviceMeters::add(&self.device.meters.read_bytes, block.padded_bytes());
        } else {
            self.spills -= 1;
            self.spill_bytes -= block.bytes();
            self.to_sum.retain(|other| *other != slot);
            DeviceMeters::add(&self.device.meters.written_bytes, block.padded_bytes());
        }
        self.free.push(slot);
        let (done, fault) = block.outcome();
        self.device.note(&done, fault);
        self.done.push(done);
    }

    fn go_on_with_records(&mut self) {
        let journal = |step| Token::new(Of::Journal(step)).0;
        let snapshot = |step| Token::new(Of::Snapshot(step)).0;
        for (record, token) in
            [(&mut self.journal, &journal as &dyn Fn(Step) -> u64), (&mut self.snapshot, &snapshot)]
        {
            let Some(found) = record else {
                continue;
            };
            self.queue.push(Lane::Record, found.next(token));
            if let Some((done, fault)) = found.outcome() {
                self.device.note(&done, fault);
                self.done.push(done);
                *record = None;
            }
        }
    }

    fn report(&mut self) {
        if self.done.is_empty() {
            return;
        }
        let (device, done) = (self.device.id, std::mem::take(&mut self.done));
        self.apply(Input::WorkDone { device, done: &done });
        self.done = done;
        self.done.clear();
    }

    /// Said only once the store knows what became of the last block.
    fn tell_still(&self) {
        if self.held && self.loads == 0 && self.spills == 0 && self.done.is_empty() {
            self.device.stands_still();
        }
    }

    /// Whether nothing is under way and nothing is left to say.
    fn is_idle(&self) -> bool {
        self.loads == 0
            && self.spills == 0
            && self.journal.is_none()
            && self.snapshot.is_none()
            && self.done.is_empty()
            && self.queue.is_empty()
            && self.disk.in_flight() == 0
    }

    /// Begins the syncs of a flush once the journal holds everything that ended so far: the store has
    /// just been asked, and had no record to write. At the end all blocks are waited for, too.
    fn begin_flush(&mut self) {
        let is_due = matches!(self.flush, Some(Flush { left: None, .. }));
        let is_written = self.journal.is_none() && self.done.is_empty();
        if !is_due || !is_written || (self.finish_by.is_some() && !self.is_idle()) {
            return;
        }
        let mut files = std::mem::take(&mut self.unsynced);
        if self.device.is_prepared() {
            files.extend([journal_file(Half::A), journal_file(Half::B)]);
        }
        let token = Token::new(Of::Flush).0;
        if let Some(flush) = &mut self.flush {
            flush.left = Some(files.len());
        }
        self.queue.push(Lane::Record, files.into_iter().map(|file| Operation::sync(token, file)));
    }

    fn end_flush(&mut self) {
        if let Some(Flush { number, left: Some(0), failed }) = self.flush {
            self.device.flushed(number, !failed);
            self.flush = None;
        }
    }

    fn is_over(&self) -> bool {
        self.finish_by.is_some() && self.flush.is_none()
    }
}
