//! `commit`: written extents become blocks that everybody can find.

use kvd_proto::refusal::Refusal;
use kvd_proto::v2::commit::{Commit, CommittedRows};
use kvd_store::{CommitRules, Input, Outcome};

use super::super::service::Service;
use super::is_stale;

pub(super) fn answer(service: &mut Service, rows: &mut CommittedRows, commit: &Commit<'_>) {
    if is_stale(service, commit.id, commit.epoch) {
        return;
    }
    rows.clear();
    let mut lineages = commit.lineages.map(|lineages| lineages.iter());
    let each = commit.ticket_ids().zip(commit.keys).zip(commit.lens.iter());
    for ((ticket, key), len_bytes) in each {
        let lineage = lineages.as_mut().and_then(Iterator::next).flatten();
        let outcome = service.ask(Input::Commit(kvd_store::Commit {
            session: service.id(),
            ticket,
            namespace: commit.namespace,
            key,
            len_bytes,
            retention: commit.retention,
            ttl_ms: commit.ttl_ms,
            lineage,
            checksum: None,
            rules: CommitRules::Lease,
        }));
        rows.push(match outcome {
            Outcome::Committed(result) => result,
            _ => Err(Refusal::Shed),
        });
    }
    rows.reply(commit.id).encode(service.outbox.buffer());
}
