//! How long a worker is to keep a request's blocks: what the client said of it in any of three dialects, and
//! how it is passed on to an engine. Nothing a client wrote is changed: fields are put beside it, into the text
//! as it is, and what is long is not copied for that.

use bytes::Bytes;
use router_core::record::Engine;
use serde::Deserialize;
use serde_json::Value;

use crate::request::Raw;

/// What can be asked for, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retention {
    /// Don't keep them.
    None,
    /// Minutes.
    Short,
    /// Hours.
    Long,
}

impl Retention {
    /// All of them, weakest first.
    pub const ALL: [Self; 3] = [Self::None, Self::Short, Self::Long];

    /// As engines and metrics name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Short => "short",
            Self::Long => "long",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|retention| retention.as_str() == name)
    }

    /// SGLang's scheduling and eviction priority.
    const fn priority(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Short => 50,
            Self::Long => 100,
        }
    }

    fn of_cache_control(ttl: Option<&str>) -> Self {
        match ttl {
            Some("1h" | "1hr" | "60m" | "3600s" | "long") => Self::Long,
            // Absent, and what nobody knows: the least that a marked block asks for.
            _ => Self::Short,
        }
    }

    fn of_prompt_cache_retention(text: &str) -> Option<Self> {
        match text {
            "24h" | "1h" | "long" => Some(Self::Long),
            "5m" | "short" => Some(Self::Short),
            "none" | "off" | "disabled" => Some(Self::None),
            _ => None,
        }
    }
}

/// What the request in `body` asks for: the strongest of its hints, `None` without any.
#[must_use]
pub(crate) fn hint(fields: &Raw<'_>, body: &[u8]) -> Option<Retention> {
    let said = fields.prompt_cache_retention.and_then(|text| serde_json::from_str(text.get()).ok());
    let by_retention = said.and_then(|text: String| Retention::of_prompt_cache_retention(&text));
    let by_key =
        fields.prompt_cache_key.map(|_key| Retention::Short).filter(|_| by_retention.is_none());
    // Looked for before anything is built: requests without marks are the rule, and may be long.
    let is_marked = memchr::memmem::find(body, b"cache_control").is_some();
    let marks = if is_marked { marks(body) } else { None };
    by_retention.max(by_key).max(marks)
}

/// Where marks may stand.
#[derive(Deserialize)]
struct Marked {
    #[serde(default)]
    system: Value,
    #[serde(default)]
    tools: Value,
    #[serde(default)]
    messages: Value,
}

/// The strongest `cache_control` on a block of the system text, a tool or a message.
fn marks(body: &[u8]) -> Option<Retention> {
    let marked: Marked = serde_json::from_slice(body).ok()?;
    let messages = blocks(&marked.messages);
    let in_messages = messages.iter().flat_map(|message| blocks(&message["content"]));
    let all = blocks(&marked.system).iter().chain(blocks(&marked.tools)).chain(messages);
    all.chain(in_messages).filter_map(mark).max()
}

