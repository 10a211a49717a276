//! `exists`: which keys are there. Schedulers plan on the answer, so it is a promise, and it covers
//! the other ranks' copies of the same chunk too.

use kvd_proto::pack::Array;
use kvd_proto::v1::exists::{Exists, ExistsResponse};
use kvd_store::{Input, Keys, Located};

use super::super::service::{SLICE_KEYS, Service};

pub(super) fn answer(service: &mut Service, exists: &Exists<'_>) {
    let mut present = Vec::with_capacity(exists.keys.len());
    let (mut keys, mut slice) = (exists.keys.iter(), Vec::with_capacity(SLICE_KEYS));
    loop {
        slice.clear();
        slice.extend(keys.by_ref().take(SLICE_KEYS));
        if slice.is_empty() {
            break;
        }
        service.apply(Input::Locate {
            session: service.id(),
            namespace: exists.namespace,
            keys: Keys::slices(&slice),
            prefix: false,
            family: true,
            unloaded_bytes: 0,
        });
        let located = service.effects.located.iter();
        present.extend(located.map(|located| matches!(located, Located::Present { .. })));
    }
    ExistsResponse { present: Array::Slice(&present) }.encode(service.outbox.buffer());
}
