//! JSON as Python reads it: maps keep their order, the last of two equal keys wins.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use minijinja::Value;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// A JSON object in the order of its keys.
pub type Map = IndexMap<Arc<str>, Json, foldhash::fast::RandomState>;

/// A JSON value. Texts are shared, so that handing one to a template copies nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Json {
    /// `null`
    #[default]
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number without fraction.
    Int(i64),
    /// A number without fraction above `i64::MAX`.
    Large(u64),
    /// A number with a fraction or an exponent, or one too large for the others.
    Float(f64),
    /// A string.
    Text(Arc<str>),
    /// An array.
    List(Vec<Json>),
    /// An object.
    Map(Map),
}

impl Json {
    /// # Errors
    /// `bytes` is not one JSON value, or nests deeper than 128.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// The value at `key` of an object; none for `null`, as engines treat both alike.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.as_map()?.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub(crate) fn as_text(&self) -> Option<&Arc<str>> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    pub(crate) fn as_map(&self) -> Option<&Map> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// Token ids, if this is a list of them and of nothing else.
    pub(crate) fn as_ids(&self) -> Option<Vec<u32>> {
        let id = |item: &Self| match item {
            Self::Int(id) => u32::try_from(*id).ok(),
            Self::Null | Self::Bool(_) | Self::Large(_) | Self::Float(_) => None,
            Self::Text(_) | Self::List(_) | Self::Map(_) => None,
        };
        self.as_list()?.iter().map(id).collect()
    }
}

/// What a template sees.
impl From<&Json> for Value {
    fn from(json: &Json) -> Self {
        match json {
            Json::Null => Self::from(()),
            Json::Bool(value) => Self::from(*value),
            Json::Int(value) => Self::from(*value),
            Json::Large(value) => Self::from(*value),
            Json::Float(value) => Self::from(*value),
            Json::Text(text) => Self::from(Arc::clone(text)),
            Json::List(items) => items.iter().map(Self::from).collect(),
            Json::Map(map) => {
                let pairs = map.iter().map(|(key, item)| (Arc::clone(key), Self::from(item)));
                Self::from_pairs(pairs)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(i64::try_from(value).map_or(Json::Large(value), Json::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = source.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Json, A::Error> {
        let mut map = Map::default();
        while let Some((key, item)) = source.next_entry::<String, Json>()? {
            if map.len() >= KEYS_MAX {
                return Err(A::Error::custom("too many keys in one object"));
            }
            map.insert(key.into(), item);
        }
        Ok(Json::Map(map))
    }
}

/// Keys of one object: more than any schema has, and a bound on what one costs to hash.
const KEYS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_the_last_of_two_equal_ones_wins() {
        let json = Json::parse(br#"{"b": 1, "a": 2, "b": 3}"#).unwrap();
        let map = json.as_map().unwrap();
        let keys: Vec<&str> = map.keys().map(|key| &**key).collect();
        assert_eq!(keys, ["b", "a"]);
        assert_eq!(map["b"], Json::Int(3));
    }

    #[test]
    fn numbers_keep_what_they_are() {
        let json = Json::parse(b"[1, -1, 18446744073709551615, 1.0, 1e3]").unwrap();
        let expected = [
            Json::Int(1),
            Json::Int(-1),
            Json::Large(u64::MAX),
            Json::Float(1.0),
            Json::Float(1000.0),
        ];
        assert_eq!(json, Json::List(expected.into()));
    }

    #[test]
    fn ids_are_ids_only() {
        let ids = |text: &str| Json::parse(text.as_bytes()).unwrap().as_ids();
        assert_eq!(ids("[1, 4294967295]"), Some(vec![1, u32::MAX]));
        assert_eq!(ids("[]"), Some(vec![]));
        for wrong in ["[-1]", "[4294967296]", "[1.0]", "[true]", "[\"1\"]", "1"] {
            assert_eq!(ids(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nesting_and_keys_are_bounded() {
        assert!(Json::parse("[".repeat(200).as_bytes()).is_err());
        let keys: Vec<String> = (0..=KEYS_MAX).map(|n| format!("\"{n}\":0")).collect();
        assert!(Json::parse(format!("{{{}}}", keys.join(",")).as_bytes()).is_err());
    }
}
