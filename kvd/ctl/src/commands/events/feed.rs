//! Messages in their order: live ones, and replays of those that are missing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kvd_proto::events::frames::{self, EVENTS_TOPIC};
use kvd_proto::events::{Live, Replayed};
use serde::Deserialize;
use zmq::{Context, Socket, SocketType};

use crate::admin::Admin;

/// A replay goes on, or it is given up.
const REPLAY_PATIENCE_MS: i32 = 5_000;
/// Messages that wait here.
const WAITING_MAX: i32 = 200_000;

/// Where the daemon says that its events are.
#[derive(Debug, Deserialize)]
pub(super) struct Places {
    events: Option<String>,
    replay: Option<String>,
    curve_server_key: Option<String>,
    /// The last message that is published.
    pub(super) seq: u64,
}

pub(super) fn places(admin: &Admin) -> Result<Places> {
    admin.get("/v1/events", &[]).context("asking where events are published")
}

/// What a wait for a message ends with.
#[derive(Debug)]
pub(super) enum Heard {
    /// The next one.
    Message { seq: u64, payload: Vec<u8> },
    /// None came.
    Nothing,
    /// Some are missing for good: only a snapshot helps.
    Lost,
}

/// A subscription.
pub(super) struct Feed {
    subscriber: Socket,
    context: Context,
    replay: String,
    keys: Option<[Vec<u8>; 3]>,
    epoch: Option<u64>,
    last: Option<u64>,
    /// What a replay brought, in reverse order.
    brought: Vec<(u64, Vec<u8>)>,
    /// The live message behind which it stands.
    ahead: Option<(u64, Vec<u8>)>,
    pub(super) replayed: u64,
}

impl Feed {
    pub(super) fn open(admin: &Admin, curve_file: Option<&Path>) -> Result<Self> {
        let Places { events, replay, curve_server_key, .. } = places(admin)?;
        let (Some(events), Some(replay)) = (events, replay) else {
            bail!("the daemon does not publish yet");
        };
        let keys = match (curve_server_key, curve_file) {
            (None, _) => None,
            (Some(_), None) => bail!("the sockets of events take a key: give --curve-file"),
            (Some(server), Some(path)) => Some(keys(&server, path)?),
        };
        let context = Context::new();
        let subscriber = connect(&context, SocketType::SUB, &events, keys.as_ref())?;
        subscriber.set_rcvhwm(WAITING_MAX)?;
        subscriber.set_subscribe(EVENTS_TOPIC.as_bytes())?;
        let (epoch, last, brought, ahead) = (None, None, Vec::new(), None);
        Ok(Self { subscriber, context, replay, keys, epoch, last, brought, ahead, replayed: 0 })
    }

    /// Messages up to this one are known.
    pub(super) fn go_on_from(&mut self, epoch: u64, seq: u64) {
        if self.epoch != Some(epoch) || self.last.is_none_or(|last| last < seq) {
            self.epoch = Some(epoch);
            self.last = Some(seq);
        }
    }

    /// The next message.
    pub(super) fn next(&mut self, patience: Duration) -> Result<Heard> {
        while let Some((seq, payload)) = self.brought.pop().or_else(|| self.ahead.take()) {
            if self.last.is_none_or(|last| seq > last) {
                return self.in_order(seq, payload);
            }
        }
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left_ms = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
            if self.subscriber.poll(zmq::POLLIN, left_ms)? == 0 {
                return Ok(Heard::Nothing);
            }
            let parts = self.subscriber.recv_multipart(0)?;
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let Live { seq, payload, .. } = Live::parse(&parts)?;
            let seq = seq.context("a message without a number")?;
            if self.last.is_none_or(|last| seq > last) {
                return self.in_order(seq, payload.to_vec());
            }
        }
    }

    fn in_order(&mut self, seq: u64, payload: Vec<u8>) -> Result<Heard> {
        match self.last {
            Some(last) if seq > last + 1 => {
                let is_whole = self.ask_again(last + 1, seq)?;
                if !is_whole {
                    self.last = None;
                    return Ok(Heard::Lost);
                }
                self.ahead = Some((seq, payload));
                self.next(Duration::ZERO)
            }
            Some(_) | None => {
                self.last = Some(seq);
                Ok(Heard::Message { seq, payload })
            }
        }
    }

    /// Whether all messages from `from` on and before `end` came.
    fn ask_again(&mut self, from: u64, end: u64) -> Result<bool> {
        let dealer = connect(&self.context, SocketType::DEALER, &self.replay, self.keys.as_ref())?;
        dealer.set_rcvtimeo(REPLAY_PATIENCE_MS)?;
        dealer.send_multipart(frames::replay_request(from).map(Vec::from), 0)?;
        let mut next = from;
        loop {
            let Ok(parts) = dealer.recv_multipart(0) else { return Ok(false) };
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            match Replayed::parse(&parts)? {
                Replayed::Message { seq, payload, epoch } => {
                    if seq != next || epoch.is_some_and(|epoch| Some(epoch) != self.epoch) {
                        return Ok(false);
                    }
                    next += 1;
                    self.replayed += u64::from(seq < end);
                    if seq < end {
                        self.brought.insert(0, (seq, payload.to_vec()));
                    }
                }
                Replayed::End => return Ok(next >= end),
                Replayed::TooOld => return Ok(false),
            }
        }
    }
}

fn connect(
    context: &Context,
    kind: SocketType,
    endpoint: &str,
    keys: Option<&[Vec<u8>; 3]>,
) -> Result<Socket> {
    let socket = context.socket(kind)?;
    socket.set_linger(0)?;
    if let Some([server, public, secret]) = keys {
        socket.set_curve_serverkey(server)?;
        socket.set_curve_publickey(public)?;
        socket.set_curve_secretkey(secret)?;
    }
    // Whoever listens on all addresses listens on this host's own, too.
    let endpoint = endpoint.replace("tcp://0.0.0.0:", "tcp://127.0.0.1:");
    let endpoint = endpoint.replace("tcp://[::]:", "tcp://[::1]:");
    socket.set_ipv6(endpoint.contains('['))?;
    socket.connect(&endpoint).with_context(|| format!("connecting to {endpoint}"))?;
    Ok(socket)
}

/// The keys of the server and of this client.
fn keys(server: &str, path: &Path) -> Result<[Vec<u8>; 3]> {
    let about = || path.display().to_string();
    let mode = std::fs::metadata(path).with_context(about)?.permissions().mode();
    ensure!(mode & 0o077 == 0, "{}: others than its owner may use it", path.display());
    let text = std::fs::read_to_string(path).with_context(about)?;
    let words = text.lines().find_map(|line| line.trim().strip_prefix("client "));
    let words: Vec<&str> = words.unwrap_or_default().split_whitespace().collect();
    let [public, secret] = words.as_slice() else {
        bail!("{}: there is no line `client PUBLIC SECRET`", path.display());
    };
    Ok([zmq::z85_decode(server)?, zmq::z85_decode(public)?, zmq::z85_decode(secret)?])
}
