//! Every attached session: who it is, what it did, and the thread that serves it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvd_proto::ids::SessionId;
use kvd_shm::nudge::nudge;
use kvd_shm::peer::PeerCredentials;

use crate::succession::handover::note::SessionNote;

/// What an operator wants to know of a session. Counters are written by its own thread only.
#[derive(Debug)]
pub struct Facts {
    /// The session.
    pub id: SessionId,
    /// Who connected: process and user as this daemon's namespaces see them.
    pub credentials: PeerCredentials,
    /// When it attached.
    pub since: Instant,
    /// The name it gave itself in `hello`.
    pub client_id: OnceLock<String>,
    /// Protocol version it speaks, 1 until its `hello` says otherwise.
    pub protocol: AtomicU8,
    /// Whether it received the arena's descriptor.
    pub has_arena: AtomicBool,
    /// Frames handled.
    pub requests: AtomicU64,
}

impl Facts {
    /// Facts of a session that has just connected.
    #[must_use]
    pub fn new(id: SessionId, credentials: PeerCredentials) -> Self {
        Self {
            id,
            credentials,
            since: Instant::now(),
            client_id: OnceLock::new(),
            protocol: AtomicU8::new(1),
            has_arena: AtomicBool::new(false),
            requests: AtomicU64::new(0),
        }
    }
}

impl Facts {
    /// Facts of a session that another daemon has served before.
    #[must_use]
    pub fn going_on(note: &SessionNote, credentials: PeerCredentials) -> Self {
        let facts = Self::new(note.id, credentials);
        if let Some(client_id) = &note.client_id {
            facts.introduce(client_id);
        }
        let now = Instant::now();
        Self {
            since: now.checked_sub(Duration::from_millis(note.age_ms)).unwrap_or(now),
            protocol: AtomicU8::new(note.protocol),
            has_arena: AtomicBool::new(note.has_arena),
            requests: AtomicU64::new(note.requests),
            ..facts
        }
    }

    /// Remembers the name that a peer gives itself; true the first time. A later `hello` changes
    /// nothing.
    pub(crate) fn introduce(&self, client_id: &str) -> bool {
        let name = client_id.chars().take(CLIENT_ID_CHARS_MAX).collect();
        self.client_id.set(name).is_ok()
    }

    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is kept of a client's name.
const CLIENT_ID_CHARS_MAX: usize = 256;

#[derive(Debug)]
struct Attached {
    facts: Arc<Facts>,
    stream: Arc<UnixStream>,
    /// Set right after the thread has started; its end waits for that.
    thread: Option<JoinHandle<()>>,
}

/// All sessions. A thread that ends hands its own handle to the list of the finished, where the
/// accept thread joins it.
#[derive(Debug, Default)]
pub struct Registry {
    attached: Mutex<BTreeMap<SessionId, Attached>>,
    finished: Mutex<Vec<JoinHandle<()>>>,
    left: Condvar,
}

impl Registry {
    /// Adds a session before its thread starts.
    pub fn insert(&self, facts: Arc<Facts>, stream: Arc<UnixStream>) {
        let id = facts.id;
        let previous = self.lock().insert(id, Attached { facts, stream, thread: None });
        assert!(previous.is_none(), "session ids are never reused");
    }

    /// Hands over the thread of a session, which may have ended already.
    pub fn own_thread(&self, id: SessionId, thread: JoinHandle<()>) {
        let mut attached = self.lock();
        if let Some(session) = attached.get_mut(&id) {
            session.thread = Some(thread);
        } else {
            self.finished.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
    }

    /// Removes a session; called by its own thread as the last thing it does.
    pub fn remove(&self, id: SessionId) {
        let mut attached = self.lock();
        if let Some(thread) = attached.remove(&id).and_then(|session| session.thread) {
            self.finished.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        self.left.notify_all();
    }

    /// Joins the threads that have ended.
    pub fn join_finished(&self) {
        let finished =
            std::mem::take(&mut *self.finished.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in finished {
            // A panic has already been logged, and has aborted the process in a release build.
            drop(thread.join());
        }
    }

    /// Number of sessions attached now.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no session is attached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The facts of every session, oldest first.
    pub fn facts(&self) -> Vec<Arc<Facts>> {
        self.lock().values().map(|session| Arc::clone(&session.facts)).collect()
    }

    /// Ends the streams of all sessions in the given direction; their threads notice and leave.
    pub fn shut_down(&self, how: Shutdown) {
        self.shut_down_if(how, |_id| true);
    }

    /// As [`Registry::shut_down`], of those sessions that are `meant`.
    pub fn shut_down_if(&self, how: Shutdown, meant: impl Fn(SessionId) -> bool) {
        for (_, session) in self.lock().iter().filter(|(id, _)| meant(**id)) {
            // The peer may be gone already: that is what we want.
            drop(session.stream.shutdown(how));
        }
    }

    /// Gets the threads of all other sessions out of calls that wait; which sessions these are.
    pub fn nudge_all_but(&self, quiet: &BTreeSet<SessionId>) -> BTreeSet<SessionId> {
        let attached = self.lock();
        let others = attached.iter().filter(|(id, _)| !quiet.contains(id));
        others
            .map(|(id, session)| {
                if let Some(Err(error)) = session.thread.as_ref().map(nudge) {
                    tracing::debug!(%error, session = id.0, "its thread could not be nudged");
                }
                *id
            })
            .collect()
    }

    /// Waits until no session is left, at most `patience`; true when none is.
    pub fn wait_empty(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut attached = self.lock();
        while !attached.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            (attached, _) =
                self.left.wait_timeout(attached, left).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Attached>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
