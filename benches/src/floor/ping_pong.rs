//! Bare round trips over a Unix socket: nothing is decoded, looked up or encoded, only bytes of the same count move.
//!
//! The server is a process of its own, as the daemon is. Once with tokio at both ends, once with a blocking thread at
//! both ends; their difference is what a session pays for being a task.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};

use crate::role::{self, Helper, Role};

/// On what both loops are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A task on a tokio runtime of one thread.
    Tokio,
    /// A thread that blocks.
    Blocking,
}

impl Kind {
    /// Its name as an argument.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokio => "tokio",
            Self::Blocking => "blocking",
        }
    }
}

/// How many bytes go there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the request.
    pub request: usize,
    /// Bytes of the reply.
    pub reply: usize,
}

/// Round trips before the first one that counts.
const WARM_UP: usize = 200;

/// A running server.
#[derive(Debug)]
pub struct PingPong {
    kind: Kind,
    socket: PathBuf,
    _server: Helper,
    _folder: TempDir,
}

impl PingPong {
    /// Starts a server on the cores of this thread.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(kind: Kind) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir_in("/tmp").context("making a folder")?;
        let socket = folder.path().join("ping.sock");
        let server = Helper::start(&Role::Ping { kind, socket: socket.clone() })?;
        Ok(Self { kind, socket, _server: server, _folder: folder })
    }

    /// Makes round trips and tells how long each took, in microseconds.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn sample(&self, sizes: Sizes, count: usize) -> anyhow::Result<Vec<f64>> {
        let mut stream =
            UnixStream::connect(&self.socket).context("connecting to the floor's server")?;
        stream.write_all(&sizes.encode())?;
        match self.kind {
            Kind::Blocking => sample_blocking(stream, sizes, count),
            Kind::Tokio => {
                stream.set_nonblocking(true)?;
                let runtime = runtime()?;
                runtime.block_on(sample_in_task(stream, sizes, count))
            }
        }
    }
}

fn sample_blocking(mut stream: UnixStream, sizes: Sizes, count: usize) -> anyhow::Result<Vec<f64>> {
    let (request, mut reply) = (vec![1; sizes.request], vec![0; sizes.reply]);
    let mut took = Vec::with_capacity(count + WARM_UP);
    for _ in 0..count + WARM_UP {
        let begun = Instant::now();
        stream.write_all(&request)?;
        stream.read_exact(&mut reply)?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(took.split_off(WARM_UP))
}

async fn sample_in_task(
    stream: UnixStream,
    sizes: Sizes,
    count: usize,
) -> anyhow::Result<Vec<f64>> {
    let mut stream = tokio::net::UnixStream::from_std(stream)?;
    let (request, mut reply) = (vec![1; sizes.request], vec![0; sizes.reply]);
    let mut took = Vec::with_capacity(count + WARM_UP);
    for _ in 0..count + WARM_UP {
        let begun = Instant::now();
        stream.write_all(&request).await?;
        stream.read_exact(&mut reply).await?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(took.split_off(WARM_UP))
}

/// Serves one connection after the other, until it is killed.
///
/// # Errors
/// If the socket cannot be served.
pub fn serve(kind: Kind, socket: &Path) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket).context("binding")?;
    role::say(role::READY)?;
    let runtime = runtime()?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut sizes = [0; Sizes::BYTES];
        stream.read_exact(&mut sizes)?;
        let sizes = Sizes::decode(sizes);
        // Every connection ends with an end of file.
        let _end = match kind {
            Kind::Blocking => serve_blocking(stream, sizes),
            Kind::Tokio => runtime.block_on(serve_in_task(stream, sizes)),
        };
    }
    Ok(())
}

fn serve_blocking(mut stream: UnixStream, sizes: Sizes) -> std::io::Result<()> {
    let (mut request, reply) = (vec![0; sizes.request], vec![2; sizes.reply]);
    loop {
        stream.read_exact(&mut request)?;
        stream.write_all(&reply)?;
    }
}

async fn serve_in_task(stream: UnixStream, sizes: Sizes) -> std::io::Result<()> {
    stream.set_nonblocking(true)?;
    let mut stream = tokio::net::UnixStream::from_std(stream)?;
    let (mut request, reply) = (vec![0; sizes.request], vec![2; sizes.reply]);
    loop {
        stream.read_exact(&mut request).await?;
        stream.write_all(&reply).await?;
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_io().build().context("building a runtime")
}

impl Sizes {
    const BYTES: usize = 16;

    fn encode(self) -> [u8; Self::BYTES] {
        (self.request as u128 | (self.reply as u128) << 64).to_le_bytes()
    }

    fn decode(bytes: [u8; Self::BYTES]) -> Self {
        let both = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "each half was a usize")]
        let (request, reply) = (both as u64 as usize, (both >> 64) as u64 as usize);
        Self { request, reply }
    }
}
