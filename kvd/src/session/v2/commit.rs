//! `commit`: written extents become blocks that everybody can find.

use kvd_proto::v2::commit::{Commit, CommittedRows};
use kvd_store::{CommitRules, Input};

use super::super::service::Service;
use super::is_stale;

pub(super) fn answer(service: &mut Service, rows: &mut CommittedRows, commit: &Commit<'_>) {
    if is_stale(service, commit.id, commit.epoch) {
        return;
    }
    rows.clear();
    let mut lineages = commit.lineages.map(|lineages| lineages.iter());
    // From the first one on that must be durable first: all are on their way before one is waited for.
    let mut later = Vec::new();
    let each = commit.ticket_ids().zip(commit.keys).zip(commit.lens.iter());
    for (((ticket, key), len_bytes), checksum) in each.zip(commit.checksums_given()) {
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
            checksum,
            rules: CommitRules::Lease,
        }));
        match service.stored(outcome) {
            stored @ (Ok(None) | Err(_)) if later.is_empty() => rows.push(stored.map(drop)),
            stored => later.push(stored),
        }
    }
    for stored in later {
        rows.push(service.settle(stored));
    }
    rows.reply(commit.id).encode(service.outbox.buffer());
}
