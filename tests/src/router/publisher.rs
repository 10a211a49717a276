//! Publishes events as engines and daemons do, over real sockets, and answers who missed some.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use kvd_proto::events::frames::{END, ENGINE_TOPIC};
use kvd_proto::events::{BatchWriter, BlockHash, Event, Parent, Place, Removed, Stored, Token};
use kvd_proto::pack::Array;
use zmq::{Context, DONTWAIT, POLLIN, Socket, SocketType};

use crate::until::until_true;

/// Messages so far, for replays.
type Kept = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// A publisher.
pub struct Publisher {
    socket: Socket,
    endpoint: String,
    replay_endpoint: String,
    next: u64,
    kept: Kept,
    is_over: Arc<Mutex<bool>>,
    replayer: Option<JoinHandle<()>>,
    _context: Context,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Publisher at {}", self.endpoint)
    }
}

impl Publisher {
    /// Starts one on free ports.
    ///
    /// # Panics
    /// If it can't.
    #[must_use]
    pub fn start() -> Self {
        Self::start_at("tcp://127.0.0.1:*")
    }

    /// Starts one where another was, as another life: its numbers begin anew, and it replays nothing from before.
    ///
    /// # Panics
    /// If it can't.
    #[must_use]
    pub fn start_at(endpoint: &str) -> Self {
        let context = Context::new();
        let socket = context.socket(SocketType::XPUB).expect("a socket");
        // Each subscription is shown, also of topics that somebody else listens to.
        socket.set_xpub_verbose(true).expect("an option");
        socket.set_linger(0).expect("an option");
        let endpoint = bind(&socket, endpoint);
        let replays = context.socket(SocketType::ROUTER).expect("a socket");
        replays.set_linger(0).expect("an option");
        let replay_endpoint = bind(&replays, "tcp://127.0.0.1:*");
        let (kept, is_over) = (Kept::default(), Arc::new(Mutex::new(false)));
        let (for_replays, until) = (Arc::clone(&kept), Arc::clone(&is_over));
        let replayer = std::thread::Builder::new()
            .name("mock-replay".to_owned())
            .spawn(move || replay(&replays, &for_replays, &until));
        let replayer = Some(replayer.expect("starting a thread"));
        Self {
            socket,
            endpoint,
            replay_endpoint,
            next: 0,
            kept,
            is_over,
            replayer,
            _context: context,
        }
    }

    /// Where it publishes.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Where it replays.
    #[must_use]
    pub fn replay_endpoint(&self) -> &str {
        &self.replay_endpoint
    }

    /// Waits until somebody has subscribed since the last call.
    pub fn wait_for_listener(&self) {
        until_true("somebody listens", || {
            self.socket.recv_bytes(DONTWAIT).is_ok_and(|said| said.first() == Some(&1))
        });
    }

    /// Publishes events of an engine in one message.
    ///
    /// # Panics
    /// If it can't.
    pub fn publish(&mut self, events: &[Event<'_>]) {
        let payload = batch(events);
        self.keep(&payload);
        self.send(ENGINE_TOPIC, self.next - 1, &payload);
    }

    /// Publishes events that are lost on the way; a replay has them.
    ///
    /// # Panics
    /// Never.
    pub fn lose(&mut self, events: &[Event<'_>]) {
        self.keep(&batch(events));
    }

    fn keep(&mut self, payload: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((self.next, payload.to_vec()));
        self.next += 1;
    }

    /// Sends a message as it is.
    ///
    /// # Panics
    /// If it can't.
    pub fn send(&self, topic: &str, seq: u64, payload: &[u8]) {
        let frames = [topic.as_bytes(), &seq.to_be_bytes(), payload];
        self.socket.send_multipart(frames, DONTWAIT).expect("publishing");
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        if let Some(replayer) = self.replayer.take() {
            // It is a test that panics, if anybody.
            drop(replayer.join());
        }
    }
}

/// A payload.
#[must_use]
pub fn batch(events: &[Event<'_>]) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut batch = BatchWriter::begin(&mut payload, 1.5);
    events.iter().for_each(|event| batch.push(event));
    batch.finish();
    payload
}

/// So many tokens, as a prompt of their numbers; others for another `seed`.
#[must_use]
pub fn prompt(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|at| seed * 1_000 + at % 997).collect()
}

/// What an engine calls the blocks of a prompt.
fn hashes(tokens: &[u32], block_size: usize) -> Vec<BlockHash<'static>> {
    let seed = tokens.first().copied().unwrap_or(0);
    let count = u64::try_from(tokens.len() / block_size).expect("a number");
    (0..count).map(|at| BlockHash::Bits((u64::from(seed) << 32) + at + 1)).collect()
}

/// Calls `then` with the event that all blocks of a prompt are on the device.
pub fn with_stored<T>(tokens: &[u32], block_size: usize, then: impl FnOnce(Event<'_>) -> T) -> T {
    let hashes = hashes(tokens, block_size);
    let whole = &tokens[..tokens.len() / block_size * block_size];
    let tokens: Vec<Token> = whole.iter().map(|token| Token(*token)).collect();
    then(Event::Stored(Stored {
        block_hashes: Array::Slice(&hashes),
        parent: Parent::Root,
        tokens: Array::Slice(&tokens),
        block_size: u32::try_from(block_size).expect("a block size"),
        place: Place { medium: Some("GPU"), ..Place::default() },
        ..Stored::default()
    }))
}

/// Calls `then` with the event that all blocks of a prompt are gone from the device.
pub fn with_removed<T>(tokens: &[u32], block_size: usize, then: impl FnOnce(Event<'_>) -> T) -> T {
    let hashes = hashes(tokens, block_size);
    then(Event::Removed(Removed {
        block_hashes: Array::Slice(&hashes),
        place: Place { medium: Some("GPU"), ..Place::default() },
        ..Removed::default()
    }))
}

fn bind(socket: &Socket, endpoint: &str) -> String {
    socket.bind(endpoint).expect("binding");
    socket.get_last_endpoint().expect("an endpoint").expect("text")
}

fn replay(socket: &Socket, kept: &Kept, is_over: &Mutex<bool>) {
    while !*is_over.lock().unwrap_or_else(PoisonError::into_inner) {
        socket.poll(POLLIN, 20).expect("polling");
        let Ok(frames) = socket.recv_multipart(DONTWAIT) else { continue };
        // As vLLM reads it: who asks, the empty frame, the first number.
        let [identity, delimiter, start] = frames.as_slice() else { panic!("{frames:?}") };
        assert!(delimiter.is_empty(), "{frames:?}");
        let start = u64::from_be_bytes(start.as_slice().try_into().expect("a number"));
        let messages = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wanted = messages.iter().filter(|(seq, _)| *seq >= start);
        let answers =
            wanted.map(|(seq, payload)| (*seq, payload.as_slice())).chain([(END, &[][..])]);
        for (seq, payload) in answers {
            let frames = [identity.as_slice(), &[], &seq.to_be_bytes(), payload];
            socket.send_multipart(frames, 0).expect("answering");
        }
    }
}
