//! `clear`: everything if both parts of the namespace are empty, else exactly that namespace.

use kvd_proto::v1::clear::{Clear, ClearAck};
use kvd_store::ClearScope;

use super::super::service::Service;

pub(super) fn answer(service: &mut Service, clear: &Clear<'_>) {
    let namespace = clear.namespace;
    let everything = namespace.model.is_empty() && namespace.compat_key.is_empty();
    let scope = if everything { ClearScope::Everything } else { ClearScope::Namespace(namespace) };
    ClearAck { cleared_entries: service.clear(scope) }.encode(service.outbox.buffer());
}
