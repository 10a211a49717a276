//! An engine that has nothing to compute: how many events, and how far apart, a request says itself.

use std::io;
use std::time::Duration;

use kvd_shm::checksum::Checksum;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::event::{self, now_ns};
use crate::role;

/// The header that says how many events are wanted.
pub const EVENTS: &str = "x-bench-events";
/// The header that says how far apart, in microseconds; 0: each as soon as all other streams have had theirs.
pub const INTERVAL_US: &str = "x-bench-interval-us";

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
    cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";

/// What a request asks for.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    events: u32,
    interval: Duration,
}

/// Serves until it is killed; tells its address.
///
/// # Errors
/// If it can't listen.
pub fn serve() -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        role::say(role::READY)?;
        role::say(&listener.local_addr()?.to_string())?;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    connections.spawn(answer_all(accepted?.0));
                }
                // One that fails is missed by the clients.
                Some(_ended) = connections.join_next() => {}
            }
        }
    })
}

async fn answer_all(stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(wanted) = read(&mut stream).await? {
        answer(stream.get_mut(), wanted).await?;
    }
    Ok(())
}

/// Reads a request; `None` if no more come.
async fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Wanted>> {
    let (mut wanted, mut body_bytes) = (Wanted::default(), 0);
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        if line == "\r\n" {
            break;
        }
        let Some((name, value)) = line.split_once(": ") else { continue };
        let number = || value.trim_end().parse::<u32>().map_err(io::Error::other);
        match name.to_ascii_lowercase().as_str() {
            EVENTS => wanted.events = number()?,
            INTERVAL_US => wanted.interval = Duration::from_micros(number()?.into()),
            "content-length" => body_bytes = number()? as usize,
            _ => {}
        }
    }
    let mut body = vec![0; body_bytes];
    stream.read_exact(&mut body).await?;
    Ok(Some(wanted))
}

async fn answer(stream: &mut TcpStream, wanted: Wanted) -> io::Result<()> {
    stream.write_all(HEAD).await?;
    let mut checksum = Checksum::new();
    let mut next = Instant::now();
    for _ in 0..wanted.events {
        let event = event::event(now_ns());
        checksum.update(event.as_bytes());
        write_chunk(stream, &event).await?;
        if wanted.interval.is_zero() {
            tokio::task::yield_now().await;
        } else {
            next += wanted.interval;
            sleep_until(next).await;
        }
    }
    write_chunk(stream, &event::ending(checksum)).await?;
    stream.write_all(b"0\r\n\r\n").await
}

async fn write_chunk(stream: &mut TcpStream, bytes: &str) -> io::Result<()> {
    stream.write_all(format!("{:x}\r\n{bytes}\r\n", bytes.len()).as_bytes()).await
}
