//! `prefetch_hint`: keys that will be asked for soon are loaded ahead. Never answered.

use kvd_proto::v1::prefetch_hint::PrefetchHint;

use super::super::service::Service;
use crate::hints;

pub(super) fn serve(service: &mut Service, hint: &PrefetchHint<'_>) {
    let session = Some(service.id());
    hints::take(hint, session, |input| service.apply(input));
}
