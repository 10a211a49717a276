//! `clear`: rows are forgotten.

use kvd_proto::v2::clear::{Clear, ClearScope, Cleared};
use kvd_proto::v2::error::ErrorCode;

use super::super::service::Service;
use super::error;

pub(super) fn answer(service: &mut Service, clear: &Clear<'_>) {
    let rows = service.clear(match clear.scope {
        ClearScope::Everything => kvd_store::ClearScope::Everything,
        ClearScope::Model(model) => kvd_store::ClearScope::Model(model),
        ClearScope::Namespace(namespace) => kvd_store::ClearScope::Namespace(namespace),
    });
    match rows {
        Some(rows) => Cleared { id: clear.id, rows }.encode(service.outbox.buffer()),
        None => {
            let message = "cleared in memory, but no device confirmed it";
            error(service, clear.id, ErrorCode::InternalError, message);
        }
    }
}
