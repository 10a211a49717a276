//! Protocol 2: the messages between this daemon and its own clients.
//!
//! Framing is protocol 1's. Requests carry an id that the reply repeats, so replies may overtake
//! each other. Batches are packed columns. Unknown fields are ignored and unknown operations are
//! refused with the session intact, so that peers one release apart understand each other.
//! The byte tables are in `docs/protocol.md`.
//!
//! Requests and replies are plain structs that borrow from the frame; `encode` appends a frame to
//! the caller's buffer and allocates nothing else.

pub mod cancel;
pub mod clear;
pub mod commit;
pub mod error;
pub mod feature;
pub mod fetch;
pub mod hello;
pub mod locate;
pub mod prefetch;
pub mod release;
pub mod reserve;
pub mod resume;
pub mod stats;

mod batch;

use crate::malformed::Malformed;
use crate::pack::Fields;

/// Version that a `hello` asks for to get this protocol.
pub const PROTOCOL_VERSION: u32 = 2;

/// Whatever a client can send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request<'a> {
    /// Handshake.
    Hello(hello::Hello<'a>),
    /// Where are these keys?
    Locate(locate::Locate<'a>),
    /// Lend these keys.
    Fetch(fetch::Fetch<'a>),
    /// These keys will be wanted soon. No reply.
    Prefetch(prefetch::Prefetch<'a>),
    /// Leases are over. No reply.
    Release(release::Release<'a>),
    /// Room to write.
    Reserve(reserve::Reserve<'a>),
    /// What was written is complete.
    Commit(commit::Commit<'a>),
    /// Tickets are given back unused.
    Cancel(cancel::Cancel<'a>),
    /// What was held by lost connections goes on or ends.
    Resume(resume::Resume<'a>),
    /// Forget rows.
    Clear(clear::Clear<'a>),
    /// Counters.
    Stats(stats::Stats),
}

impl<'a> Request<'a> {
    /// Reads a frame body.
    ///
    /// # Errors
    /// What is wrong, and the request's id where it can be read.
    pub fn decode(body: &'a [u8]) -> Result<Self, Rejected> {
        let fields = Fields::parse(body).map_err(|reason| Rejected { id: None, reason })?;
        Self::from_fields(&fields)
            .map_err(|reason| Rejected { id: fields.optional("id").ok().flatten(), reason })
    }

    fn from_fields(fields: &Fields<'a>) -> Result<Self, Malformed> {
        let op = fields.op()?;
        fields.check_count()?;
        match op {
            hello::Hello::OP => hello::Hello::decode(fields).map(Self::Hello),
            locate::Locate::OP => locate::Locate::decode(fields).map(Self::Locate),
            fetch::Fetch::OP => fetch::Fetch::decode(fields).map(Self::Fetch),
            prefetch::Prefetch::OP => prefetch::Prefetch::decode(fields).map(Self::Prefetch),
            release::Release::OP => release::Release::decode(fields).map(Self::Release),
            reserve::Reserve::OP => reserve::Reserve::decode(fields).map(Self::Reserve),
            commit::Commit::OP => commit::Commit::decode(fields).map(Self::Commit),
            cancel::Cancel::OP => cancel::Cancel::decode(fields).map(Self::Cancel),
            resume::Resume::OP => resume::Resume::decode(fields).map(Self::Resume),
            clear::Clear::OP => clear::Clear::decode(fields).map(Self::Clear),
            stats::Stats::OP => stats::Stats::decode(fields).map(Self::Stats),
            _ => Err(Malformed::unknown_op(op)),
        }
    }

    /// Appends the request as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(request) => request.encode(out),
            Self::Locate(request) => request.encode(out),
            Self::Fetch(request) => request.encode(out),
            Self::Prefetch(request) => request.encode(out),
            Self::Release(request) => request.encode(out),
            Self::Reserve(request) => request.encode(out),
            Self::Commit(request) => request.encode(out),
            Self::Cancel(request) => request.encode(out),
            Self::Resume(request) => request.encode(out),
            Self::Clear(request) => request.encode(out),
            Self::Stats(request) => request.encode(out),
        }
    }
}

/// A request that cannot be served as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Rejected {
    /// The id that the error frame repeats.
    pub id: Option<u64>,
    /// What is wrong. [`Malformed::ends_session`] says whether the session goes on.
    #[source]
    pub reason: Malformed,
}

/// Whatever a daemon can send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reply<'a> {
    /// To `hello`.
    HelloAck(hello::HelloAck<'a>),
    /// To `locate`.
    Located(locate::Located<'a>),
    /// To `fetch`.
    Fetched(fetch::Fetched<'a>),
    /// To `reserve`.
    Reserved(reserve::Reserved<'a>),
    /// To `commit`.
    Committed(commit::Committed<'a>),
    /// To `cancel`.
    Cancelled(cancel::Cancelled),
    /// To `resume`.
    Resumed(resume::Resumed),
    /// To `clear`.
    Cleared(clear::Cleared),
    /// To `stats`.
    Stats(stats::StatsReply<'a>),
    /// To anything.
    Error(error::ErrorReply<'a>),
}

impl<'a> Reply<'a> {
    /// Reads a frame body.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let fields = &Fields::parse(body)?;
        let op = fields.op()?;
        fields.check_count()?;
        match op {
            hello::HelloAck::OP => hello::HelloAck::decode(fields).map(Self::HelloAck),
            locate::Located::OP => locate::Located::decode(fields).map(Self::Located),
            fetch::Fetched::OP => fetch::Fetched::decode(fields).map(Self::Fetched),
            reserve::Reserved::OP => reserve::Reserved::decode(fields).map(Self::Reserved),
            commit::Committed::OP => commit::Committed::decode(fields).map(Self::Committed),
            cancel::Cancelled::OP => cancel::Cancelled::decode(fields).map(Self::Cancelled),
            resume::Resumed::OP => resume::Resumed::decode(fields).map(Self::Resumed),
            clear::Cleared::OP => clear::Cleared::decode(fields).map(Self::Cleared),
            stats::StatsReply::OP => stats::StatsReply::decode(fields).map(Self::Stats),
            error::ErrorReply::OP => error::ErrorReply::decode(fields).map(Self::Error),
            _ => Err(Malformed::unknown_op(op)),
        }
    }

    /// Appends the reply as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::HelloAck(reply) => reply.encode(out),
            Self::Located(reply) => reply.encode(out),
            Self::Fetched(reply) => reply.encode(out),
            Self::Reserved(reply) => reply.encode(out),
            Self::Committed(reply) => reply.encode(out),
            Self::Cancelled(reply) => reply.encode(out),
            Self::Resumed(reply) => reply.encode(out),
            Self::Cleared(reply) => reply.encode(out),
            Self::Stats(reply) => reply.encode(out),
            Self::Error(reply) => reply.encode(out),
        }
    }

    /// Id of the request that this answers; none in a handshake.
    #[must_use]
    pub const fn id(&self) -> Option<u64> {
        match self {
            Self::HelloAck(_) => None,
            Self::Located(reply) => Some(reply.id),
            Self::Fetched(reply) => Some(reply.id),
            Self::Reserved(reply) => Some(reply.id),
            Self::Committed(reply) => Some(reply.id),
            Self::Cancelled(reply) => Some(reply.id),
            Self::Resumed(reply) => Some(reply.id),
            Self::Cleared(reply) => Some(reply.id),
            Self::Stats(reply) => Some(reply.id),
            Self::Error(reply) => reply.id,
        }
    }
}
