//! The thread `kvd-events`: empties the log, numbers, sends, answers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use kvd_proto::events::frames::{EVENTS_TOPIC, STATS_TOPIC};
use kvd_store::TierChanges;

use super::doors::Doors;
use super::figures::Figures;
use super::log::Log;
use super::replay::Replays;
use super::stream::{Message, Stream};
use super::{Endpoints, Events, timestamp};
use crate::config::EventsSettings;
use crate::daemon::Daemon;

/// How long changes may wait for others, to be sent together.
const COALESCE_MS: i64 = 10;
/// The same while somebody waits for a replay.
const HURRY_MS: i64 = 1;
/// How long the thread waits for the sockets of the daemon before, at a time.
const RETRY: Duration = Duration::from_millis(50);

/// Starts publishing, if that is wanted. If `patience` is not over, an address that is taken is waited for: the daemon
/// before is about to leave it.
///
/// # Errors
/// An address can't be bound, the keys can't be used, or the thread can't start.
pub fn start(daemon: &Arc<Daemon>, patience: Duration) -> io::Result<Option<JoinHandle<()>>> {
    if daemon.settings.events.is_none() {
        return Ok(None);
    }
    let opened = if patience.is_zero() { Some(open(daemon)?) } else { None };
    let daemon = Arc::clone(daemon);
    let thread = Builder::new().name("kvd-events".into()).spawn(move || {
        let opened = opened.or_else(|| open_when_free(&daemon, Instant::now() + patience));
        let settings = daemon.settings.events.as_ref();
        if let (Some(doors), Some(log), Some(settings)) = (opened, daemon.brain.tiers(), settings) {
            Publisher::new(&daemon, log, settings, doors).run();
        }
    })?;
    Ok(Some(thread))
}

fn open(daemon: &Daemon) -> io::Result<Doors> {
    let Some(settings) = &daemon.settings.events else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let (doors, endpoints) = Doors::open(settings)?;
    let Endpoints { events, replay, .. } = daemon.events.endpoints.get_or_init(|| endpoints);
    tracing::info!(events, replay, epoch = daemon.events.epoch, "publishing events");
    Ok(doors)
}

fn open_when_free(daemon: &Daemon, until: Instant) -> Option<Doors> {
    loop {
        match open(daemon) {
            Ok(doors) => return Some(doors),
            Err(error) if Instant::now() >= until => {
                tracing::error!(%error, "events are not published");
                return None;
            }
            Err(_taken) => {}
        }
        if daemon.stop.wait(RETRY) {
            return None;
        }
    }
}

struct Publisher<'a> {
    daemon: &'a Daemon,
    events: &'a Events,
    log: &'a Log,
    doors: Doors,
    stream: Stream,
    replays: Replays,
    figures: Figures,
    changes: TierChanges,
    figures_seq: u64,
}

impl<'a> Publisher<'a> {
    fn new(daemon: &'a Daemon, log: &'a Log, settings: &EventsSettings, doors: Doors) -> Self {
        let events = &daemon.events;
        Self {
            daemon,
            events,
            log,
            doors,
            stream: Stream::new(&settings.host_id, events.epoch),
            replays: Replays::default(),
            figures: Figures::new(&settings.host_id, events.epoch),
            changes: TierChanges::default(),
            figures_seq: 0,
        }
    }

    fn run(mut self) {
        while !self.daemon.stop.is_raised() {
            self.doors.wait(if self.replays.is_empty() { COALESCE_MS } else { HURRY_MS });
            self.doors.judge(&self.events.meters);
            if self.figures.digests_are_due() {
                self.figures.put_digests(&self.daemon.brain);
                // Also where nothing is held: who missed the last message would not know.
                self.publish_log();
                let message = self.stream.sign_of_life(timestamp()).clone();
                self.publish(&message);
            }
            self.publish_log();
            self.replays.listen(&self.doors.replay, &self.stream, &self.events.meters);
            self.replays.answer(&self.doors.replay, &self.stream, &self.events.meters);
            self.publish_figures();
        }
        self.publish_log();
    }

    fn publish_log(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        let lost = self.log.take(&mut changes);
        let meters = &self.events.meters;
        let mut gaps = 0;
        let (events, doors, before) = (self.events, &self.doors, self.stream.last());
        let mut after = before;
        let made = self.stream.make(&changes, timestamp(), |message| {
            gaps += message.seq - after - 1;
            after = message.seq;
            publish(doors, events, message);
        });
        meters.events.fetch_add(made, Ordering::Relaxed);
        if lost > 0 {
            meters.lost.fetch_add(lost, Ordering::Relaxed);
            gaps += 1;
            let message = self.stream.leave_out(timestamp());
            publish(doors, events, message);
        }
        meters.gaps.fetch_add(gaps, Ordering::Relaxed);
        self.changes = changes;
    }

    fn publish(&self, message: &Message) {
        publish(&self.doors, self.events, message);
    }

    fn publish_figures(&mut self) {
        if let Some(payload) = self.figures.take(&self.daemon.brain, self.stream.last()) {
            self.figures_seq += 1;
            self.doors.publish(STATS_TOPIC, self.figures_seq, &payload);
        }
    }
}

fn publish(doors: &Doors, events: &Events, message: &Message) {
    // Before it is sent: a snapshot that says this number begins later than all that is in the message.
    raise(&events.published, message.seq);
    events.meters.batches.fetch_add(1, Ordering::Relaxed);
    doors.publish(EVENTS_TOPIC, message.seq, &message.payload);
}

fn raise(number: &AtomicU64, to: u64) {
    number.store(to, Ordering::Release);
}
