//! Protocol 1: the messages of unchanged reference clients, byte for byte.
//!
//! One file per operation, each with its request and its replies. Nothing is ever added here.
//! [`Rejected`] says what becomes of a request that is not as it should be: some end the
//! connection without a word, some are answered with `error` and the connection lives. What is
//! which is fixed by what the reference does; `docs/protocol.md` has the list.

pub mod batch_get;
pub mod batch_set;
pub mod clear;
pub mod error;
pub mod exists;
pub mod get;
pub mod hello;
pub mod prefetch_hint;
pub mod set;
pub mod set_cancel;
pub mod set_commit;
pub mod set_reserve;
pub mod stats;
pub mod ttl;

mod rejected;
mod schema;

pub use rejected::Rejected;

use crate::malformed::Malformed;
use crate::pack::Fields;

/// Whatever a client can send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request<'a> {
    /// Handshake.
    Hello(hello::Hello<'a>),
    /// One value.
    Get(get::Get<'a>),
    /// Several values.
    BatchGet(batch_get::BatchGet<'a>),
    /// Store one value.
    Set(set::Set<'a>),
    /// Store several values.
    BatchSet(batch_set::BatchSet<'a>),
    /// Room to write in the arena.
    SetReserve(set_reserve::SetReserve),
    /// What was written there is complete.
    SetCommit(set_commit::SetCommit<'a>),
    /// It will not be.
    SetCancel(set_cancel::SetCancel),
    /// Keys that will be asked for soon. No reply.
    PrefetchHint(prefetch_hint::PrefetchHint<'a>),
    /// Are these keys there?
    Exists(exists::Exists<'a>),
    /// Forget rows.
    Clear(clear::Clear<'a>),
    /// Counters.
    Stats(stats::Stats),
}

impl<'a> Request<'a> {
    /// Reads a frame body.
    ///
    /// # Errors
    /// What becomes of a request that is not as it should be.
    pub fn decode(body: &'a [u8]) -> Result<Self, Rejected> {
        let fields = &Fields::parse(body).map_err(Rejected::Close)?;
        let op = fields.op().map_err(Rejected::Close)?;
        match op {
            hello::Hello::OP => hello::Hello::decode(fields).map(Self::Hello),
            get::Get::OP => get::Get::decode(fields).map(Self::Get),
            batch_get::BatchGet::OP => batch_get::BatchGet::decode(fields).map(Self::BatchGet),
            set::Set::OP => set::Set::decode(fields).map(Self::Set),
            batch_set::BatchSet::OP => batch_set::BatchSet::decode(fields).map(Self::BatchSet),
            set_reserve::SetReserve::OP => {
                set_reserve::SetReserve::decode(fields).map(Self::SetReserve)
            }
            set_commit::SetCommit::OP => set_commit::SetCommit::decode(fields).map(Self::SetCommit),
            set_cancel::SetCancel::OP => set_cancel::SetCancel::decode(fields).map(Self::SetCancel),
            prefetch_hint::PrefetchHint::OP => {
                prefetch_hint::PrefetchHint::decode(fields).map(Self::PrefetchHint)
            }
            exists::Exists::OP => exists::Exists::decode(fields).map(Self::Exists),
            clear::Clear::OP => clear::Clear::decode(fields).map(Self::Clear),
            stats::Stats::OP => Ok(Self::Stats(stats::Stats)),
            _ => Err(Rejected::other_op(op)),
        }
    }

    /// Appends the request as a frame.
    ///
    /// # Panics
    /// If the body reaches 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(request) => request.encode(out),
            Self::Get(request) => request.encode(out),
            Self::BatchGet(request) => request.encode(out),
            Self::Set(request) => request.encode(out),
            Self::BatchSet(request) => request.encode(out),
            Self::SetReserve(request) => request.encode(out),
            Self::SetCommit(request) => request.encode(out),
            Self::SetCancel(request) => request.encode(out),
            Self::PrefetchHint(request) => request.encode(out),
            Self::Exists(request) => request.encode(out),
            Self::Clear(request) => request.encode(out),
            Self::Stats(request) => request.encode(out),
        }
    }
}

/// Whatever a daemon can send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reply<'a> {
    /// To `hello`.
    HelloAck(hello::HelloAck<'a>),
    /// To `get`, inline.
    Get(get::GetResponse<'a>),
    /// To `get`, a hit in the arena.
    GetShared(get::GetSharedResponse),
    /// To `batch_get`, inline.
    BatchGet(batch_get::BatchGetResponse<'a>),
    /// To `batch_get`, hits in the arena.
    BatchGetShared(batch_get::BatchGetSharedResponse<'a>),
    /// To `set`.
    SetAck(set::SetAck<'a>),
    /// To `batch_set`.
    BatchSetAck(batch_set::BatchSetAck<'a>),
    /// To `set_reserve`.
    SetReserve(set_reserve::SetReserveResponse<'a>),
    /// To `set_commit`.
    SetCommit(set_commit::SetCommitResponse<'a>),
    /// To `set_cancel`.
    SetCancel(set_cancel::SetCancelResponse),
    /// To `exists`.
    Exists(exists::ExistsResponse<'a>),
    /// To `clear`.
    ClearAck(clear::ClearAck),
    /// To `stats`.
    Stats(stats::StatsResponse),
    /// To anything.
    Error(error::ErrorResponse<'a>),
}

impl<'a> Reply<'a> {
    /// Reads a frame body as strictly as the reference's client: every field, and no other.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let fields = &Fields::parse(body)?;
        let op = fields.op()?;
        match op {
            hello::HelloAck::OP => hello::HelloAck::decode(fields).map(Self::HelloAck),
            get::GetResponse::OP => get::GetResponse::decode(fields).map(Self::Get),
            get::GetSharedResponse::OP => {
                get::GetSharedResponse::decode(fields).map(Self::GetShared)
            }
            batch_get::BatchGetResponse::OP => {
                batch_get::BatchGetResponse::decode(fields).map(Self::BatchGet)
            }
            batch_get::BatchGetSharedResponse::OP => {
                batch_get::BatchGetSharedResponse::decode(fields).map(Self::BatchGetShared)
            }
            set::SetAck::OP => set::SetAck::decode(fields).map(Self::SetAck),
            batch_set::BatchSetAck::OP => {
                batch_set::BatchSetAck::decode(fields).map(Self::BatchSetAck)
            }
            set_reserve::SetReserveResponse::OP => {
                set_reserve::SetReserveResponse::decode(fields).map(Self::SetReserve)
            }
            set_commit::SetCommitResponse::OP => {
                set_commit::SetCommitResponse::decode(fields).map(Self::SetCommit)
            }
            set_cancel::SetCancelResponse::OP => {
                set_cancel::SetCancelResponse::decode(fields).map(Self::SetCancel)
            }
            exists::ExistsResponse::OP => exists::ExistsResponse::decode(fields).map(Self::Exists),
            clear::ClearAck::OP => clear::ClearAck::decode(fields).map(Self::ClearAck),
            stats::StatsResponse::OP => stats::StatsResponse::decode(fields).map(Self::Stats),
            error::ErrorResponse::OP => error::ErrorResponse::decode(fields).map(Self::Error),
            _ => Err(Malformed::unknown_op(op)),
        }
    }

    /// Appends the reply as a frame.
    ///
    /// # Panics
    /// If the body reaches 4 GiB. Values are better sent without a copy, see
    /// [`get::InlineHit`] and [`batch_get::InlineBatch`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::HelloAck(reply) => reply.encode(out),
            Self::Get(reply) => reply.encode(out),
            Self::GetShared(reply) => reply.encode(out),
            Self::BatchGet(reply) => reply.encode(out),
            Self::BatchGetShared(reply) => reply.encode(out),
            Self::SetAck(reply) => reply.encode(out),
            Self::BatchSetAck(reply) => reply.encode(out),
            Self::SetReserve(reply) => reply.encode(out),
            Self::SetCommit(reply) => reply.encode(out),
            Self::SetCancel(reply) => reply.encode(out),
            Self::Exists(reply) => reply.encode(out),
            Self::ClearAck(reply) => reply.encode(out),
            Self::Stats(reply) => reply.encode(out),
            Self::Error(reply) => reply.encode(out),
        }
    }
}

/// Names of all replies: a client that sends one is told `bad_op`.
const REPLY_OPS: [&str; 14] = [
    hello::HelloAck::OP,
    get::GetResponse::OP,
    get::GetSharedResponse::OP,
    batch_get::BatchGetResponse::OP,
    batch_get::BatchGetSharedResponse::OP,
    set::SetAck::OP,
    batch_set::BatchSetAck::OP,
    set_reserve::SetReserveResponse::OP,
    set_commit::SetCommitResponse::OP,
    set_cancel::SetCancelResponse::OP,
    exists::ExistsResponse::OP,
    clear::ClearAck::OP,
    stats::StatsResponse::OP,
    error::ErrorResponse::OP,
];
