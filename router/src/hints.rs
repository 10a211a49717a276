//! Tells daemons which blocks will be asked for soon, so that they are in memory by then: the one on this host by its
//! socket, others where they take hints by HTTP. Nobody waits for it: what can't be told at once is counted, not kept.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::Request;
use hyper::header::AUTHORIZATION;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kvd_proto::block_key::Namespace;
use kvd_proto::pack::Array;
use kvd_proto::v1::hello::Hello;
use kvd_proto::v1::prefetch_hint::PrefetchHint;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::hosts::{self, Host, Links};
use crate::meters::{Meters, Prefetch};
use crate::phase::{self, Phase};

/// Keys in one hint by the socket; daemons of other releases drop more.
const KEYS_MAX: usize = 64;
/// The same by HTTP, which is ours: half of what a daemon takes in a body, with the longest keys.
const POST_KEYS_MAX: usize = 2_048;
/// Messages that wait for the daemon on this host, for all others, and for one of those.
const WAITING_MAX: usize = 2_048;
const LANE_MAX: usize = 512;
/// A daemon that takes longer than this to take a hint gets none.
const PATIENCE: Duration = Duration::from_secs(1);
/// In front of each message on a socket: its length.
const PREFIX_BYTES: usize = 4;

/// A message for a daemon elsewhere.
#[derive(Debug)]
struct Post {
    url: String,
    links: Arc<Links>,
    body: Bytes,
}

/// The way to daemons.
#[derive(Debug, Clone)]
pub struct Hints {
    /// To the daemon on this host, if there is one.
    local: Option<mpsc::Sender<Bytes>>,
    posts: mpsc::Sender<Post>,
    hosts: hosts::Shared,
    meters: Arc<Meters>,
}

/// What is to be told.
#[derive(Debug, Clone, Copy)]
pub struct Hint<'a> {
    /// Where the keys belong.
    pub namespace: Namespace<'a>,
    /// The daemons' keys.
    pub keys: &'a [&'a [u8]],
    /// How long the copies in memory are of use, in milliseconds.
    pub deadline_ms: i64,
}

impl Hint<'_> {
    /// As messages of so many keys with their length in front.
    fn frames(&self, keys_max: usize) -> impl Iterator<Item = Bytes> {
        let Self { namespace, deadline_ms, .. } = *self;
        self.keys.chunks(keys_max).map(move |keys| {
            let mut out = Vec::new();
            PrefetchHint { keys: Array::Slice(keys), namespace, deadline_ms }.encode(&mut out);
            Bytes::from(out)
        })
    }
}

impl Hints {
    /// Hints to the daemon at `socket`, if there is one, and to `hosts`, which are shown `token`. Whoever takes them there has
    /// to be run.
    #[must_use]
    pub fn new(
        socket: Option<PathBuf>,
        token: Option<&str>,
        hosts: hosts::Shared,
        meters: Arc<Meters>,
    ) -> (Self, Runner) {
        let (posts, to_post) = mpsc::channel(WAITING_MAX);
        let (local, frames) = mpsc::channel(WAITING_MAX);
        let local = socket.as_ref().map(|_| local);
        let client = Client::builder(TokioExecutor::new()).build_http();
        let authorization = token.map(|token| format!("Bearer {token}"));
        let to_hosts =
            ToHosts { client, authorization, lanes: HashMap::new(), meters: Arc::clone(&meters) };
        let to_local =
            ToLocal { socket, connection: None, is_refused: false, meters: Arc::clone(&meters) };
        let runner = Runner { to_local, frames, to_hosts, posts: to_post };
        (Self { local, posts, hosts, meters }, runner)
    }

    /// Whether anybody takes hints.
    #[must_use]
    pub fn has_takers(&self) -> bool {
        let hosts = self.hosts.load();
        self.local.is_some() || hosts.iter().any(|host| host.registration.prefetch_url.is_some())
    }

    /// Hosts whose daemons take hints.
    #[must_use]
    pub fn hosts(&self) -> Vec<Arc<Host>> {
        let hosts = self.hosts.load();
        hosts.iter().filter(|host| host.registration.prefetch_url.is_some()).cloned().collect()
    }

    /// Tells the daemon on this host; false if there is none.
    pub fn tell_local(&self, hint: &Hint<'_>) -> bool {
        let Some(local) = &self.local else { return false };
        for frame in hint.frames(KEYS_MAX) {
            if local.try_send(frame).is_err() {
                self.meters.prefetches.count(Prefetch::Dropped);
            }
        }
        true
    }

    /// Tells the daemon on another host; false if it takes no hints.
    pub fn tell(&self, host_id: &str, hint: &Hint<'_>) -> bool {
        let hosts = self.hosts.load();
        let Some(host) = hosts.get(host_id) else { return false };
        let Some(url) = &host.registration.prefetch_url else { return false };
        for frame in hint.frames(POST_KEYS_MAX) {
            let (url, links) = (url.clone(), Arc::clone(&host.links));
            let post = Post { url, links, body: frame.slice(PREFIX_BYTES..) };
            if self.posts.try_send(post).is_err() {
                self.meters.prefetches.count(Prefetch::Dropped);
            }
        }
        true
    }
}

