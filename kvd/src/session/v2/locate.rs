//! `locate`: where keys are and what loading them would cost; what is reported stays loadable.

use kvd_proto::v2::locate::{Locate, LocatedRow, LocatedRows};
use kvd_store::{Input, Keys, Located};

use super::super::service::{SLICE_KEYS, Service};

pub(super) fn answer(service: &mut Service, rows: &mut LocatedRows, locate: &Locate<'_>) {
    rows.clear();
    let all = Keys::column(locate.keys);
    let (mut from, mut unloaded_bytes) = (0, 0);
    while from < all.len() {
        let to = all.len().min(from + SLICE_KEYS);
        service.apply(Input::Locate {
            session: service.id(),
            namespace: locate.namespace,
            keys: all.part(from..to),
            prefix: locate.prefix,
            family: false,
            unloaded_bytes,
        });
        unloaded_bytes = service.effects.unloaded_bytes;
        for located in &service.effects.located {
            rows.push(match *located {
                Located::Present { tier, len_bytes, load_us, .. } => {
                    LocatedRow::Present { tier, len_bytes: len_bytes.into(), load_us }
                }
                Located::Miss(reason) => LocatedRow::Miss(reason),
            });
        }
        if service.effects.located.len() < to - from {
            break;
        }
        if locate.prefix && matches!(service.effects.located.last(), Some(Located::Miss(_))) {
            break;
        }
        from = to;
    }
    rows.reply(locate.id).encode(service.outbox.buffer());
}
