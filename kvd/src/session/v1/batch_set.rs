//! `batch_set`: several values, in order, each as a `set` of its own. A bad item was refused with the
//! whole batch before this.

use kvd_proto::pack::Array;
use kvd_proto::refusal::Refusal;
use kvd_proto::v1::batch_set::{BatchSet, BatchSetAck};
use kvd_proto::v1::ttl::Ttl;

use super::super::service::Service;
use super::set::{Target, store};

pub(super) fn answer(service: &mut Service, batch: &BatchSet<'_>) {
    let mut accepted = Vec::with_capacity(batch.keys.len());
    let mut stored = Vec::with_capacity(batch.keys.len());
    let mut reasons = Vec::with_capacity(batch.keys.len());
    for item in batch.items() {
        let target = Target {
            namespace: batch.namespace,
            key: item.key,
            retention: item.retention,
            ttl: Ttl::from_seconds(item.ttl_seconds),
        };
        stored.push(store(service, &target, item.value));
    }
    // All are on their way to the disk before the first one is waited for.
    for stored in stored {
        let outcome = service.settle(stored);
        accepted.push(outcome.is_ok());
        reasons.push(outcome.err().map(Refusal::v1_set_token));
    }
    BatchSetAck { accepted: Array::Slice(&accepted), reasons: Array::Slice(&reasons) }
        .encode(service.outbox.buffer());
}
