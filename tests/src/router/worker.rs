//! A worker that answers as it is told, byte by byte: it speaks an engine's HTTP, and can break off wherever an engine can.

use std::collections::VecDeque;
use std::io::{self, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use super::request::Seen;
use crate::PATIENCE;

/// A step of an answer.
#[derive(Clone, Debug)]
pub enum Step {
    /// Status and headers; the body follows in chunks unless `content-length` is among them.
    Head(u16, Vec<(String, String)>),
    /// Bytes of the body, written at once.
    Bytes(Vec<u8>),
    /// These bytes again and again, as fast as they are taken, until the peer leaves.
    Flood(Vec<u8>),
    /// A pause.
    Pause(Duration),
    /// Nothing more until the peer leaves, which is noted, or the worker ends.
    Hold,
    /// The end of the body.
    End,
    /// The connection is closed here.
    Cut,
}

/// How a worker answers that decides for each request.
pub type Respond = Arc<dyn Fn(&Seen) -> Vec<Step> + Send + Sync>;

/// As above, without a word about what it is made of.
#[derive(Clone)]
struct Responder(Respond);

impl std::fmt::Debug for Responder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Responder")
    }
}

/// What a worker shares with its threads.
#[derive(Debug, Default)]
struct Shared {
    /// Decides for each request, which then is not noted.
    respond: Option<Responder>,
    seen: Vec<Seen>,
    /// When peers left in the middle of an answer.
    left: Vec<Instant>,
    once: VecDeque<Vec<Step>>,
    usual: Vec<Step>,
    connections: Vec<TcpStream>,
    /// What `GET /metrics` says; nothing is 404. Who asks is not noted.
    metrics: Option<String>,
    is_over: bool,
}

/// A running worker. It ends with this value, as if it were killed.
#[derive(Debug)]
pub struct Worker {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    acceptor: Option<JoinHandle<()>>,
}

/// Headers as they are written.
#[must_use]
pub fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The head of a stream of events.
#[must_use]
pub fn stream_head() -> Step {
    Step::Head(200, headers(&[("content-type", "text/event-stream")]))
}

/// An event with a piece of an answer.
#[must_use]
pub fn event(text: &str) -> Vec<u8> {
    let piece = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    format!("data: {piece}\n\n").into_bytes()
}

/// A stream as engines write it: `count` pieces, the usage, the end mark.
#[must_use]
pub fn chat_stream(count: usize) -> Vec<Step> {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": count}});
    let mut steps = vec![stream_head()];
    steps.extend((0..count).map(|piece| Step::Bytes(event(&format!("piece {piece}")))));
    steps.push(Step::Bytes(format!("data: {usage}\n\n").into_bytes()));
    steps.push(Step::Bytes(b"data: [DONE]\n\n".to_vec()));
    steps.push(Step::End);
    steps
}

/// An answer in one piece.
#[must_use]
pub fn whole(status: u16, more: &[(&str, &str)], body: &str) -> Vec<Step> {
    let length = body.len().to_string();
    let mut all = headers(&[("content-type", "application/json"), ("content-length", &length)]);
    all.extend(headers(more));
    vec![Step::Head(status, all), Step::Bytes(body.as_bytes().to_vec()), Step::End]
}

/// The body that these steps send.
#[must_use]
pub fn body_of(steps: &[Step]) -> Vec<u8> {
    let bytes = steps.iter().filter_map(|step| match step {
        Step::Bytes(bytes) => Some(bytes.clone()),
        _ => None,
    });
    bytes.collect::<Vec<_>>().concat()
}

impl Worker {
    /// Starts one on a free port. Until told otherwise it streams three pieces.
    ///
    /// # Panics
    /// If it can't.
    #[must_use]
    pub fn start() -> Self {
        Self::start_on("127.0.0.1:0".parse().expect("an address"))
    }

    /// Starts one where another was.
    ///
    /// # Panics
    /// If it can't.
    #[must_use]
    pub fn start_on(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("listening");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Mutex::new(Shared { usual: chat_stream(3), ..Shared::default() }));
        let for_acceptor = Arc::clone(&shared);
        let acceptor = named("mock-accept", move || accept(&listener, &for_acceptor));
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// Starts one that asks `respond` what to answer to each request.
    ///
    /// # Panics
    /// If it can't.
    #[must_use]
    pub fn responding(address: SocketAddr, respond: Respond) -> Self {
        let worker = Self::start_on(address);
        worker.shared.lock().expect("the worker's lock").respond = Some(Responder(respond));
        worker
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for the router.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on it answers so.
    ///
    /// # Panics
    /// If one of its threads panicked.
    pub fn answer(&self, steps: Vec<Step>) {
        self.shared.lock().expect("the worker's lock").usual = steps;
    }

    /// It answers so once, before anything else.
    ///
    /// # Panics
    /// If one of its threads panicked.
    pub fn answer_once(&self, steps: Vec<Step>) {
        self.shared.lock().expect("the worker's lock").once.push_back(steps);
    }

    /// From now on it says this of itself when it is polled.
    ///
    /// # Panics
    /// If one of its threads panicked.
    pub fn tell(&self, metrics: &str) {
        self.shared.lock().expect("the worker's lock").metrics = Some(metrics.to_owned());
    }

    /// What it got so far.
    ///
    /// # Panics
    /// If one of its threads panicked.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().expect("the worker's lock").seen.clone()
    }

