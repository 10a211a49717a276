//! `prefetch_hint`: keys that will be asked for soon are loaded ahead. Never answered.

use kvd_proto::v1::prefetch_hint::PrefetchHint;
use kvd_store::{Input, Keys};

use super::super::service::{SLICE_KEYS, Service};

pub(super) fn serve(service: &mut Service, hint: &PrefetchHint<'_>) {
    // The copies in memory live at least for a moment, as in the reference.
    let deadline_ms = u64::try_from(hint.deadline_ms).unwrap_or(0).max(1);
    let (mut keys, mut slice) = (hint.keys.iter(), Vec::with_capacity(SLICE_KEYS));
    loop {
        slice.clear();
        slice.extend(keys.by_ref().take(SLICE_KEYS));
        if slice.is_empty() {
            break;
        }
        service.apply(Input::Prefetch {
            session: service.id(),
            namespace: hint.namespace,
            keys: Keys::slices(&slice),
            deadline_ms,
        });
    }
}
