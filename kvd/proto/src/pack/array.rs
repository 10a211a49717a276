//! Lists and maps inside a message: in place in a frame, or a slice about to be sent.

use super::reader::Reader;
use super::value::{Items, Value, Wire};
use super::writer::{put_array_head, put_map_head, put_str, put_u64};
use crate::malformed::Malformed;

/// A list of `T`. Decoded lists stay in the frame and are read while they are walked.
#[derive(Clone, Copy, Debug)]
pub enum Array<'a, T> {
    /// In a frame; every element is known to be a `T`.
    Frame(Items<'a>),
    /// The caller's.
    Slice(&'a [T]),
}

impl<'a, T: Wire<'a>> Array<'a, T> {
    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Frame(items) => items.count() as usize,
            Self::Slice(items) => items.len(),
        }
    }

    /// Whether there is no element.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All elements in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + Clone + use<'a, T> {
        let (items, slice): (Items<'a>, &'a [T]) = match *self {
            Self::Frame(items) => (items, &[]),
            Self::Slice(slice) => (Items::EMPTY, slice),
        };
        items.values().filter_map(T::from_value).chain(slice.iter().copied())
    }

    /// The element at `index`; walks the elements before it.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        self.iter().nth(index)
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Array<'a, T> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        let Value::Array(items) = value else {
            return None;
        };
        items.values().all(|item| T::from_value(item).is_some()).then_some(Self::Frame(items))
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_array_head(out, self.len());
        for item in self.iter() {
            item.put(out);
        }
    }
}

impl<'a, T: Wire<'a> + PartialEq> PartialEq for Array<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

/// A map that is accepted and not interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata<'a> {
    items: Items<'a>,
}

impl<'a> Metadata<'a> {
    /// The empty map.
    pub const EMPTY: Self = Self { items: Items::EMPTY };

    /// Metadata from one encoded msgpack map.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn from_encoded(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let value = reader.value()?;
        if !reader.rest().is_empty() {
            return Err(Malformed::Trailing { left: reader.rest().len() as u64 });
        }
        Self::from_value(value).ok_or(Malformed::NotAMap)
    }

    /// Number of entries.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.items.count()
    }
}

impl<'a> Wire<'a> for Metadata<'a> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        if let Value::Map(items) = value { Some(Self { items }) } else { None }
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_map_head(out, self.items.count() as usize);
        out.extend_from_slice(self.items.content());
    }
}

/// Named numbers.
#[derive(Clone, Copy, Debug)]
pub enum Pairs<'a> {
    /// In a frame; every value is known to be an integer of 0 or more.
    Frame(Items<'a>),
    /// The caller's.
    Slice(&'a [(&'a str, u64)]),
}

impl<'a> Pairs<'a> {
    /// Number of pairs.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Frame(items) => items.count() as usize,
            Self::Slice(pairs) => pairs.len(),
        }
    }

    /// Whether there is no pair.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, u64)> + Clone + use<'a> {
        let (items, slice): (Items<'a>, &'a [(&'a str, u64)]) = match *self {
            Self::Frame(items) => (items, &[]),
            Self::Slice(slice) => (Items::EMPTY, slice),
        };
        let mut values = items.values();
        let framed = core::iter::from_fn(move || {
            let name = <&str>::from_value(values.next()?)?;
            Some((name, u64::from_value(values.next()?)?))
        });
        framed.chain(slice.iter().copied())
    }

    /// The number called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find_map(|(found, value)| (found == name).then_some(value))
    }
}

impl PartialEq for Pairs<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a> Wire<'a> for Pairs<'a> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        let Value::Map(items) = value else {
            return None;
        };
        let pairs = Self::Frame(items);
        (pairs.iter().count() == pairs.len()).then_some(pairs)
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_map_head(out, self.len());
        for (name, value) in self.iter() {
            put_str(out, name);
            put_u64(out, value);
        }
    }
}