/// Takes hints to daemons.
#[derive(Debug)]
pub struct Runner {
    to_local: ToLocal,
    frames: mpsc::Receiver<Bytes>,
    to_hosts: ToHosts,
    posts: mpsc::Receiver<Post>,
}

impl Runner {
    /// Sends hints until the process is closing.
    pub async fn run(self, mut phase: phase::Current) {
        let Self { to_local, frames, to_hosts, posts } = self;
        tokio::select! {
            ((), ()) = async { tokio::join!(to_local.run(frames), to_hosts.run(posts)) } => {}
            () = phase::reached(&mut phase, Phase::Closing) => {}
        }
    }
}

/// To other hosts: one message at a time to each, so that one that is slow keeps nobody else waiting.
#[derive(Debug)]
struct ToHosts {
    client: Client<HttpConnector, Full<Bytes>>,
    authorization: Option<String>,
    /// By their URLs, of hosts to which a message is under way: those that wait.
    lanes: HashMap<String, VecDeque<Post>>,
    meters: Arc<Meters>,
}

impl ToHosts {
    async fn run(mut self, mut posts: mpsc::Receiver<Post>) {
        let mut under_way = FuturesUnordered::new();
        loop {
            let next = tokio::select! {
                Some((post, is_taken)) = under_way.next() => self.next_after(&post, is_taken),
                Some(post) = posts.recv() => self.enter(post),
                else => return,
            };
            if let Some(post) = next {
                let (client, authorization) = (self.client.clone(), self.authorization.clone());
                under_way.push(async move {
                    let is_taken = is_taken(client, authorization, &post).await;
                    (post, is_taken)
                });
            }
        }
    }

    /// The message, if nothing is under way to its host.
    fn enter(&mut self, post: Post) -> Option<Post> {
        let Some(lane) = self.lanes.get_mut(&post.url) else {
            self.lanes.insert(post.url.clone(), VecDeque::new());
            return Some(post);
        };
        if lane.len() < LANE_MAX {
            lane.push_back(post);
        } else {
            self.meters.prefetches.count(Prefetch::Dropped);
        }
        None
    }

    /// The next message to the host of this one. There is none to a host that has just not taken one: what waits would be
    /// too late.
    fn next_after(&mut self, post: &Post, is_taken: bool) -> Option<Post> {
        post.links.set_takes_hints(is_taken);
        let count = |result| self.meters.prefetches.count(result);
        count(if is_taken { Prefetch::Sent } else { Prefetch::Failed });
        let lane = self.lanes.get_mut(&post.url)?;
        if !is_taken {
            tracing::debug!(url = post.url, "a daemon did not take a hint");
            lane.drain(..).for_each(|_| count(Prefetch::Failed));
        }
        let next = lane.pop_front();
        if next.is_none() {
            self.lanes.remove(&post.url);
        }
        next
    }
}

async fn is_taken(
    client: Client<HttpConnector, Full<Bytes>>,
    authorization: Option<String>,
    post: &Post,
) -> bool {
    let mut request = Request::post(&post.url);
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let Ok(request) = request.body(Full::new(post.body.clone())) else { return false };
    let answer = timeout(PATIENCE, client.request(request)).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|it| it.status().is_success()))
}

/// To the daemon on this host. The connection is made when it is needed, and kept.
#[derive(Debug)]
struct ToLocal {
    socket: Option<PathBuf>,
    connection: Option<UnixStream>,
    /// Whether the last hint to it failed, which was said then.
    is_refused: bool,
    meters: Arc<Meters>,
}

impl ToLocal {
    async fn run(mut self, mut frames: mpsc::Receiver<Bytes>) {
        while let Some(frame) = frames.recv().await {
            let is_sent = self.send_again(&frame).await;
            self.meters.prefetches.count(if is_sent { Prefetch::Sent } else { Prefetch::Failed });
        }
    }

    async fn send_again(&mut self, frame: &[u8]) -> bool {
        let was_connected = self.connection.is_some();
        let mut sent = self.send(frame).await;
        if sent.is_err() && was_connected {
            // The daemon has been started anew since.
            sent = self.send(frame).await;
        }
        let was_refused = std::mem::replace(&mut self.is_refused, sent.is_err());
        if let Err(error) = &sent
            && !was_refused
        {
            let socket = self.socket.as_deref().unwrap_or(Path::new("")).display();
            tracing::warn!(%error, %socket, "the daemon at --kvd-socket-path takes no hints");
        }
        sent.is_ok()
    }

    async fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        timeout(PATIENCE, connection.write_all(frame)).await??;
        self.connection = Some(connection);
        Ok(())
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut connection = timeout(PATIENCE, UnixStream::connect(socket)).await??;
        let mut hello = Vec::new();
        Hello { client_id: "infera-router", protocol_version: 1, prefers_shared_arena: false }
            .encode(&mut hello);
        timeout(PATIENCE, connection.write_all(&hello)).await??;
        Ok(connection)
    }
}
