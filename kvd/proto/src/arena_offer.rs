//! The shared arena as both handshakes offer it.

use crate::pack::{Value, Wire, put_array_head, put_u64};

/// What a client needs to map the arena, beside the descriptor that follows the ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaOffer {
    /// Bytes to map; the descriptor's file is at least that long.
    pub size_bytes: u64,
    /// Fixed slot size of the reference; 0 in a daemon with extents of any size.
    pub slot_size_bytes: u64,
    /// Process id of the daemon in its own namespace; for logs only.
    pub server_pid: u32,
}

/// An array of three; further items, which a later release may add, are ignored.
impl<'a> Wire<'a> for ArenaOffer {
    fn from_value(value: Value<'a>) -> Option<Self> {
        let Value::Array(items) = value else {
            return None;
        };
        let mut values = items.values();
        Some(Self {
            size_bytes: u64::from_value(values.next()?)?,
            slot_size_bytes: u64::from_value(values.next()?)?,
            server_pid: u32::from_value(values.next()?)?,
        })
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_array_head(out, 3);
        put_u64(out, self.size_bytes);
        put_u64(out, self.slot_size_bytes);
        put_u64(out, self.server_pid.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Reader;

    #[test]
    fn a_longer_offer_is_fine_and_a_shorter_one_is_not() {
        let offer = ArenaOffer { size_bytes: 1 << 33, slot_size_bytes: 0, server_pid: 7 };
        let mut bytes = Vec::new();
        offer.put(&mut bytes);
        bytes[0] = 0x94;
        bytes.push(0xc0);
        assert_eq!(ArenaOffer::from_value(Reader::new(&bytes).value().unwrap()), Some(offer));
        assert_eq!(ArenaOffer::from_value(Reader::new(&[0x92, 1, 2]).value().unwrap()), None);
    }
}
