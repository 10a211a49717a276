//! `clear`: everything if both parts of the namespace are empty, else exactly that namespace.

use kvd_proto::v1::clear::{Clear, ClearAck};
use kvd_store::ClearScope;

use super::super::service::Service;
use super::inline;

/// Said to a client that would otherwise believe that the blocks are gone for good.
const NOT_DURABLE: &str =
    "cleared in memory, but no device confirmed it: blocks may be back after a restart";

pub(super) fn answer(service: &mut Service, clear: &Clear<'_>) {
    let namespace = clear.namespace;
    let everything = namespace.model.is_empty() && namespace.compat_key.is_empty();
    let scope = if everything { ClearScope::Everything } else { ClearScope::Namespace(namespace) };
    if let Some(cleared_entries) = service.clear(scope) {
        ClearAck { cleared_entries }.encode(service.outbox.buffer());
    } else {
        inline::internal_error(service, NOT_DURABLE);
    }
}
