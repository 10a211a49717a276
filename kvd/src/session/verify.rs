//! `--verify-l2`: a sample of the hits is held against its checksum before it is served. Every
//! engine may write the whole arena, so a stray write can damage what another one stored; what does
//! not fit is dropped and a miss.

use std::sync::atomic::Ordering;

use kvd_proto::miss::MissReason;
use kvd_store::{Found, Hit, Input};

use super::loads::{Fetching, all};
use super::service::Service;

impl Service {
    /// Checks one in so many hits, counted over the session's life.
    pub(super) fn verify(&mut self, fetching: &Fetching<'_>, found: &mut Vec<Found>) {
        let Some(one_in) = self.daemon.settings.disk.verify_one_in else {
            return;
        };
        let keys = all(fetching.keys);
        let mut damaged = false;
        for (answer, key) in found.iter_mut().zip(keys) {
            let Found::Hit(hit) = *answer else {
                continue;
            };
            self.hits += 1;
            if self.hits.is_multiple_of(u64::from(one_in)) && !self.fits(fetching, &hit, key) {
                self.let_go(answer);
                let (namespace, version) = (fetching.namespace, hit.version);
                self.apply(Input::DropCorrupt { namespace, key, version });
                *answer = Found::Miss(MissReason::Corrupt);
                damaged = true;
            }
        }
        if damaged && fetching.prefix {
            self.end_at_first_miss(found);
        }
    }

    /// Whether the bytes fit the checksum, if the row has one.
    fn fits(&self, fetching: &Fetching<'_>, hit: &Hit, key: &[u8]) -> bool {
        let (daemon, version) = (&self.daemon, hit.version);
        let wanted =
            daemon.brain.inspect(|store, _| store.checksum_of(fetching.namespace, key, version));
        let Some(wanted) = wanted else {
            return true;
        };
        daemon.meters.hits_verified.fetch_add(1, Ordering::Relaxed);
        let bytes = daemon.brain.arena().slice(hit.payload_offset, hit.len_bytes as usize);
        bytes.checksum(key) == wanted
    }
}