fn blocks(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn mark(block: &Value) -> Option<Retention> {
    let control = block.get("cache_control")?;
    if control.get("type")?.as_str()? != "ephemeral" {
        return None;
    }
    // What a model thought is not sent again.
    if block.get("type").and_then(Value::as_str) == Some("thinking") {
        return Some(Retention::None);
    }
    Some(Retention::of_cache_control(control.get("ttl").and_then(Value::as_str)))
}

/// What a body says nothing of, and where it could: the fields that are the router's to add.
#[derive(Debug, Default, Clone)]
pub struct Blanks {
    priority: bool,
    infera_retention: bool,
    underscored_retention: bool,
    params: Params,
    end: Place,
}

/// Of `kv_transfer_params`.
#[derive(Debug, Default, Clone)]
enum Params {
    #[default]
    Absent,
    /// An object that does not say how long.
    Open(Place),
    /// It says so, or is no object.
    Taken,
}

/// Where fields can be put at the end of an object.
#[derive(Debug, Default, Clone, Copy)]
struct Place {
    /// Where its closing brace is.
    at: usize,
    /// Whether it has no fields yet.
    is_empty: bool,
}

impl Blanks {
    /// Those of a body, which is an object.
    pub(crate) fn of(fields: &Raw<'_>, body: &[u8]) -> Self {
        let params = fields.kv_transfer_params.map(|params| match wants_retention(params.get()) {
            true => Params::Open(Place::at_end(body, end_in(body, params.get()))),
            false => Params::Taken,
        });
        Self {
            priority: fields.priority.is_none(),
            infera_retention: fields.infera_retention.is_none(),
            underscored_retention: fields.underscored_retention.is_none(),
            params: params.unwrap_or_default(),
            end: Place::at_end(body, body.trim_ascii_end().len()),
        }
    }
}

impl Place {
    /// In the object whose closing brace is the last byte before `end`.
    fn at_end(body: &[u8], end: usize) -> Self {
        let at = end.saturating_sub(1);
        Self { at, is_empty: body[..at].trim_ascii_end().ends_with(b"{") }
    }
}

/// The body as `engine` gets it, in pieces: with `retention` in the fields that this engine reads, unless the client
/// has set them.
#[must_use]
pub fn inject(body: &Bytes, blanks: &Blanks, engine: Engine, retention: Retention) -> Vec<Bytes> {
    let name = retention.as_str();
    let mut in_params = None;
    let mut added = Vec::new();
    match engine {
        Engine::Sglang => {
            if blanks.priority {
                added.push(format!("\"priority\":{}", retention.priority()));
            }
            if blanks.infera_retention {
                added.push(format!("\"infera_retention\":\"{name}\""));
            }
        }
        Engine::Vllm => {
            let field = format!("\"infera_retention\":\"{name}\"");
            match blanks.params {
                Params::Absent => added.push(format!("\"kv_transfer_params\":{{{field}}}")),
                Params::Open(place) => in_params = Some((place, field)),
                Params::Taken => {}
            }
            if blanks.underscored_retention {
                added.push(format!("\"_infera_retention\":\"{name}\""));
            }
        }
        Engine::Atom => {}
    }
    let at_end = (!added.is_empty()).then(|| (blanks.end, added.join(",")));
    let mut pieces = Vec::new();
    let mut begin = 0;
    for (place, text) in in_params.into_iter().chain(at_end) {
        let comma = if place.is_empty { "" } else { "," };
        pieces.push(body.slice(begin..place.at));
        pieces.push(Bytes::from(format!("{comma}{text}")));
        begin = place.at;
    }
    pieces.push(body.slice(begin..));
    pieces
}

/// Whether this is an object that does not say it yet.
fn wants_retention(params: &str) -> bool {
    let params: Option<serde_json::Map<String, Value>> = serde_json::from_str(params).ok();
    params.is_some_and(|params| !params.contains_key("infera_retention"))
}

/// Where `part`, a slice of `body`, ends.
fn end_in(body: &[u8], part: &str) -> usize {
    part.as_ptr().addr() - body.as_ptr().addr() + part.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Fields;

    fn hint_of(body: &str) -> Option<&'static str> {
        Fields::read(body.as_bytes()).unwrap().retention.map(Retention::as_str)
    }

    fn injected(body: &str, engine: Engine, retention: Retention) -> String {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let fields = Fields::read(&body).unwrap();
        let pieces = inject(&body, &fields.blanks, engine, retention);
        let text = String::from_utf8(pieces.concat()).unwrap();
        serde_json::from_str::<Value>(&text).expect("still JSON");
        text
    }

    #[test]
    fn every_dialect_is_read_and_the_strongest_wins() {
        let marked = |ttl: &str| {
            format!(
                r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"x","cache_control":{{"type":"ephemeral"{ttl}}}}}]}}]}}"#
            )
        };
        for ttl in ["1h", "1hr", "60m", "3600s", "long"] {
            assert_eq!(hint_of(&marked(&format!(r#","ttl":"{ttl}""#))), Some("long"), "{ttl}");
        }
        for ttl in ["5m", "5min", "300s", "short"] {
            assert_eq!(hint_of(&marked(&format!(r#","ttl":"{ttl}""#))), Some("short"), "{ttl}");
        }
        assert_eq!(hint_of(&marked("")), Some("short"));
        for (body, wanted) in [
            (r#"{}"#, None),
            (r#"{"messages":[{"role":"user","content":"cache_control"}]}"#, None),
            (r#"{"prompt_cache_retention":"24h"}"#, Some("long")),
            (r#"{"prompt_cache_retention":"1h"}"#, Some("long")),
            (r#"{"prompt_cache_retention":"long"}"#, Some("long")),
            (r#"{"prompt_cache_retention":"5m"}"#, Some("short")),
            (r#"{"prompt_cache_retention":"short"}"#, Some("short")),
            (r#"{"prompt_cache_retention":"none"}"#, Some("none")),
            (r#"{"prompt_cache_retention":"off"}"#, Some("none")),
            (r#"{"prompt_cache_retention":"disabled"}"#, Some("none")),
            (r#"{"prompt_cache_retention":"for ever"}"#, None),
            (r#"{"prompt_cache_retention":7}"#, None),
            (r#"{"prompt_cache_key":"k"}"#, Some("short")),
            (r#"{"prompt_cache_key":"k","prompt_cache_retention":"none"}"#, Some("none")),
            (r#"{"prompt_cache_key":"k","prompt_cache_retention":"24h"}"#, Some("long")),
            (
                r#"{"system":[{"type":"text","cache_control":{"type":"ephemeral","ttl":"1h"}}]}"#,
                Some("long"),
            ),
            (r#"{"tools":[{"name":"t","cache_control":{"type":"ephemeral"}}]}"#, Some("short")),
            (
                r#"{"messages":[{"role":"user","content":"x","cache_control":{"type":"ephemeral"}}]}"#,
                Some("short"),
            ),
            (
                r#"{"messages":[{"content":[{"type":"thinking","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}"#,
                Some("none"),
            ),
            (r#"{"tools":[{"cache_control":{"type":"permanent"}}]}"#, None),
            (
                r#"{"prompt_cache_retention":"5m","tools":[{"cache_control":{"type":"ephemeral","ttl":"1h"}}]}"#,
                Some("long"),
            ),
        ] {
            assert_eq!(hint_of(body), wanted, "{body}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_pass() {
        let body = Bytes::from_static(b"{\"x\":\"\xff\"}");
        let Ok(fields) = Fields::read(&body) else { return };
        let sent = inject(&body, &fields.blanks, Engine::Sglang, Retention::None).concat();
        assert_eq!(sent, b"{\"x\":\"\xff\",\"priority\":0,\"infera_retention\":\"none\"}");
    }

    #[test]
    fn each_engine_gets_its_fields_and_no_client_value_changes() {
        for (engine, retention, body, wanted) in [
            (
                Engine::Sglang,
                Retention::Long,
                r#"{"model":"m"}"#,
                r#"{"model":"m","priority":100,"infera_retention":"long"}"#,
            ),
            (
                Engine::Sglang,
                Retention::Short,
                "{}",
                r#"{"priority":50,"infera_retention":"short"}"#,
            ),
            (
                Engine::Sglang,
                Retention::None,
                r#"{"priority":7, "a": {"b":1} }  "#,
                r#"{"priority":7, "a": {"b":1} ,"infera_retention":"none"}  "#,
            ),
            (
                Engine::Sglang,
                Retention::Long,
                r#"{"priority":null,"infera_retention":"short"}"#,
                r#"{"priority":null,"infera_retention":"short"}"#,
            ),
            (
                Engine::Vllm,
                Retention::Long,
                r#"{"z":1,"a":2}"#,
                r#"{"z":1,"a":2,"kv_transfer_params":{"infera_retention":"long"},"_infera_retention":"long"}"#,
            ),
            (
                Engine::Vllm,
                Retention::Short,
                r#"{"kv_transfer_params": {"x":[1]}, "model":"é"}"#,
                r#"{"kv_transfer_params": {"x":[1],"infera_retention":"short"}, "model":"é","_infera_retention":"short"}"#,
            ),
            (
                Engine::Vllm,
                Retention::Short,
                r#"{"kv_transfer_params":{},"_infera_retention":"long"}"#,
                r#"{"kv_transfer_params":{"infera_retention":"short"},"_infera_retention":"long"}"#,
            ),
            (
                Engine::Vllm,
                Retention::Short,
                r#"{"kv_transfer_params":{"infera_retention":"none"}}"#,
                r#"{"kv_transfer_params":{"infera_retention":"none"},"_infera_retention":"short"}"#,
            ),
            (
                Engine::Vllm,
                Retention::Short,
                r#"{"kv_transfer_params":null}"#,
                r#"{"kv_transfer_params":null,"_infera_retention":"short"}"#,
            ),
            (Engine::Atom, Retention::Long, r#"{"model":"m"}"#, r#"{"model":"m"}"#),
        ] {
            assert_eq!(injected(body, engine, retention), wanted, "{engine:?} {body}");
        }
    }
}
