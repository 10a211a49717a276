//! Protocol 2: one file per operation, each from the decoded request to the encoded reply.

mod cancel;
mod clear;
mod commit;
mod fetch;
mod hello;
mod locate;
mod prefetch;
mod release;
mod reserve;
mod resume;
mod stats;

use std::time::Instant;

use kvd_proto::ids::Epoch;
use kvd_proto::malformed::Malformed;
use kvd_proto::v2::Request;
use kvd_proto::v2::error::{ErrorCode, ErrorReply};
use kvd_proto::v2::{
    Rejected, commit::CommittedRows, fetch::FetchedRows, locate::LocatedRows, reserve::ReservedRows,
};

use super::ended::Ended;
use super::service::Service;
use crate::meters::Op;

/// Rows of the reply being built; their memory is used again.
#[derive(Debug, Default)]
pub(super) struct Rows {
    located: LocatedRows,
    fetched: FetchedRows,
    reserved: ReservedRows,
    committed: CommittedRows,
}

/// Answers one frame.
///
/// # Errors
/// The session must end: the frame is no message, or the socket failed.
pub(super) fn answer(service: &mut Service, rows: &mut Rows, body: &[u8]) -> Result<(), Ended> {
    let started = Instant::now();
    let request = match Request::decode(body) {
        Ok(request) => request,
        Err(rejected) => return refuse(service, rejected),
    };
    let op = op_of(&request);
    match request {
        Request::Hello(hello) => hello::answer(service, &hello)?,
        Request::Locate(locate) => locate::answer(service, &mut rows.located, &locate),
        Request::Fetch(fetch) => fetch::answer(service, &mut rows.fetched, &fetch),
        Request::Prefetch(prefetch) => prefetch::serve(service, &prefetch),
        Request::Release(release) => release::serve(service, &release),
        Request::Reserve(reserve) => reserve::answer(service, &mut rows.reserved, &reserve),
        Request::Commit(commit) => commit::answer(service, &mut rows.committed, &commit),
        Request::Cancel(cancel) => cancel::answer(service, &cancel),
        Request::Resume(resume) => resume::answer(service, &resume),
        Request::Clear(clear) => clear::answer(service, &clear),
        Request::Stats(stats) => stats::answer(service, stats),
    }
    service.daemon.meters.requests.of(op).observe(started.elapsed());
    Ok(())
}

fn op_of(request: &Request<'_>) -> Op {
    match request {
        Request::Hello(_) => Op::Hello,
        Request::Locate(_) => Op::Locate,
        Request::Fetch(_) => Op::Fetch,
        Request::Prefetch(_) => Op::Prefetch,
        Request::Release(_) => Op::Release,
        Request::Reserve(_) => Op::Reserve,
        Request::Commit(_) => Op::Commit,
        Request::Cancel(_) => Op::Cancel,
        Request::Resume(_) => Op::Resume,
        Request::Clear(_) => Op::Clear,
        Request::Stats(_) => Op::Stats,
    }
}

/// Says why the bytes in front of the session can't be a frame, right before it closes.
pub(super) fn refuse(service: &mut Service, rejected: Rejected) -> Result<(), Ended> {
    service.count_error_frame();
    rejected.encode(service.outbox.buffer());
    if rejected.reason.ends_session() {
        service.flush()?;
        return Err(Ended::Malformed(rejected.reason));
    }
    Ok(())
}

/// As [`refuse`], for a prefix that is wrong by itself.
pub(super) fn refuse_prefix(service: &mut Service, reason: Malformed) -> Ended {
    match refuse(service, Rejected { id: None, reason: reason.clone() }) {
        Err(ended) => ended,
        Ok(()) => Ended::Malformed(reason),
    }
}

fn error(service: &mut Service, id: u64, code: ErrorCode, message: &str) {
    let reply = ErrorReply { id: Some(id), code: code.as_str(), message };
    reply.encode(service.outbox.buffer());
    service.count_error_frame();
}

/// Refuses rights of another incarnation of the daemon.
fn is_stale(service: &mut Service, id: u64, epoch: Epoch) -> bool {
    let now = Epoch(service.daemon.status.epoch);
    if epoch != now {
        let message = format!("rights of epoch {epoch}; this daemon's is {now}");
        error(service, id, ErrorCode::StaleEpoch, &message);
    }
    epoch != now
}

/// Refuses operations that only make sense with the arena mapped.
fn lacks_arena(service: &mut Service, id: u64) -> bool {
    let lacks = !service.has_arena();
    if lacks {
        let message = "this session has not received the arena: ask for it in hello";
        error(service, id, ErrorCode::NoArena, message);
    }
    lacks
}
