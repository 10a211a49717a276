//! Hashes, parents and tokens of blocks, in each of their spellings.

use crate::pack::{Items, Value, Wire, put_array_head, put_bin, put_i64, put_str, put_u64};

/// Bytes of a hash of which the last eight are its 64 bits.
const HASH_BYTES_MIN: usize = 8;

/// An engine's name of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockHash<'a> {
    /// 64 bits, sent as a signed or an unsigned integer.
    Bits(u64),
    /// A whole digest, at least eight bytes.
    Digest(&'a [u8]),
}

impl BlockHash<'_> {
    /// The 64 bits that both spellings of one hash share: of a digest its last eight bytes, big-endian.
    #[must_use]
    pub fn bits(&self) -> u64 {
        match self {
            Self::Bits(bits) => *bits,
            Self::Digest(bytes) => {
                bytes.last_chunk().map_or(0, |last: &[u8; 8]| u64::from_be_bytes(*last))
            }
        }
    }
}

impl<'a> Wire<'a> for BlockHash<'a> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Unsigned(bits) => Some(Self::Bits(bits)),
            Value::Negative(bits) => Some(Self::Bits(bits.cast_unsigned())),
            Value::Bytes(bytes) if bytes.len() >= HASH_BYTES_MIN => Some(Self::Digest(bytes)),
            Value::Bytes(_)
            | Value::Nil
            | Value::Bool(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::Array(_)
            | Value::Map(_)
            | Value::Extension => None,
        }
    }
    /// Integers go out signed, as engines send them.
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Bits(bits) => put_i64(out, bits.cast_signed()),
            Self::Digest(bytes) => put_bin(out, bytes),
        }
    }
}

/// What stands in front of the first block of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parent<'a> {
    /// Nothing: the first block begins a prompt.
    Root,
    /// This block.
    Block(BlockHash<'a>),
    /// Not said, or not readable.
    #[default]
    Unknown,
}

impl<'a> Parent<'a> {
    pub(crate) fn of(value: Value<'a>) -> Self {
        if value == Value::Nil {
            return Self::Root;
        }
        BlockHash::from_value(value).map_or(Self::Unknown, Self::Block)
    }
}

/// A token id. Engines that draft tokens send pairs; the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u32);

impl<'a> Wire<'a> for Token {
    fn from_value(value: Value<'a>) -> Option<Self> {
        if let Value::Array(pair) = value {
            return u32::from_value(pair.values().next()?).map(Self);
        }
        u32::from_value(value).map(Self)
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, self.0.into());
    }
}

/// What besides its tokens goes into the identity of each block of an event: adapter, salt, media.
#[derive(Clone, Copy, Debug)]
pub enum ExtraKeys<'a> {
    /// In a frame: a list or nil per block.
    Frame(Items<'a>),
    /// About to be sent: the salt of the first block, and nothing else.
    Salt(&'a str),
}

impl<'a> ExtraKeys<'a> {
    /// The entries of the block at `index`, first block 0. A list that ends early has none for the rest.
    pub fn of_block(&self, index: usize) -> impl Iterator<Item = Value<'a>> + Clone + use<'a> {
        let (items, salt) = match *self {
            Self::Frame(items) => (items.values().nth(index), None),
            Self::Salt(salt) => (None, (index == 0).then_some(Value::Text(salt))),
        };
        let items = if let Some(Value::Array(items)) = items { items } else { Items::EMPTY };
        items.values().chain(salt)
    }

    /// Whether no block has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Frame(items) => items
                .values()
                .all(|block| !matches!(block, Value::Array(entries) if entries.count() > 0)),
            Self::Salt(_) => false,
        }
    }
}

impl PartialEq for ExtraKeys<'_> {
    fn eq(&self, other: &Self) -> bool {
        let encoded = |keys: &Self| {
            let mut out = Vec::new();
            keys.put(&mut out);
            out
        };
        encoded(self) == encoded(other)
    }
}

impl<'a> Wire<'a> for ExtraKeys<'a> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        if let Value::Array(items) = value { Some(Self::Frame(items)) } else { None }
    }
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Frame(items) => {
                put_array_head(out, items.count() as usize);
                out.extend_from_slice(items.content());
            }
            Self::Salt(salt) => {
                put_array_head(out, 1);
                put_array_head(out, 1);
                put_str(out, salt);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_hash_is_the_same_64_bits() {
        let bits = 0xcf97_adee_db59_e05b_u64;
        let mut digest = [7; 32];
        digest[24..].copy_from_slice(&bits.to_be_bytes());
        for value in [
            Value::Unsigned(bits),
            Value::Negative(-3_488_128_144_981_237_669),
            Value::Bytes(&digest),
            Value::Bytes(&digest[24..]),
        ] {
            assert_eq!(BlockHash::from_value(value).map(|hash| hash.bits()), Some(bits));
        }
        assert_eq!(BlockHash::from_value(Value::Bytes(&digest[..7])), None);
        assert_eq!(BlockHash::from_value(Value::Text("cf97adeedb59e05b")), None);
    }

    #[test]
    fn a_parent_that_cannot_be_read_is_unknown_and_never_the_root() {
        assert_eq!(Parent::of(Value::Nil), Parent::Root);
        assert_eq!(Parent::of(Value::Text("x")), Parent::Unknown);
        assert_eq!(Parent::of(Value::Unsigned(3)), Parent::Block(BlockHash::Bits(3)));
    }
}
