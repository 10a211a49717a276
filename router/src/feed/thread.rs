//! A thread that reads feeds: waits for all its sockets at once, folds what comes, asks for what was missed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kvd_proto::block_key::Namespace;
use kvd_proto::events::frames::{ENGINE_TOPIC, EVENTS_TOPIC, STATS_TOPIC};
use kvd_proto::events::{Live, Replayed, SnapshotItem, SnapshotReader};
use router_core::fold::{Counts, EngineView, HostView, Keys, Moment, Need};
use router_core::index::Index;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, WeakSender};
use tokio::task::JoinHandle;
use zmq::{DONTWAIT, POLLIN, Socket};

use super::ahead::{Asked, Reading};
use super::snapshot::{self, Attempt, Piece};
use super::socket::{self, Contexts, Place, Subscription};
use super::{Access, Command, FeedId, Needed, Observation, Opening, Publisher, Status};
use crate::hints::{Hint, Hints};
use crate::hosts::Links;
use crate::meters::{Meters, Prefetch};

/// How long the thread waits for messages before it looks whether something else is asked of it.
const WAIT_MS: i64 = 20;
/// How often time passes for views.
const TICK: Duration = Duration::from_millis(200);
/// Messages of one socket, and commands, in one turn.
const TURN: usize = 256;
/// A replay that says nothing for so long has failed.
const REPLAY_PATIENCE: Duration = Duration::from_secs(5);
/// Pause before a snapshot is read again: doubled from one to the next up to the bound.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);

enum View {
    Engine(Box<EngineView>),
    Host(Box<HostView>, Arc<Links>),
}

struct Feed {
    status: Arc<Status>,
    view: View,
    subscription: Subscription,
    opening: Places,
    replay: Option<(Socket, Instant)>,
    snapshot: Option<Snapshot>,
    /// Of the next snapshot.
    pause: Duration,
    /// What was counted of it already.
    counted: Counts,
    /// What its daemon was asked to read ahead.
    asked: Asked,
}

struct Places {
    replay: Option<Place>,
    snapshot_url: Option<String>,
}

struct Snapshot {
    attempt: Attempt,
    /// Its last item has come.
    is_whole: bool,
    reader: SnapshotReader,
    task: JoinHandle<()>,
}

/// All feeds of one thread.
pub(super) struct Reader {
    index: Arc<Index>,
    changes: Arc<AtomicU64>,
    hints: Hints,
    meters: Arc<Meters>,
    commands: Receiver<Command>,
    own: WeakSender<Command>,
    runtime: Handle,
    is_over: Arc<AtomicBool>,
    access: Access,
    contexts: Contexts,
    feeds: BTreeMap<FeedId, Feed>,
    began: Instant,
    attempts: u64,
}

impl Reader {
    pub(super) fn new(
        index: Arc<Index>,
        changes: Arc<AtomicU64>,
        (hints, meters): (Hints, Arc<Meters>),
        (own, commands): (WeakSender<Command>, Receiver<Command>),
        is_over: Arc<AtomicBool>,
        (runtime, access): (Handle, Access),
    ) -> Self {
        let (contexts, feeds) = (Contexts::new(access.keys.clone()), BTreeMap::new());
        let began = Instant::now();
        Self {
            index,
            changes,
            hints,
            meters,
            commands,
            own,
            runtime,
            is_over,
            access,
            contexts,
            feeds,
            began,
            attempts: 0,
        }
    }

