//! Bare transfers over a Unix socket: many bytes from one warm buffer into another, in either direction.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use crate::role::{self, Helper, Role};

/// An order: one byte that says what, seven that say how many bytes.
const ORDER_BYTES: usize = 8;
const TAKE: u8 = b'T';
const GIVE: u8 = b'G';
/// What the server answers when it has taken everything.
const TAKEN: [u8; 1] = [b'.'];
/// Bits of the count in an order.
const COUNT_BITS: u32 = 56;

/// A running server and a connection to it.
#[derive(Debug)]
pub struct Transfer {
    stream: UnixStream,
    _server: Helper,
    _folder: TempDir,
}

impl Transfer {
    /// Starts a server on the cores of this thread and connects.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir_in("/tmp").context("making a folder")?;
        let socket = folder.path().join("transfer.sock");
        let server = Helper::start(&Role::Transfer { socket: socket.clone() })?;
        let stream = UnixStream::connect(&socket).context("connecting to the floor's server")?;
        Ok(Self { stream, _server: server, _folder: folder })
    }

    /// Sends all bytes and waits until they have been read.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn give(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(&order(TAKE, bytes.len()))?;
        self.stream.write_all(bytes)?;
        self.stream.read_exact(&mut [0; TAKEN.len()])?;
        Ok(())
    }

    /// Asks for as many bytes as the buffer holds and reads them.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn take(&mut self, buffer: &mut [u8]) -> anyhow::Result<()> {
        self.stream.write_all(&order(GIVE, buffer.len()))?;
        self.stream.read_exact(buffer)?;
        Ok(())
    }
}

fn order(what: u8, count: usize) -> [u8; ORDER_BYTES] {
    (count as u64 | u64::from(what) << COUNT_BITS).to_le_bytes()
}

/// Serves one connection until it ends.
///
/// # Errors
/// If the socket fails or an order is not understood.
pub fn serve(socket: &Path) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket).context("binding")?;
    role::say(role::READY)?;
    let (mut stream, _) = listener.accept().context("accepting")?;
    let mut buffer = Vec::new();
    loop {
        let mut order = [0; ORDER_BYTES];
        stream.read_exact(&mut order).context("reading an order")?;
        let count = usize::try_from(u64::from_le_bytes(order) & ((1 << COUNT_BITS) - 1))?;
        if buffer.len() < count {
            buffer.resize(count, 3);
        }
        match order[ORDER_BYTES - 1] {
            TAKE => {
                stream.read_exact(&mut buffer[..count])?;
                stream.write_all(&TAKEN)?;
            }
            GIVE => stream.write_all(&buffer[..count])?,
            what => bail!("order {what}"),
        }
    }
}
