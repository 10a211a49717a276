//! `hello`: who the peer is, and the arena if it wants it.

use std::sync::Arc;
use std::time::Duration;

use kvd_proto::v1::hello::{Hello, HelloAck};
use kvd_proto::v2::PROTOCOL_VERSION;

use super::super::ended::Ended;
use super::super::service::Service;

/// Reference clients map the whole arena with its pages at once. Answering before the pages are
/// there would charge them to the client; waiting longer than this makes SGLang give up (5 s).
const PRESENT_PATIENCE: Duration = Duration::from_secs(3);

pub(super) fn answer(service: &mut Service, hello: &Hello<'_>) -> Result<(), Ended> {
    let offer = service.introduce(hello.client_id, hello.prefers_shared_arena);
    if offer.is_some() {
        service.flush()?;
        service.wait_for_arena(PRESENT_PATIENCE);
    }
    let daemon = Arc::clone(&service.daemon);
    HelloAck {
        server_id: &daemon.status.server_id,
        protocol_version: hello.version_to_ack(PROTOCOL_VERSION),
        shared_arena: offer,
    }
    .encode(service.outbox.buffer());
    if offer.is_some() {
        service.hand_over_arena()?;
    }
    Ok(())
}
