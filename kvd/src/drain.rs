//! Writing to disk what only memory holds, before a planned restart. One drain at a time; whoever
//! asks for another joins it. The clock drives it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kvd_store::{DeviceHealth, DiskStats, Effects, Input};
use serde::Serialize;

use crate::daemon::Daemon;

/// How far a drain is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// What it is doing.
    pub state: State,
    /// Bytes that were to be written when it began.
    pub total_bytes: u64,
    /// Bytes that still are.
    pub left_bytes: u64,
    /// Blocks that still are.
    pub left_blocks: u64,
    /// Blocks that were given up because devices failed them.
    pub failed_blocks: u64,
    /// Blocks that were left out, the coldest first: the devices are too small for them.
    pub no_room_blocks: u64,
    /// All of them are on stable storage.
    pub durable: bool,
}

/// What a drain is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nobody has asked for one.
    #[default]
    None,
    /// It writes.
    Running,
    /// Everything is written and synced.
    Done,
    /// Its time was over, or there is no device that works.
    GaveUp,
}

/// The drain of a daemon.
#[derive(Debug, Default)]
pub struct Drain {
    inner: Mutex<Inner>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    progress: Progress,
    until: Option<Instant>,
    failed_before: u64,
    /// Number of the flush of each device, once everything is written.
    flushes: Option<Vec<u64>>,
}

impl Drain {
    /// Begins one, or joins the one that runs.
    pub fn begin(&self, daemon: &Daemon, patience: Duration) -> Progress {
        let mut inner = self.lock();
        if inner.progress.state == State::Running {
            return inner.progress;
        }
        let mut effects = Effects::default();
        daemon.brain.apply(Input::Drain { on: true }, &mut effects);
        let stats = disk_stats(daemon);
        *inner = Inner {
            progress: Progress {
                state: State::Running,
                total_bytes: stats.dirty_bytes,
                left_bytes: stats.dirty_bytes,
                left_blocks: stats.dirty_rows,
                failed_blocks: 0,
                no_room_blocks: 0,
                durable: false,
            },
            until: Some(Instant::now() + patience),
            failed_before: stats.totals.dropped_faulty_total,
            flushes: None,
        };
        tracing::info!(bytes = stats.dirty_bytes, blocks = stats.dirty_rows, "drain begins");
        inner.progress
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.lock().progress
    }

    /// Goes on with it. Costs nothing when none runs.
    pub fn tick(&self, daemon: &Daemon) {
        let mut inner = self.lock();
        if inner.progress.state != State::Running {
            return;
        }
        let stats = disk_stats(daemon);
        let failed = stats.totals.dropped_faulty_total - inner.failed_before;
        inner.progress.left_bytes = stats.dirty_bytes;
        inner.progress.left_blocks = stats.dirty_rows;
        inner.progress.failed_blocks = failed;
        inner.progress.no_room_blocks = stats.drain_no_room_rows;
        let late = inner.until.is_none_or(|until| Instant::now() >= until);
        if !stats.is_draining && stats.dirty_rows > 0 {
            // Stored since the pass over memory came by.
            daemon.brain.apply(Input::Drain { on: true }, &mut Effects::default());
        }
        let is_writing = stats.is_draining || stats.dirty_rows > 0 || stats.spills_in_flight > 0;
        let state = match inner.advance(daemon, is_writing) {
            Some(durable) if durable => State::Done,
            Some(_) => State::GaveUp,
            None if late || !has_device(daemon) => State::GaveUp,
            None => return,
        };
        inner.progress.state = state;
        inner.progress.durable = state == State::Done;
        daemon.brain.apply(Input::Drain { on: false }, &mut Effects::default());
        let Progress { left_bytes, failed_blocks, no_room_blocks, .. } = inner.progress;
        tracing::info!(?state, left_bytes, failed_blocks, no_room_blocks, "drain ends");
        self.ended.notify_all();
    }

    /// Waits until it has ended, at most until `deadline`; how far it is then.
    pub fn wait(&self, deadline: Instant) -> Progress {
        let mut inner = self.lock();
        while inner.progress.state == State::Running {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (inner, _) =
                self.ended.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner);
        }
        inner.progress
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Flushes once everything is written. Whether everything is durable, when that is known.
    fn advance(&mut self, daemon: &Daemon, is_writing: bool) -> Option<bool> {
        if is_writing {
            self.flushes = None;
            return None;
        }
        let flushes = self
            .flushes
            .get_or_insert_with(|| daemon.devices.iter().map(|device| device.flush()).collect());
        let healthy = healthy(daemon);
        let mut durable = true;
        for ((device, number), is_healthy) in daemon.devices.iter().zip(flushes).zip(healthy) {
            if is_healthy {
                durable &= device.has_flushed(*number)?;
            }
        }
        Some(durable)
    }
}

fn disk_stats(daemon: &Daemon) -> DiskStats {
    daemon.brain.inspect(|store, _| store.stats().disk)
}

fn healthy(daemon: &Daemon) -> Vec<bool> {
    let infos = daemon.brain.inspect(|store, _| store.devices());
    infos.iter().map(|info| info.health == DeviceHealth::Ready).collect()
}

fn has_device(daemon: &Daemon) -> bool {
    let infos = daemon.brain.inspect(|store, _| store.devices());
    infos.iter().any(|info| !matches!(info.health, DeviceHealth::Failed(_)))
}
