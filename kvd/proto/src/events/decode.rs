//! One event from an array or a map, whichever it is.

use super::block::Parent;
use super::encode::{CLEARED, REMOVED, STORED};
use super::event::{
    Chunk, Cleared, Event, Namespace, Owner, Reason, Removed, Scope, Shard, Stored,
};
use super::figures::{Digest, Stats};
use super::place::{CacheTier, Place};
use crate::malformed::Malformed;
use crate::pack::{Array, Reader, Value, Wire};

/// What one event was decoded to.
#[derive(Debug)]
pub(super) struct Decoded<'a> {
    /// Nothing if its type is unknown.
    pub(super) event: Option<Event<'a>>,
    /// Fields that nobody knows.
    pub(super) unknown_fields: u32,
}

impl<'a> Event<'a> {
    /// Decodes the next event, and reads it to its end even if it cannot be used. The bytes are known to be well formed.
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Decoded<'a>, Malformed> {
        let Some((count, is_map)) = reader.container_head()? else {
            return Err(Malformed::WrongType { field: "event" });
        };
        let whole = reader.clone();
        let mut left = count;
        let mut values = core::iter::from_fn(|| {
            left = left.checked_sub(1)?;
            reader.value().ok()
        });
        let decoded =
            if is_map { from_map(&mut values, whole, count) } else { from_array(&mut values) };
        values.for_each(drop);
        decoded
    }
}

/// The fields of an event in the order of engines that send arrays.
const STORED_ORDER: &[&str] = &[
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
];
const REMOVED_ORDER: &[&str] = &["block_hashes", "medium", "group_idx", "locality"];

fn from_array<'a>(values: &mut impl Iterator<Item = Value<'a>>) -> Result<Decoded<'a>, Malformed> {
    let tag = values.next().and_then(<&str>::from_value);
    let tag = tag.ok_or(Malformed::WrongType { field: "type" })?;
    let (mut draft, order) = match tag {
        STORED => (Draft::Stored(Stored::default()), STORED_ORDER),
        REMOVED => (Draft::Removed(Removed::default()), REMOVED_ORDER),
        CLEARED => (Draft::Cleared(Cleared::default()), &[][..]),
        _ => return Ok(Decoded { event: None, unknown_fields: 0 }),
    };
    let mut unknown_fields = 0_u32;
    let mut names = order.iter();
    for value in values {
        let Some(name) = names.next() else {
            unknown_fields = unknown_fields.saturating_add(1);
            continue;
        };
        draft.set(name, value)?;
    }
    Ok(Decoded { event: Some(draft.finish()?), unknown_fields })
}

/// `whole`: where `values`, of which there are `count`, begin.
fn from_map<'a>(
    values: &mut impl Iterator<Item = Value<'a>>,
    mut whole: Reader<'a>,
    count: u64,
) -> Result<Decoded<'a>, Malformed> {
    let mut entry = (values.next(), values.next());
    let mut tag = tag_of(&entry);
    // Nearly everybody writes the type first.
    for _ in 0..count / 2 {
        if tag.is_some() {
            break;
        }
        tag = tag_of(&(whole.value().ok(), whole.value().ok()));
    }
    let mut draft = match tag.ok_or(Malformed::WrongType { field: "type" })? {
        STORED => Draft::Stored(Stored::default()),
        REMOVED => Draft::Removed(Removed::default()),
        CLEARED => Draft::Cleared(Cleared::default()),
        Stats::TYPE => Draft::Stats(Stats::default()),
        Digest::TYPE => Draft::Digest(Digest::default()),
        _ => return Ok(Decoded { event: None, unknown_fields: 0 }),
    };
    let mut unknown_fields = 0_u32;
    while let (Some(name), Some(value)) = entry {
        let name = <&str>::from_value(name).unwrap_or_default();
        if name != "type" && !draft.set(name, value)? {
            unknown_fields = unknown_fields.saturating_add(1);
        }
        entry = (values.next(), values.next());
    }
    Ok(Decoded { event: Some(draft.finish()?), unknown_fields })
}

