//! `set`: one value that arrived with its frame. Large ones take the way of `stream.rs`.

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::TicketId;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_proto::v1::set::{Set, SetAck};
use kvd_proto::v1::ttl::Ttl;
use kvd_store::{Commit, CommitRules, Input, Outcome, Writer};

use super::super::service::Service;
use super::super::verdicts::Stored;

pub(super) fn answer(service: &mut Service, set: &Set<'_>) {
    let target = Target {
        namespace: set.namespace,
        key: set.key,
        retention: set.retention,
        ttl: Ttl::from_seconds(set.ttl_seconds),
    };
    let stored = store(service, &target, set.value);
    let outcome = service.settle(stored);
    SetAck::from(outcome).encode(service.outbox.buffer());
}

/// Under which name and for how long a value is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) namespace: Namespace<'a>,
    pub(super) key: &'a [u8],
    pub(super) retention: Retention,
    pub(super) ttl: Ttl,
}

/// Stores a value that is in memory. Counted as one SET whatever comes of it.
pub(super) fn store(service: &mut Service, target: &Target<'_>, value: &[u8]) -> Stored {
    if target.ttl == Ttl::Past {
        service.apply(Input::CountSet);
        return Ok(None);
    }
    let len_bytes = value.len() as u64;
    let checked = service.ask(Input::CheckSet {
        namespace: target.namespace,
        key: target.key,
        len_bytes,
        retention: target.retention,
    });
    if let Outcome::Checked(Err(refusal)) = checked {
        return refuse(service, refusal);
    }
    let granted = match service.reserve(len_bytes, target.retention, Writer::Daemon) {
        Ok(granted) => granted,
        Err(refusal) => return refuse(service, refusal),
    };
    service.daemon.arena.mapping().copy_in(granted.payload_offset, value);
    commit(service, target, granted.ticket, len_bytes)
}

/// Makes a written extent the value of a key, by the rules of SET.
pub(super) fn commit(
    service: &mut Service,
    target: &Target<'_>,
    ticket: TicketId,
    len_bytes: u64,
) -> Stored {
    let session = service.id();
    let outcome = service.ask(Input::Commit(Commit {
        session,
        ticket,
        namespace: target.namespace,
        key: target.key,
        len_bytes,
        retention: target.retention,
        ttl_ms: match target.ttl {
            Ttl::Never => None,
            Ttl::Millis(millis) => Some(millis),
            Ttl::Past => Some(0),
        },
        lineage: None,
        checksum: None,
        rules: CommitRules::Set,
    }));
    match outcome {
        Outcome::Committed(Err(Refusal::BadKey)) => {
            // The one refusal of ours that leaves the ticket open, and the SET uncounted.
            cancel(service, ticket);
            service.apply(Input::CountSet);
            Err(Refusal::BadKey)
        }
        outcome => service.stored(outcome),
    }
}

/// Gives back an extent that will not become a value.
pub(super) fn cancel(service: &mut Service, ticket: TicketId) {
    service.apply(Input::Cancel { session: service.id(), ticket, linger: false });
}

/// Counts a SET that is refused before it reaches the store.
pub(super) fn refuse(service: &mut Service, refusal: Refusal) -> Stored {
    service.apply(Input::CountRefusedSet { refusal });
    Err(refusal)
}
