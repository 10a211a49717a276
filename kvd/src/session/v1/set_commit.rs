//! `set_commit`: what the peer wrote becomes the value of a key.

use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_proto::v1::set_commit::{SetCommit, SetCommitResponse};
use kvd_proto::v1::ttl::Ttl;
use kvd_store::{Commit, CommitRules, Input};

use super::super::service::Service;

pub(super) fn answer(service: &mut Service, commit: &SetCommit<'_>) {
    let reply = if !service.has_arena() {
        Err(Refusal::NoArena).into()
    } else if let Some(retention) = commit.class() {
        publish(service, commit, retention).into()
    } else {
        SetCommitResponse::BAD_RETENTION
    };
    reply.encode(service.outbox.buffer());
}

fn publish(
    service: &mut Service,
    commit: &SetCommit<'_>,
    retention: Retention,
) -> Result<(), Refusal> {
    let outcome = service.ask(Input::Commit(Commit {
        session: service.id(),
        ticket: commit.lease_token,
        namespace: commit.namespace,
        key: commit.key,
        // A negative length is as wrong as one beyond the room, and refused by the same rule.
        len_bytes: u64::try_from(commit.length).unwrap_or(u64::MAX),
        retention,
        ttl_ms: match Ttl::from_commit_seconds(commit.ttl_seconds) {
            Ttl::Millis(millis) => Some(millis),
            Ttl::Never | Ttl::Past => None,
        },
        lineage: None,
        checksum: None,
        rules: CommitRules::Lease,
    }));
    let stored = service.stored(outcome);
    service.settle(stored)
}
