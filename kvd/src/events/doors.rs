//! The sockets, and who is let in.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use zmq::{Context, DONTWAIT, Socket, SocketType};

use super::keys::Keys;
use super::{Endpoints, Meters};
use crate::config::EventsSettings;

/// Messages that wait for one reader; one more is dropped, and the reader sees that a number is missing.
const WAITING_MAX: i32 = 256;
/// Answers that wait for one reader; the rest waits in [`super::replay`].
const ANSWERS_MAX: i32 = 16;
/// A reader that says nothing is asked after so many milliseconds whether it is there.
const HEARTBEAT_MS: i32 = 5_000;
/// And is gone if it does not answer for so many.
const SILENCE_MS: i32 = 15_000;
/// What is sent at the end of the daemon gets so many milliseconds.
const FAREWELL_MS: i32 = 200;
/// Longest request.
const REQUEST_BYTES_MAX: i64 = 1_024;
/// Requests of connections that are judged in one turn.
const JUDGED_MAX: usize = 64;
/// Where libzmq asks who may connect.
const JUDGE: &str = "inproc://zeromq.zap.01";

/// The sockets of events.
pub struct Doors {
    /// Events and figures.
    pub publisher: Socket,
    /// Replays.
    pub replay: Socket,
    /// Where libzmq asks who may connect.
    judge: Option<(Socket, Keys)>,
    _context: Context,
}

impl std::fmt::Debug for Doors {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Doors").field("judge", &self.judge.is_some()).finish_non_exhaustive()
    }
}

impl Doors {
    /// Opens them; where they are.
    ///
    /// # Errors
    /// An address can't be bound, or the keys can't be used.
    pub fn open(settings: &EventsSettings) -> io::Result<(Self, Endpoints)> {
        let keys = settings.curve_file.as_deref().map(Keys::read).transpose();
        let keys = keys.map_err(|why| io::Error::other(format!("--events-curve-file {why}")))?;
        if keys.is_some() && zmq::has("curve") != Some(true) {
            return Err(io::Error::other("this build has no CURVE"));
        }
        let context = Context::new();
        let judge = match keys.clone() {
            Some(keys) => {
                let socket = context.socket(SocketType::REP)?;
                socket.bind(JUDGE)?;
                Some((socket, keys))
            }
            None => None,
        };
        let publisher = socket(&context, SocketType::PUB, keys.as_ref())?;
        publisher.set_sndhwm(WAITING_MAX)?;
        let events = bind(&publisher, settings.listen, "--events-listen")?;
        let replay = socket(&context, SocketType::ROUTER, keys.as_ref())?;
        replay.set_sndhwm(ANSWERS_MAX)?;
        // Otherwise what a reader does not take would be dropped silently.
        replay.set_router_mandatory(true)?;
        let replay_at = bind(&replay, settings.replay_listen, "--events-replay-listen")?;
        let curve_server_key = keys.as_ref().map(|keys| zmq::z85_encode(keys.public()));
        let curve_server_key = curve_server_key.transpose().map_err(io::Error::other)?;
        let endpoints = Endpoints { events, replay: replay_at, curve_server_key };
        Ok((Self { publisher, replay, judge, _context: context }, endpoints))
    }

    /// Sends a message to everybody who listens. A reader that is slow misses it.
    pub fn publish(&self, topic: &str, seq: u64, payload: &[u8]) {
        let parts = [topic.as_bytes(), &seq.to_be_bytes(), payload];
        if let Err(error) = self.publisher.send_multipart(parts, DONTWAIT) {
            tracing::debug!(%error, "a message could not be published");
        }
    }

    /// Waits until somebody asks for something, at most so many milliseconds.
    pub fn wait(&self, timeout_ms: i64) {
        let mut items = vec![self.replay.as_poll_item(zmq::POLLIN)];
        items.extend(self.judge.iter().map(|(socket, _)| socket.as_poll_item(zmq::POLLIN)));
        if let Err(error) = zmq::poll(&mut items, timeout_ms) {
            tracing::debug!(%error, "waiting for requests");
        }
    }

    /// Says who may connect.
    pub fn judge(&self, meters: &Meters) {
        let Some((socket, keys)) = &self.judge else {
            return;
        };
        for _ in 0..JUDGED_MAX {
            let Ok(asked) = socket.recv_multipart(DONTWAIT) else {
                return;
            };
            let number = asked.get(1).map_or(&[][..], Vec::as_slice);
            let is_known = asked.get(5).is_some_and(|mechanism| mechanism == b"CURVE")
                && asked.get(6).is_some_and(|client| keys.admit(client));
            let (status, text): (&[u8], &[u8]) = if is_known {
                (b"200", b"OK")
            } else {
                meters.keys_refused.fetch_add(1, Ordering::Relaxed);
                (b"400", b"this key is not on the list")
            };
            let answer: [&[u8]; 6] = [b"1.0", number, status, text, b"", b""];
            if let Err(error) = socket.send_multipart(answer, DONTWAIT) {
                tracing::debug!(%error, "a connection could not be judged");
            }
        }
    }
}

fn socket(context: &Context, kind: SocketType, keys: Option<&Keys>) -> io::Result<Socket> {
    let socket = context.socket(kind)?;
    socket.set_linger(FAREWELL_MS)?;
    socket.set_heartbeat_ivl(HEARTBEAT_MS)?;
    socket.set_heartbeat_timeout(SILENCE_MS)?;
    socket.set_tcp_keepalive(1)?;
    socket.set_maxmsgsize(REQUEST_BYTES_MAX)?;
    if let Some(keys) = keys {
        socket.set_curve_server(true)?;
        socket.set_curve_secretkey(keys.secret())?;
        socket.set_zap_domain("kvd")?;
    }
    Ok(socket)
}

fn bind(socket: &Socket, address: SocketAddr, option: &str) -> io::Result<String> {
    socket.set_ipv6(address.is_ipv6())?;
    socket.bind(&format!("tcp://{address}")).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{option} {address}: {error}; choose another address"))
    })?;
    let bound = socket.get_last_endpoint()?;
    bound.map_err(|_bytes| io::Error::other("an endpoint that is no text"))
}
