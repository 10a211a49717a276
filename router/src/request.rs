//! What the router reads of a request's body. Everything else passes as it is.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::retention::{self, Blanks, Retention};

/// What matters of a body.
#[derive(Debug, Default)]
pub struct Fields {
    /// The model; it must be that of a worker.
    pub model: Option<String>,
    /// Whether it is a chat; a completion has no messages.
    pub has_messages: bool,
    /// How long the client wants its blocks to be kept; nothing if it does not say.
    pub retention: Option<Retention>,
    /// Where an engine can be told of that.
    pub blanks: Blanks,
}

/// The fields as they stand in the body.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Raw<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    /// What is said of caching.
    #[serde(borrow)]
    pub(crate) prompt_cache_retention: Option<&'a RawValue>,
    /// A name for what shares a prefix.
    #[serde(borrow)]
    pub(crate) prompt_cache_key: Option<&'a RawValue>,
    /// SGLang's own. `null` counts as said, here and below.
    #[serde(borrow, default, deserialize_with = "present")]
    pub(crate) priority: Option<&'a RawValue>,
    /// What the router would add.
    #[serde(borrow, default, deserialize_with = "present")]
    pub(crate) infera_retention: Option<&'a RawValue>,
    /// The same for vLLM.
    #[serde(borrow, default, rename = "_infera_retention", deserialize_with = "present")]
    pub(crate) underscored_retention: Option<&'a RawValue>,
    /// Passed to vLLM's connector; the router adds to it.
    #[serde(borrow, default, deserialize_with = "present")]
    pub(crate) kv_transfer_params: Option<&'a RawValue>,
}

/// A field that is there is `Some`, even if it is `null`.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl Fields {
    /// Reads a JSON object. All of it is looked at, which takes some milliseconds for each MiB.
    ///
    /// # Errors
    /// What is wrong with the body, and where.
    pub fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        // Else the list of all values would do as well.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(serde::de::Error::custom("the body is no JSON object"));
        }
        let raw: Raw<'_> = serde_json::from_slice(body)?;
        Ok(Self {
            retention: retention::hint(&raw, body),
            blanks: Blanks::of(&raw, body),
            has_messages: raw.messages.is_some(),
            model: raw.model.map(Cow::into_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_wherever_they_stand() {
        let fields = Fields::read(br#" {"x":[{"model":"no"}],"model":"a\u0062"} "#).unwrap();
        assert_eq!(fields.model.as_deref(), Some("ab"));
        assert!(!fields.has_messages);
        assert!(Fields::read(br#"{"model":null}"#).unwrap().model.is_none());
        assert!(Fields::read(br#"{"messages":[]}"#).unwrap().has_messages);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in [
            "",
            "{",
            "[1]x",
            r#"["m",1,2,3,4,5,6]"#,
            "\"x\"",
            "{\"model\":1}",
            "{\"a\":01}",
            "{} {}",
            "{\"a\":\"\u{1}\"}",
        ] {
            Fields::read(body.as_bytes()).unwrap_err();
        }
    }
}
