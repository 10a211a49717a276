//! Sockets of feeds: how one listens, and how one asks for what was missed.

use kvd_proto::events::frames::{ENGINE_TOPIC, EVENTS_TOPIC, STATS_TOPIC, replay_request};
use zmq::{Context, DONTWAIT, Socket, SocketEvent, SocketType};

use super::access::Keys;

/// Messages that wait for us; engines publish faster than they say.
const WAITING_MAX: i32 = 200_000;
/// A publisher that says nothing is asked after so many milliseconds whether it is there.
const HEARTBEAT_MS: i32 = 5_000;
/// And is connected to anew if it does not answer for so many.
const SILENCE_MS: i32 = 15_000;
/// Pause between attempts to connect, and the longest one.
const RECONNECT_MS: i32 = 100;
const RECONNECT_MAX_MS: i32 = 5_000;
/// Largest message.
const MESSAGE_BYTES_MAX: i64 = 64 << 20;
/// Events of a connection that matter here.
const WATCHED: [SocketEvent; 2] = [SocketEvent::HANDSHAKE_SUCCEEDED, SocketEvent::DISCONNECTED];

/// Where a publisher is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// `tcp://host:port`.
    pub(super) endpoint: String,
    /// Its public key, if only those are let in who have one too.
    pub(super) server_key: Option<String>,
}

impl Place {
    /// An endpoint as engines write it; nothing if it is none.
    pub(super) fn of(endpoint: &str) -> Option<Self> {
        let (host, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
        let is_place = !host.is_empty() && host != "*" && port.parse::<u16>().is_ok();
        is_place.then(|| Self { endpoint: endpoint.to_owned(), server_key: None })
    }

    /// That of rank `rank`: as many ports further.
    pub(super) fn of_rank(endpoint: &str, rank: u32) -> Option<Self> {
        let (host, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
        let port = u32::from(port.parse::<u16>().ok()?).checked_add(rank)?;
        let port = u16::try_from(port).ok()?;
        Self::of(&format!("tcp://{host}:{port}"))
    }
}

/// Contexts: one has room for a thousand sockets.
pub(super) struct Contexts {
    all: Vec<Context>,
    /// What publishers are shown that want to see a key.
    keys: Option<Keys>,
}

impl Contexts {
    pub(super) const fn new(keys: Option<Keys>) -> Self {
        Self { all: Vec::new(), keys }
    }

    fn socket(&mut self, kind: SocketType) -> zmq::Result<(Context, Socket)> {
        if let Some(context) = self.all.last() {
            match context.socket(kind) {
                Err(zmq::Error::EMFILE) => {}
                made => return Ok((context.clone(), made?)),
            }
        }
        let context = Context::new();
        let socket = context.socket(kind)?;
        self.all.push(context.clone());
        Ok((context, socket))
    }
}

/// A subscription, and what is told of its connection.
pub(super) struct Subscription {
    pub(super) socket: Socket,
    monitor: Socket,
}

/// What became of a connection.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct News {
    /// Whether it stands, if that has changed.
    pub(super) is_connected: Option<bool>,
    /// Whether it was lost, perhaps to be made again at once.
    pub(super) was_lost: bool,
}

impl Subscription {
    /// Listens to an engine, or to a daemon.
    pub(super) fn open(
        contexts: &mut Contexts,
        place: &Place,
        is_engine: bool,
        number: u64,
    ) -> zmq::Result<Self> {
        let (context, socket) = contexts.socket(SocketType::SUB)?;
        tune(&socket, place, contexts.keys.as_ref())?;
        socket.set_rcvhwm(WAITING_MAX)?;
        let name = format!("inproc://feed-{number}");
        let watched = WATCHED.iter().fold(0, |all, event| all | i32::from(event.to_raw()));
        socket.monitor(&name, watched)?;
        let monitor = context.socket(SocketType::PAIR)?;
        monitor.set_linger(0)?;
        monitor.connect(&name)?;
        if is_engine {
            socket.set_subscribe(ENGINE_TOPIC.as_bytes())?;
        } else {
            socket.set_subscribe(EVENTS_TOPIC.as_bytes())?;
            socket.set_subscribe(STATS_TOPIC.as_bytes())?;
        }
        socket.connect(&place.endpoint)?;
        Ok(Self { socket, monitor })
    }

    /// What became of the connection since the last question. Asked before messages are taken, it is told of each loss before
    /// the messages of the next connection.
    pub(super) fn news(&self) -> News {
        let mut news = News::default();
        while let Ok(frames) = self.monitor.recv_multipart(DONTWAIT) {
            let event = frames.first().and_then(|frame| frame.first_chunk());
            let Some(event) = event else { continue };
            #[expect(clippy::host_endian_bytes, reason = "as libzmq writes it, within the process")]
            let event = SocketEvent::from_raw(u16::from_ne_bytes(*event));
            news.is_connected = Some(event == SocketEvent::HANDSHAKE_SUCCEEDED);
            news.was_lost |= event == SocketEvent::DISCONNECTED;
        }
        news
    }
}

/// Asks for every message from `start` on.
pub(super) fn ask(contexts: &mut Contexts, place: &Place, start: u64) -> zmq::Result<Socket> {
    let (_, socket) = contexts.socket(SocketType::DEALER)?;
    tune(&socket, place, contexts.keys.as_ref())?;
    socket.connect(&place.endpoint)?;
    // Engines expect the frame that a REQ socket would put in front.
    let [start] = replay_request(start);
    socket.send_multipart([&[][..], &start], DONTWAIT)?;
    Ok(socket)
}

fn tune(socket: &Socket, place: &Place, keys: Option<&Keys>) -> zmq::Result<()> {
    if let Some(server_key) = &place.server_key {
        let server_key = zmq::z85_decode(server_key).map_err(|_no_key| zmq::Error::EINVAL)?;
        // Without keys of our own we would be refused again and again, without a word.
        let Keys { public, secret } = keys.ok_or(zmq::Error::EACCES)?;
        socket.set_curve_serverkey(&server_key)?;
        socket.set_curve_publickey(public)?;
        socket.set_curve_secretkey(secret)?;
    }
    socket.set_linger(0)?;
    socket.set_ipv6(true)?;
    socket.set_heartbeat_ivl(HEARTBEAT_MS)?;
    socket.set_heartbeat_timeout(SILENCE_MS)?;
    socket.set_reconnect_ivl(RECONNECT_MS)?;
    socket.set_reconnect_ivl_max(RECONNECT_MAX_MS)?;
    socket.set_tcp_keepalive(1)?;
    socket.set_maxmsgsize(MESSAGE_BYTES_MAX)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_ports_further() {
        let endpoint =
            |rank| Place::of_rank("tcp://10.0.0.1:5557", rank).map(|place| place.endpoint);
        assert_eq!(endpoint(0).as_deref(), Some("tcp://10.0.0.1:5557"));
        assert_eq!(endpoint(3).as_deref(), Some("tcp://10.0.0.1:5560"));
        assert_eq!(endpoint(60_000), None);
        for nowhere in ["", "ipc:///x", "tcp://*:5557", "tcp://h:port", "tcp://:5", "tcp://h:70000"]
        {
            assert_eq!(Place::of(nowhere), None, "{nowhere}");
        }
    }
}