/// The text of the entry if it is the type.
fn tag_of<'a>(entry: &(Option<Value<'a>>, Option<Value<'a>>)) -> Option<&'a str> {
    let (Some(Value::Text("type")), Some(tag)) = entry else {
        return None;
    };
    <&str>::from_value(*tag)
}

/// An event whose fields are still being read.
enum Draft<'a> {
    Stored(Stored<'a>),
    Removed(Removed<'a>),
    Cleared(Cleared<'a>),
    Stats(Stats<'a>),
    Digest(Digest<'a>),
}

impl<'a> Draft<'a> {
    /// Takes one field; false if the event has no such field.
    fn set(&mut self, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
        match self {
            Self::Stored(stored) => stored.set(name, value),
            Self::Removed(removed) => removed.set(name, value),
            Self::Cleared(cleared) => cleared.set(name, value),
            Self::Stats(stats) => stats.set(name, value),
            Self::Digest(digest) => digest.set(name, value),
        }
    }

    fn finish(self) -> Result<Event<'a>, Malformed> {
        match self {
            Self::Stored(stored) => Ok(Event::Stored(stored)),
            Self::Removed(removed) => Ok(Event::Removed(removed)),
            Self::Cleared(cleared) => cleared.check().map(Event::Cleared),
            Self::Stats(stats) => Ok(Event::Stats(stats)),
            Self::Digest(digest) => digest.check().map(Event::Digest),
        }
    }
}

impl<'a> Stored<'a> {
    fn set(&mut self, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
        match name {
            "block_hashes" => self.block_hashes = required("block_hashes", value)?,
            "parent_block_hash" => self.parent = Parent::of(value),
            "token_ids" => self.tokens = list("token_ids", value)?,
            "block_size" => self.block_size = lenient(value).unwrap_or(0),
            "lora_id" => self.lora_id = lenient(value),
            "lora_name" => self.lora_name = lenient(value),
            "extra_keys" => self.extra_keys = optional("extra_keys", value)?,
            "group_idx" => self.group = optional("group_idx", value)?,
            "kv_cache_spec_kind" => self.spec_kind = optional("kv_cache_spec_kind", value)?,
            "router_hashes" => self.router_hashes = list("router_hashes", value)?,
            "chunk" => self.chunk = chunk(value)?,
            "shard" => self.shard = shard(value)?,
            "reason" => self.reason = reason(value),
            // Known, and of no use: a window is refused by its kind.
            "kv_cache_spec_sliding_window" => {}
            _ => {
                return Ok(set_place(&mut self.place, name, value)?
                    || set_owner(&mut self.owner, &mut self.namespace, name, value)?);
            }
        }
        Ok(true)
    }
}

impl<'a> Removed<'a> {
    fn set(&mut self, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
        match name {
            "block_hashes" => self.block_hashes = required("block_hashes", value)?,
            "group_idx" => self.group = optional("group_idx", value)?,
            "router_hashes" => self.router_hashes = list("router_hashes", value)?,
            "chunk" => self.chunk = chunk(value)?,
            "shard" => self.shard = shard(value)?,
            "reason" => self.reason = reason(value),
            _ => {
                return Ok(set_place(&mut self.place, name, value)?
                    || set_owner(&mut self.owner, &mut self.namespace, name, value)?);
            }
        }
        Ok(true)
    }
}

impl<'a> Cleared<'a> {
    fn set(&mut self, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
        match name {
            // A scope that is not known covers everything: to forget is safe.
            "scope" => {
                let word = lenient::<&str>(value);
                let known = Scope::ALL.into_iter().find(|scope| Some(scope.as_str()) == word);
                self.scope = known.unwrap_or_default();
            }
            "tier" => self.tier = lenient::<&str>(value).and_then(CacheTier::parse),
            _ => return set_owner(&mut self.owner, &mut self.namespace, name, value),
        }
        Ok(true)
    }

    /// A clear of something that it does not name covers everything.
    #[expect(clippy::unnecessary_wraps, reason = "the same shape as the other events")]
    fn check(mut self) -> Result<Self, Malformed> {
        let is_named = match self.scope {
            Scope::All => true,
            Scope::Model => self.namespace.model.is_some(),
            Scope::Tier => self.tier.is_some(),
        };
        if !is_named {
            self.scope = Scope::All;
        }
        Ok(self)
    }
}

pub(super) fn set_owner<'a>(
    owner: &mut Owner<'a>,
    namespace: &mut Namespace<'a>,
    name: &str,
    value: Value<'a>,
) -> Result<bool, Malformed> {
    match name {
        "owner" => owner.id = optional("owner", value)?,
        "epoch" => owner.epoch = optional("epoch", value)?,
        "model" => namespace.model = optional("model", value)?,
        "compat_key" => namespace.compat_key = optional("compat_key", value)?,
        "engine" => namespace.engine = optional("engine", value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn set_place<'a>(place: &mut Place<'a>, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
    match name {
        "medium" => place.medium = optional("medium", value)?,
        "locality" => place.locality = optional("locality", value)?,
        "tier" => place.tier = optional("tier", value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn chunk(value: Value<'_>) -> Result<Option<Chunk<'_>>, Malformed> {
    let Value::Map(items) = value else {
        return if value == Value::Nil { Ok(None) } else { wrong("chunk") };
    };
    let (mut key, mut blocks, mut bytes) = (None, 0, 0);
    let mut values = items.values();
    while let (Some(name), Some(value)) = (values.next(), values.next()) {
        match <&str>::from_value(name) {
            Some("key") => key = <&[u8]>::from_value(value),
            Some("n_blocks") => blocks = required("n_blocks", value)?,
            Some("bytes") => bytes = required("bytes", value)?,
            _ => {}
        }
    }
    let key = key.ok_or(Malformed::WrongType { field: "chunk" })?;
    Ok(Some(Chunk { key, blocks, bytes }))
}

fn shard(value: Value<'_>) -> Result<Option<Shard>, Malformed> {
    let Some(pair) = optional::<Array<'_, u32>>("shard", value)? else {
        return Ok(None);
    };
    let mut pair = pair.iter();
    let (Some(index), Some(count), None) = (pair.next(), pair.next(), pair.next()) else {
        return wrong("shard");
    };
    if index >= count {
        return Err(Malformed::BadValue { field: "shard" });
    }
    Ok(Some(Shard { index, count }))
}

fn reason(value: Value<'_>) -> Option<Reason> {
    let word = lenient::<&str>(value)?;
    Reason::ALL.into_iter().find(|reason| reason.as_str() == word)
}

fn wrong<T>(field: &'static str) -> Result<T, Malformed> {
    Err(Malformed::WrongType { field })
}

pub(super) fn required<'a, T: Wire<'a>>(
    field: &'static str,
    value: Value<'a>,
) -> Result<T, Malformed> {
    T::from_value(value).ok_or(Malformed::WrongType { field })
}

/// Nil is as good as absent; any other kind is an error.
pub(super) fn optional<'a, T: Wire<'a>>(
    field: &'static str,
    value: Value<'a>,
) -> Result<Option<T>, Malformed> {
    required(field, value)
}

/// Nil is as good as an empty list.
fn list<'a, T: Wire<'a>>(field: &'static str, value: Value<'a>) -> Result<Array<'a, T>, Malformed> {
    Ok(optional::<Array<'a, T>>(field, value)?.unwrap_or(Array::Slice(&[])))
}

/// Another kind is as good as absent.
fn lenient<'a, T: Wire<'a>>(value: Value<'a>) -> Option<T> {
    T::from_value(value)
}