    /// Reads until it is over.
    pub(super) fn run(mut self) {
        let mut ticked = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            self.obey();
            for id in self.wait() {
                self.listen(id);
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.tick();
            }
        }
        for feed in self.feeds.into_values() {
            if let Some(snapshot) = feed.snapshot {
                snapshot.task.abort();
            }
        }
    }

    fn now(&self) -> Moment {
        Moment(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn obey(&mut self) {
        for _ in 0..TURN {
            let Ok(command) = self.commands.try_recv() else { return };
            self.do_one(command);
        }
    }

    fn do_one(&mut self, command: Command) {
        match command {
            Command::Open(status, opening) => self.open(status, opening),
            Command::Close(id) => self.close(id),
            Command::Observe(id, observation) => self.observe(id, &observation),
            Command::Snapshot(id, attempt, piece) => self.take_piece(id, attempt, piece),
            Command::Read(id, reading, None) => self.read_ahead(id, &reading),
            Command::Read(id, reading, Some(reply)) => {
                let count = self.read_ahead_of_all(id, &reading);
                // Whoever asked may be gone by now.
                let _unheard = reply.send(count);
            }
        }
    }

    fn open(&mut self, status: Arc<Status>, Opening { publisher, events, replay }: Opening) {
        let id = status.id;
        let is_engine = matches!(publisher, Publisher::Engine(_));
        let opened = Subscription::open(&mut self.contexts, &events, is_engine, id.0);
        let subscription = match opened {
            Ok(subscription) => subscription,
            Err(error) => {
                tracing::warn!(endpoint = events.endpoint, %error, "events can't be listened to");
                return;
            }
        };
        let (view, snapshot_url) = match publisher {
            Publisher::Engine(source) => (View::Engine(Box::new(EngineView::new(source))), None),
            Publisher::Host { source, snapshot_url, links } => {
                (View::Host(Box::new(HostView::new(source)), links), snapshot_url)
            }
        };
        let opening = Places { replay, snapshot_url };
        let (replay, snapshot) = (None, None);
        let mut feed = Feed {
            status,
            view,
            subscription,
            opening,
            replay,
            snapshot,
            pause: PAUSE,
            counted: Counts::default(),
            asked: Asked::default(),
        };
        let need = match &mut feed.view {
            View::Engine(view) => view.begin(),
            View::Host(view, _) => view.begin(),
        };
        self.feeds.insert(id, feed);
        self.ask_for(id, need);
    }

    fn close(&mut self, id: FeedId) {
        let Some(mut feed) = self.feeds.remove(&id) else {
            return;
        };
        feed.show(&self.changes, &self.meters);
        match &mut feed.view {
            View::Engine(view) => view.leave(&self.index),
            View::Host(view, _) => view.leave(&self.index),
        }
        if let Some(snapshot) = feed.snapshot {
            snapshot.task.abort();
        }
    }

    fn observe(&mut self, id: FeedId, observation: &Observation) {
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        if let View::Engine(view) = &mut feed.view {
            let Observation { chain, predicted, observed } = observation;
            view.observe(&self.index, chain, *predicted, *observed);
        }
    }

    /// Asks a daemon to read ahead what it was not asked for before.
    fn read_ahead(&mut self, id: FeedId, reading: &Reading) {
        let now = self.now();
        let Some(Feed { view: View::Host(view, _), asked, .. }) = self.feeds.get_mut(&id) else {
            return;
        };
        let mut found = reading.keys(view).unwrap_or_default();
        found.iter_mut().for_each(|keys| asked.keep_new(keys, now, reading.lifetime));
        found.retain(|keys| !keys.keys.is_empty());
        if found.is_empty() {
            self.meters.prefetches.count(Prefetch::Needless);
        }
        tell(&self.hints, &view.source().host, reading, &found);
    }

    /// Asks a daemon to read ahead, whatever it was asked for before; of how many keys.
    fn read_ahead_of_all(&self, id: FeedId, reading: &Reading) -> Option<usize> {
        let View::Host(view, _) = &self.feeds.get(&id)?.view else { return None };
        let found = reading.keys(view)?;
        tell(&self.hints, &view.source().host, reading, &found);
        Some(found.iter().map(|keys| keys.keys.len()).sum())
    }

    /// The feeds that have something to say.
    fn wait(&self) -> BTreeSet<FeedId> {
        let (mut items, mut ids) = (Vec::new(), Vec::new());
        for (id, feed) in &self.feeds {
            let replay = feed.replay.as_ref().map(|(socket, _)| socket);
            for socket in std::iter::once(&feed.subscription.socket).chain(replay) {
                items.push(socket.as_poll_item(POLLIN));
                ids.push(*id);
            }
        }
        if let Err(error) = zmq::poll(&mut items, WAIT_MS) {
            tracing::debug!(%error, "waiting for events");
        }
        let readable = items.iter().zip(ids).filter(|(item, _)| item.is_readable());
        readable.map(|(_, id)| id).collect()
    }

    /// Reads what a feed has to say, for a turn.
    fn listen(&mut self, id: FeedId) {
        let now = self.now();
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        feed.take_news(&self.index, now);
        let mut need = None;
        for _ in 0..TURN {
            let Some((socket, deadline)) = &mut feed.replay else { break };
            let Ok(frames) = socket.recv_multipart(DONTWAIT) else { break };
            *deadline = Instant::now() + REPLAY_PATIENCE;
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let Ok(answer) = Replayed::parse(&frames) else { continue };
            let wanted = match &mut feed.view {
                View::Engine(view) => view.replayed(&self.index, &answer, now),
                View::Host(view, _) => view.replayed(&self.index, &answer, now),
            };
            need = wanted.or(need);
            if wanted.is_some() || matches!(answer, Replayed::End | Replayed::TooOld) {
                feed.replay = None;
            }
        }
        for _ in 0..TURN {
            let Ok(frames) = feed.subscription.socket.recv_multipart(DONTWAIT) else { break };
            feed.status.is_connected.store(true, Ordering::Relaxed);
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let Ok(message) = Live::parse(&frames) else { continue };
            need = feed.hear(&self.index, &message, now).or(need);
        }
        self.ask_for(id, need);
    }

    /// Asks for what a view needs.
    fn ask_for(&mut self, id: FeedId, need: Needed) {
        let (Some(need), Some(feed)) = (need, self.feeds.get_mut(&id)) else {
            return;
        };
        match need {
            Need::Replay { from } => {
                let place = feed.opening.replay.as_ref();
                let asked = place.map(|place| socket::ask(&mut self.contexts, place, from));
                if let Some(Ok(socket)) = asked {
                    feed.replay = Some((socket, Instant::now() + REPLAY_PATIENCE));
                } else {
                    // The next tick says so.
                    feed.replay = None;
                    self.fail_replay(id);
                }
            }
            Need::Snapshot => {
                feed.replay = None;
                if let Some(before) = feed.snapshot.take() {
                    before.task.abort();
                }
                let Some(url) = feed.opening.snapshot_url.clone() else {
                    return;
                };
                self.attempts += 1;
                let attempt = Attempt(self.attempts);
                let pause = if feed.pause == PAUSE { Duration::ZERO } else { feed.pause };
                let from = (url, self.access.token.clone());
                let reading = snapshot::read(from, pause, (id, attempt), self.own.clone());
                let task = self.runtime.spawn(reading);
                feed.snapshot = Some(Snapshot {
                    attempt,
                    is_whole: false,
                    reader: SnapshotReader::new(),
                    task,
                });
                feed.pause = (feed.pause * 2).min(PAUSE_MAX);
            }
        }
    }

    fn fail_replay(&mut self, id: FeedId) {
        let now = self.now();
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        feed.replay = None;
        let need = match &mut feed.view {
            View::Engine(view) => view.replay_failed(&self.index, now),
            View::Host(view, _) => view.replay_failed(&self.index, now),
        };
        // A replay that fails at once is not asked for again at once: only a snapshot can follow.
        self.ask_for(id, need.filter(|need| *need == Need::Snapshot));
    }

    fn take_piece(&mut self, id: FeedId, attempt: Attempt, piece: Piece) {
        let now = self.now();
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        let (Some(reading), View::Host(view, _)) = (&mut feed.snapshot, &mut feed.view) else {
            return;
        };
        if reading.attempt != attempt {
            return;
        }
        let taken = match piece {
            Ok(Some(bytes)) => {
                reading.reader.push(&bytes);
                loop {
                    match reading.reader.next_item() {
                        Ok(Some(item)) => {
                            reading.is_whole |= matches!(item, SnapshotItem::End { .. });
                            if let Some(need) = view.snapshot(&self.index, &item, now) {
                                break Ok(Some(need));
                            }
                        }
                        Ok(None) => break Ok(None),
                        Err(malformed) => break Err(malformed.to_string()),
                    }
                }
            }
            Ok(None) if !reading.is_whole => Err("it ended before its end".to_owned()),
            Ok(None) => {
                feed.snapshot = None;
                feed.pause = PAUSE;
                Ok(None)
            }
            Err(why) => Err(why),
        };
        let need = taken.unwrap_or_else(|reason| {
            tracing::info!(host = &*view.source().host, reason, "a snapshot could not be read");
            view.snapshot_failed()
        });
        self.ask_for(id, need);
    }

    fn tick(&mut self) {
        let now = self.now();
        let (mut needs, mut late) = (Vec::new(), Vec::new());
        for (id, feed) in &mut self.feeds {
            match &mut feed.view {
                View::Engine(view) => view.tick(&self.index, now),
                View::Host(view, _) => needs.push((*id, view.tick(&self.index, now))),
            }
            feed.take_news(&self.index, now);
            if feed.replay.as_ref().is_some_and(|(_, deadline)| *deadline < Instant::now()) {
                late.push(*id);
            }
            feed.show(&self.changes, &self.meters);
        }
        for (id, need) in needs {
            self.ask_for(id, need);
        }
        for id in late {
            self.fail_replay(id);
        }
    }
}

/// One hint for each namespace: each rank has its own.
fn tell(hints: &Hints, host: &str, reading: &Reading, found: &[Keys]) {
    for Keys { model, compat_key, keys } in found {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let (namespace, deadline_ms) = (Namespace { model, compat_key }, reading.deadline_ms());
        hints.tell(host, &Hint { namespace, keys: &keys, deadline_ms });
    }
}

impl Feed {
    /// Takes note of what became of the connection. A daemon's messages name its life, an engine's do not.
    fn take_news(&mut self, index: &Index, now: Moment) {
        let news = self.subscription.news();
        if let Some(is_connected) = news.is_connected {
            self.status.is_connected.store(is_connected, Ordering::Relaxed);
        }
        if let View::Engine(view) = &mut self.view
            && news.was_lost
        {
            view.disconnected(index, now);
        }
    }

    fn hear(&mut self, index: &Index, message: &Live<'_>, now: Moment) -> Needed {
        match &mut self.view {
            View::Engine(view) if message.topic.starts_with(ENGINE_TOPIC.as_bytes()) => {
                view.live(index, message.seq, message.payload, now)
            }
            View::Host(view, links) if message.topic == STATS_TOPIC.as_bytes() => {
                if view.figure(message.payload) {
                    links.measure(view.figures().to_vec());
                }
                None
            }
            View::Host(view, _) if message.topic == EVENTS_TOPIC.as_bytes() => {
                view.live(index, message.seq?, message.payload, now)
            }
            View::Engine(_) | View::Host(..) => None,
        }
    }

    /// Shows others what they may see of it.
    fn show(&mut self, changes: &AtomicU64, meters: &Meters) {
        let (heard, counts, is_doubted, block_size) = match &self.view {
            View::Engine(view) => {
                (&meters.engine_events, view.counts(), view.is_doubted(), view.block_size())
            }
            View::Host(view, _) => (&meters.host_events, view.counts(), view.is_doubted(), None),
        };
        self.status.is_doubted.store(is_doubted, Ordering::Relaxed);
        let block_size = block_size.unwrap_or(0);
        if self.status.block_size.swap(block_size, Ordering::Relaxed) != block_size {
            changes.fetch_add(1, Ordering::Relaxed);
        }
        let before = std::mem::replace(&mut self.counted, *counts);
        heard.count_since(&before, counts);
    }
}
