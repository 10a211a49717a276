//! A protocol-1 client: what an unchanged engine sends and reads, without the arena's bytes.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context as _, bail};
use kvd_proto::frame::{self, PREFIX_BYTES};
use kvd_proto::v1::hello::Hello;
use kvd_proto::v1::{Reply, Request};
use kvd_shm::descriptor;

use crate::patience::PATIENCE;

/// What the receive buffer starts with; it grows to the largest reply and stays warm.
const INBOX_BYTES: usize = 64 << 10;

/// A connection, its request and its last reply.
#[derive(Debug)]
pub struct Reference {
    stream: UnixStream,
    request: Vec<u8>,
    inbox: Vec<u8>,
}

impl Reference {
    /// Connects and greets; with `arena`, values are answered as places in the arena.
    ///
    /// # Errors
    /// If there is no daemon, or it does not answer as it should.
    pub fn connect(socket: &Path, arena: bool) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket).context("connecting as a protocol-1 client")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reference = Self { stream, request: Vec::new(), inbox: vec![0; INBOX_BYTES] };
        let hello =
            Hello { client_id: "kvd-bench", protocol_version: 1, prefers_shared_arena: arena };
        let mut request = Vec::new();
        hello.encode(&mut request);
        reference.send(&request)?;
        // Not one byte more than the ack: the marker behind it carries a descriptor.
        let mut prefix = [0; PREFIX_BYTES];
        reference.stream.read_exact(&mut prefix)?;
        let mut ack = vec![0; u32::from_be_bytes(prefix) as usize];
        reference.stream.read_exact(&mut ack)?;
        let Reply::HelloAck(ack) = Reply::decode(&ack)? else {
            bail!("hello was answered with something else")
        };
        if arena {
            ack.shared_arena.context("the daemon shares no arena")?;
            descriptor::receive_with_descriptors(reference.stream.as_fd(), &mut [0], 1)?;
        }
        Ok(reference)
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn ask(&mut self, request: &Request<'_>) -> anyhow::Result<Reply<'_>> {
        self.request.clear();
        request.encode(&mut self.request);
        self.stream.write_all(&self.request)?;
        self.receive()
    }

    /// Sends a request that was encoded before.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn send(&mut self, frame: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(frame)?)
    }

    /// Waits for a reply. A reply that fits the buffer takes one system call.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn receive(&mut self) -> anyhow::Result<Reply<'_>> {
        let mut end = 0;
        let whole = loop {
            let got = self.stream.read(&mut self.inbox[end..])?;
            if got == 0 {
                bail!("the daemon closed the connection");
            }
            end += got;
            if let Some(prefix) = self.inbox[..end].first_chunk::<PREFIX_BYTES>() {
                let whole = PREFIX_BYTES + frame::parse_prefix(*prefix, u32::MAX)? as usize;
                if self.inbox.len() < whole {
                    self.inbox.resize(whole, 0);
                }
                if end == whole {
                    break whole;
                }
            }
        };
        Ok(Reply::decode(&self.inbox[PREFIX_BYTES..whole])?)
    }
}
