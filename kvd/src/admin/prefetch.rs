//! `POST /v1/prefetch`: keys that will be asked for soon, from who is on another host or has no session. The body is
//! that of protocol 1's `prefetch_hint`, without the length in front; so is what becomes of it.

use std::time::Instant;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use kvd_proto::v1::Request;
use kvd_store::Effects;

use super::answer::{Refused, Shared, with};
use crate::daemon::Daemon;
use crate::hints;
use crate::meters::Op;

/// Longest body; some thousand keys as they usually are.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;

/// Takes a hint. That it was taken says nothing of whether the keys are there.
pub(super) async fn answer(
    State(daemon): State<Shared>,
    body: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, Refused> {
    let body = body.map_err(|rejected| match rejected.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Refused::too_large(format!("a hint is at most {BODY_BYTES_MAX} bytes long"))
        }
        _ => Refused::bad_request(rejected.body_text()),
    })?;
    with(daemon, move |daemon| take(daemon, &body)).await??;
    Ok(StatusCode::ACCEPTED)
}

fn take(daemon: &Daemon, body: &[u8]) -> Result<(), Refused> {
    let began = Instant::now();
    let hint = match Request::decode(body) {
        Ok(Request::PrefetchHint(hint)) => hint,
        Ok(_) => return Err(Refused::bad_request("this is no prefetch_hint")),
        Err(rejected) => return Err(Refused::bad_request(rejected.to_string())),
    };
    let mut effects = Effects::default();
    hints::take(&hint, None, |input| daemon.brain.apply(input, &mut effects));
    daemon.meters.requests.of(Op::PrefetchHint).observe(began.elapsed());
    Ok(())
}
