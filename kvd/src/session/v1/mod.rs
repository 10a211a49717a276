//! Protocol 1: one file per operation, each from the decoded request to the encoded reply.
//!
//! What unchanged clients are owed, and what becomes of odd input, is in `docs/protocol.md`. A
//! reference client never comes back after a close, so a connection is closed only where the
//! reference closes it too.

mod batch_get;
mod batch_set;
mod clear;
mod exists;
mod get;
mod hello;
mod inline;
mod prefetch_hint;
mod set;
mod set_cancel;
mod set_commit;
mod set_reserve;
mod stats;
mod stream;

use std::time::Instant;

use kvd_proto::v1::{Rejected, Request};
use kvd_store::Input;

use super::ended::Ended;
use super::service::Service;
use crate::meters::Op;

pub(super) use stream::{STREAM_BODY_BYTES, Streamed, decline_set, stream_set};

/// Answers one frame.
///
/// # Errors
/// The session must end: the frame is one that the reference closes on, or the socket failed.
pub(super) fn answer(service: &mut Service, body: &[u8]) -> Result<(), Ended> {
    let started = Instant::now();
    begin(service);
    let request = match Request::decode(body) {
        Ok(request) => request,
        Err(rejected) => return refuse(service, rejected),
    };
    let op = op_of(&request);
    match request {
        Request::Hello(hello) => hello::answer(service, &hello)?,
        Request::Get(get) => get::answer(service, &get)?,
        Request::BatchGet(batch) => batch_get::answer(service, &batch)?,
        Request::Set(set) => set::answer(service, &set),
        Request::BatchSet(batch) => batch_set::answer(service, &batch),
        Request::SetReserve(reserve) => set_reserve::answer(service, reserve),
        Request::SetCommit(commit) => set_commit::answer(service, &commit),
        Request::SetCancel(cancel) => set_cancel::answer(service, cancel),
        Request::PrefetchHint(hint) => prefetch_hint::serve(service, &hint),
        Request::Exists(exists) => exists::answer(service, &exists),
        Request::Clear(clear) => clear::answer(service, &clear),
        Request::Stats(_) => stats::answer(service),
    }
    service.daemon.meters.requests.of(op).observe(started.elapsed());
    Ok(())
}

/// The peer has spoken again: it is done with what earlier replies showed it, but for the grace
/// time.
fn begin(service: &mut Service) {
    if service.has_arena() {
        service.apply(Input::NextRequest { session: service.id() });
    }
}

fn refuse(service: &mut Service, rejected: Rejected) -> Result<(), Ended> {
    rejected.encode(service.outbox.buffer());
    if rejected.code().is_some() {
        service.count_error_frame();
    }
    match rejected {
        Rejected::Close(reason) => {
            service.flush()?;
            Err(Ended::Malformed(reason))
        }
        Rejected::Internal(_)
        | Rejected::Ignored(_)
        | Rejected::BadOp { .. }
        | Rejected::Arity { .. } => Ok(()),
    }
}

fn op_of(request: &Request<'_>) -> Op {
    match request {
        Request::Hello(_) => Op::Hello,
        Request::Get(_) => Op::Get,
        Request::BatchGet(_) => Op::BatchGet,
        Request::Set(_) => Op::Set,
        Request::BatchSet(_) => Op::BatchSet,
        Request::SetReserve(_) => Op::SetReserve,
        Request::SetCommit(_) => Op::SetCommit,
        Request::SetCancel(_) => Op::SetCancel,
        Request::PrefetchHint(_) => Op::PrefetchHint,
        Request::Exists(_) => Op::Exists,
        Request::Clear(_) => Op::Clear,
        Request::Stats(_) => Op::Stats,
    }
}
