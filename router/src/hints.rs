//! Tells daemons which blocks will be asked for soon, so that they are in memory by then: the one on this host by its
//! socket, others where they take hints by HTTP. Nobody waits for it: what can't be told at once is counted, not kept.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::Request;
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

use crate::hosts;
use crate::meters::{Meters, Prefetch};
use crate::phase::{self, Phase};

/// Keys in one hint; daemons of other releases drop more.
const KEYS_MAX: usize = 64;
/// Messages that wait to be sent, and that are under way by HTTP.
const WAITING_MAX: usize = 2_048;
const POSTS_MAX: usize = 64;
/// A daemon that takes longer than this to take a hint gets none.
const PATIENCE: Duration = Duration::from_secs(1);
/// In front of each message on a socket: its length.
const PREFIX_BYTES: usize = 4;

/// A message and where it goes.
#[derive(Debug)]
enum Errand {
    Local(Bytes),
    Post(String, Bytes),
}

/// The way to daemons.
#[derive(Debug)]
pub struct Hints {
    errands: mpsc::Sender<Errand>,
    has_local: bool,
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
    /// As messages with their length in front.
    fn frames(&self) -> Vec<Bytes> {
        let Self { namespace, deadline_ms, .. } = *self;
        let frame = |keys: &[&[u8]]| {
            let mut out = Vec::new();
            PrefetchHint { keys: Array::Slice(keys), namespace, deadline_ms }.encode(&mut out);
            Bytes::from(out)
        };
        self.keys.chunks(KEYS_MAX).map(frame).collect()
    }
}

impl Hints {
    /// Hints to the daemon at `socket`, if there is one, and to `hosts`. Whoever takes them there has to be run.
    #[must_use]
    pub fn new(
        socket: Option<PathBuf>,
        hosts: hosts::Shared,
        meters: Arc<Meters>,
    ) -> (Self, Runner) {
        let (sender, errands) = mpsc::channel(WAITING_MAX);
        let has_local = socket.is_some();
        let to_hosts = Client::builder(TokioExecutor::new()).build_http();
        let counted = Arc::clone(&meters);
        let runner = Runner {
            socket,
            errands,
            to_hosts,
            meters: counted,
            connection: None,
            is_refused: false,
        };
        (Self { errands: sender, has_local, hosts, meters }, runner)
    }

    /// Tells everybody who takes hints; who that is.
    pub fn tell(&self, hint: &Hint<'_>) -> Vec<String> {
        let frames = hint.frames();
        let mut told = Vec::new();
        if self.has_local {
            told.push("local".to_owned());
            frames.iter().for_each(|frame| self.send(Errand::Local(frame.clone())));
        }
        for host in self.hosts.load().iter() {
            let Some(url) = &host.registration.prefetch_url else { continue };
            told.push(host.registration.host_id.clone());
            let bodies = frames.iter().map(|frame| frame.slice(PREFIX_BYTES..));
            bodies.for_each(|body| self.send(Errand::Post(url.clone(), body)));
        }
        told
    }

    fn send(&self, errand: Errand) {
        if self.errands.try_send(errand).is_err() {
            self.meters.prefetches.count(Prefetch::Dropped);
        }
    }
}

/// Takes hints to daemons. The connection to the one on this host is made when it is needed, and kept.
#[derive(Debug)]
pub struct Runner {
    socket: Option<PathBuf>,
    errands: mpsc::Receiver<Errand>,
    to_hosts: Client<HttpConnector, Full<Bytes>>,
    meters: Arc<Meters>,
    connection: Option<UnixStream>,
    /// Whether the last hint to it failed, which was said then.
    is_refused: bool,
}

impl Runner {
    /// Sends hints until the process is closing.
    pub async fn run(mut self, mut phase: phase::Current) {
        let mut posts = FuturesUnordered::new();
        loop {
            let is_sent = tokio::select! {
                Some(is_sent) = posts.next() => is_sent,
                Some(errand) = self.errands.recv(), if posts.len() < POSTS_MAX => match errand {
                    Errand::Local(frame) => self.send_again(&frame).await,
                    Errand::Post(url, body) => {
                        posts.push(post(self.to_hosts.clone(), url, body));
                        continue;
                    }
                },
                () = phase::reached(&mut phase, Phase::Closing) => return,
            };
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

async fn post(client: Client<HttpConnector, Full<Bytes>>, url: String, body: Bytes) -> bool {
    let Ok(request) = Request::post(url).body(Full::new(body)) else { return false };
    let answer = timeout(PATIENCE, client.request(request)).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|it| it.status().is_success()))
}
