//! From a connected socket to an attached session: hello, its answer, the arena's descriptor.
//!
//! A greeting survives the deadline of the call that began it: the next call goes on where this one
//! stopped, so that even short deadlines get attached to a slow daemon in the end.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use kvd_proto::ids::{Epoch, SessionId};
use kvd_proto::pack::{Array, Fields};
use kvd_proto::v2::hello::{Hello, HelloAck, Limits};
use kvd_proto::v2::{PROTOCOL_VERSION, Reply, feature};
use kvd_shm::peer;

use crate::attachment::{Abilities, Attachment};
use crate::deadline::Deadline;
use crate::error::{Breach, ClientError};
use crate::live::{explain, refused};
use crate::options::Options;
use crate::tenure::Tenure;
use crate::wire::Wire;

#[derive(Debug)]
pub(crate) struct Greeting {
    wire: Wire,
    began: Instant,
    heard: Option<Heard>,
}

/// What the daemon's hello_ack said.
#[derive(Debug)]
struct Heard {
    server_id: String,
    epoch: Epoch,
    session: SessionId,
    limits: Limits,
    abilities: Abilities,
    arena_bytes: Option<u64>,
}

impl Greeting {
    /// Connects and says hello.
    pub(crate) fn begin(options: &Options, deadline: Deadline) -> io::Result<Self> {
        let began = Instant::now();
        let wire = Wire::connect(&options.socket, deadline)?;
        let mut greeting = Self { wire, began, heard: None };
        let wanted = |name: &&str| options.sends_checksums || *name != feature::CHECKSUM;
        let features: Vec<_> = feature::ALL.into_iter().filter(wanted).collect();
        let hello = Hello {
            client_id: &options.client_id,
            protocol_version: PROTOCOL_VERSION,
            prefers_shared_arena: options.shares_arena,
            features: Array::Slice(&features),
        };
        hello.encode(greeting.wire.outbox());
        // The daemon watches this descriptor to learn when the process, not just its socket, is gone.
        // Where it cannot be had, the daemon has other, coarser ways.
        if let Ok(process) = peer::own_pidfd() {
            greeting.wire.flush_with(process.as_fd())?;
        }
        Ok(greeting)
    }

    /// Whether it has taken longer than the options allow.
    pub(crate) fn is_overdue(&self, options: &Options) -> bool {
        self.began.elapsed() >= options.connect_deadline
    }

    /// Goes on until attached or until the deadline; after the latter it can be called again.
    pub(crate) fn advance(
        &mut self,
        tenure: &mut Option<Tenure>,
        deadline: Deadline,
    ) -> Result<Arc<Attachment>, ClientError> {
        let lost = |fault| explain(fault, deadline);
        self.wire.flush(deadline).map_err(lost)?;
        let heard = match self.heard.take() {
            Some(heard) => heard,
            None => {
                self.wire.await_frame(deadline).map_err(lost)?;
                hear(self.wire.frame())?
            }
        };
        let (arena, returns) = match heard.arena_bytes {
            None => (None, Arc::default()),
            Some(arena_bytes) => {
                let descriptor = self.wire.await_descriptor(deadline).map_err(lost);
                let descriptor = match descriptor {
                    Ok(descriptor) => descriptor,
                    Err(error) => {
                        self.heard = Some(heard);
                        return Err(error);
                    }
                };
                let (mapping, returns) = Tenure::enter(tenure, descriptor, arena_bytes)?;
                (Some(mapping), returns)
            }
        };
        self.wire.read_ahead();
        let Heard { server_id, epoch, session, limits, abilities, .. } = heard;
        Ok(Arc::new(Attachment { epoch, session, server_id, limits, abilities, arena, returns }))
    }

    pub(crate) fn into_wire(self) -> Wire {
        self.wire
    }
}

/// Reads the answer to hello.
fn hear(frame: &[u8]) -> Result<Heard, ClientError> {
    check_version(frame)?;
    match Reply::decode(frame).map_err(Breach::from)? {
        Reply::HelloAck(ack) => Ok(Heard {
            server_id: ack.server_id.to_owned(),
            epoch: ack.epoch,
            session: ack.session,
            limits: ack.limits,
            abilities: Abilities::of(ack.features.iter()),
            arena_bytes: ack.shared_arena.map(|offer| offer.size_bytes),
        }),
        Reply::Error(error) => Err(refused(error)),
        _ => Err(Breach::WrongKind.into()),
    }
}

/// An older daemon answers with an ack of its own shape: its version must be looked at first.
fn check_version(frame: &[u8]) -> Result<(), Breach> {
    let fields = Fields::parse(frame)?;
    let version: u32 = match fields.op()? {
        HelloAck::OP => fields.required(HelloAck::OP, "protocol_version")?,
        _ => return Ok(()),
    };
    if version == PROTOCOL_VERSION { Ok(()) } else { Err(Breach::Version { version }) }
}
