//! One event as a line.

use kvd_proto::events::{Event, Place, Reason};
use serde_json::{Value, json};

use crate::key::to_hex;

pub(super) fn line(seq: u64, event: &Event<'_>, json: bool) -> String {
    let value = value(seq, event);
    if json {
        return value.to_string();
    }
    let word = |name: &str| match &value[name] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(format!("{name}={other}")),
    };
    let names =
        ["event", "tier", "reason", "model", "compat_key", "key", "blocks", "bytes", "count"];
    let words: Vec<String> = names.iter().filter_map(|name| word(name)).collect();
    format!("{seq} {}", words.join(" "))
}

fn value(seq: u64, event: &Event<'_>) -> Value {
    let tier = |place: &Place<'_>| place.cache_tier().map(|tier| tier.as_str());
    match event {
        Event::Stored(stored) => json!({
            "seq": seq,
            "event": "stored",
            "tier": tier(&stored.place),
            "model": stored.namespace.model,
            "compat_key": stored.namespace.compat_key,
            "key": stored.chunk.map(|chunk| to_hex(chunk.key)),
            "blocks": stored.chunk.map(|chunk| chunk.blocks),
            "bytes": stored.chunk.map(|chunk| chunk.bytes),
        }),
        Event::Removed(removed) => json!({
            "seq": seq,
            "event": "removed",
            "tier": tier(&removed.place),
            "reason": removed.reason.map(Reason::as_str),
            "model": removed.namespace.model,
            "compat_key": removed.namespace.compat_key,
            "key": removed.chunk.map(|chunk| to_hex(chunk.key)),
        }),
        Event::Cleared(cleared) => json!({
            "seq": seq,
            "event": "cleared",
            "tier": cleared.tier.map(|tier| tier.as_str()),
            "model": cleared.namespace.model,
        }),
        Event::Digest(digest) => json!({
            "seq": seq,
            "event": "digest",
            "tier": digest.tier.map(|tier| tier.as_str()),
            "model": digest.namespace.model,
            "compat_key": digest.namespace.compat_key,
            "count": digest.tally.count,
            "xor": format!("{:016x}", digest.tally.xor),
        }),
        Event::Stats(_) => json!({"seq": seq, "event": "stats"}),
    }
}