    /// How many connections there have been.
    ///
    /// # Panics
    /// If one of its threads panicked.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.lock().expect("the worker's lock").connections.len()
    }

    /// When peers left in the middle of an answer.
    ///
    /// # Panics
    /// If one of its threads panicked.
    #[must_use]
    pub fn left(&self) -> Vec<Instant> {
        self.shared.lock().expect("the worker's lock").left.clone()
    }

    /// Ends it, as if it were killed: every connection is closed wherever it is.
    pub fn kill(self) {}
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Ok(mut shared) = self.shared.lock() {
            shared.is_over = true;
            for connection in &shared.connections {
                // It may be closed already.
                drop(connection.shutdown(Shutdown::Both));
            }
        }
        // Wakes the acceptor.
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            // It is a test that panics, if anybody.
            drop(acceptor.join());
        }
    }
}

fn named(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).expect("starting a thread")
}

fn accept(listener: &TcpListener, shared: &Arc<Mutex<Shared>>) {
    let mut threads = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        let mut state = shared.lock().expect("the worker's lock");
        if state.is_over {
            break;
        }
        stream.set_nodelay(true).expect("setting a socket option");
        state.connections.push(stream.try_clone().expect("another descriptor"));
        drop(state);
        let shared = Arc::clone(shared);
        // A connection that fails is over; what came of it is asserted by the test.
        threads.push(named("mock-serve", move || drop(serve(stream, &shared))));
    }
    for thread in threads {
        thread.join().expect("a connection's thread");
    }
}

fn serve(mut stream: TcpStream, shared: &Mutex<Shared>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = Seen::read(&mut reader)? {
        let responder = shared.lock().expect("the worker's lock").respond.clone();
        let steps = if let Some(Responder(respond)) = responder {
            respond(&request)
        } else {
            let mut shared = shared.lock().expect("the worker's lock");
            if request.target == "/metrics" {
                let (status, text) = shared.metrics.as_ref().map_or((404, ""), |text| (200, text));
                whole(status, &[], text)
            } else {
                shared.seen.push(request);
                shared.once.pop_front().unwrap_or_else(|| shared.usual.clone())
            }
        };
        if let Err(gone) = answer(&mut stream, &steps) {
            shared.lock().expect("the worker's lock").left.push(Instant::now());
            return Err(gone);
        }
        if matches!(steps.last(), Some(Step::Cut)) {
            stream.shutdown(Shutdown::Both)?;
        }
    }
    Ok(())
}

/// Fails if the peer leaves in the middle.
fn answer(stream: &mut TcpStream, steps: &[Step]) -> io::Result<()> {
    let mut is_chunked = true;
    for step in steps {
        match step {
            Step::Head(status, headers) => {
                is_chunked = !headers.iter().any(|(name, _)| name == "content-length");
                let mut head = format!("HTTP/1.1 {status} Whatever\r\n");
                for (name, value) in headers {
                    head.push_str(&format!("{name}: {value}\r\n"));
                }
                head.push_str(if is_chunked {
                    "transfer-encoding: chunked\r\n\r\n"
                } else {
                    "\r\n"
                });
                stream.write_all(head.as_bytes())?;
            }
            Step::Bytes(bytes) if is_chunked => stream.write_all(&chunk(bytes))?,
            Step::Flood(bytes) => loop {
                stream.write_all(&chunk(bytes))?;
            },
            Step::Bytes(bytes) => stream.write_all(bytes)?,
            Step::Pause(pause) => wait_for_leave(stream, *pause)?,
            Step::Hold => {
                wait_for_leave(stream, PATIENCE)?;
                panic!("held for {PATIENCE:?}, and nobody left");
            }
            Step::End if is_chunked => stream.write_all(b"0\r\n\r\n")?,
            Step::End | Step::Cut => {}
        }
    }
    Ok(())
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// Waits; fails as soon as the peer has closed.
fn wait_for_leave(stream: &TcpStream, pause: Duration) -> io::Result<()> {
    let deadline = Instant::now() + pause;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let peeked = stream.peek(&mut [0]);
        stream.set_read_timeout(None)?;
        match peeked {
            Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
            // The next request is there already: the pause goes on without looking.
            Ok(_) => {
                std::thread::park_timeout(left);
            }
            Err(late)
                if matches!(late.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
}
