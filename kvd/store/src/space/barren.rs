//! Memory of searches through the whole arena that found nothing, so that a caller who asks for
//! the impossible again and again does not cost everybody a walk each time.

use kvd_proto::retention::Retention;

use super::Footprint;

/// Per class, the fewest bytes for which no window exists. More bytes are never easier to find
/// (all small footprints are smaller than all large ones, which are the more demanding kind), and
/// a lower class never evicts more than a higher one.
#[derive(Debug)]
pub(super) struct Barren {
    from_bytes: [u64; Retention::ALL.len()],
}

impl Default for Barren {
    fn default() -> Self {
        Self { from_bytes: [u64::MAX; Retention::ALL.len()] }
    }
}

impl Barren {
    pub(super) const fn is_known(&self, need: Footprint, class: Retention) -> bool {
        need.bytes >= self.from_bytes[class.index()]
    }

    pub(super) fn remember(&mut self, need: Footprint, class: Retention) {
        for bytes in &mut self.from_bytes[..=class.index()] {
            *bytes = (*bytes).min(need.bytes);
        }
    }

    /// Space was freed.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A row of `class` became evictable, for this class and the higher ones.
    pub(super) fn clear_from(&mut self, class: Retention) {
        self.from_bytes[class.index()..].fill(u64::MAX);
    }
}
