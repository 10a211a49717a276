//! `set_cancel`: room is given back. The answer is the same whether the lease is known or not.

use kvd_proto::v1::set_cancel::{SetCancel, SetCancelResponse};
use kvd_store::Input;

use super::super::service::Service;

pub(super) fn answer(service: &mut Service, cancel: SetCancel) {
    let (session, ticket) = (service.id(), cancel.lease_token);
    service.apply(Input::Cancel { session, ticket, linger: true });
    SetCancelResponse.encode(service.outbox.buffer());
}
