//! What the router reads of a request's body. Everything else passes as it is.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The fields that matter here, borrowed from the body.
#[derive(Debug, Default, Deserialize)]
pub struct Fields<'a> {
    /// The model; it must be that of a worker.
    #[serde(borrow)]
    pub model: Option<Cow<'a, str>>,
    /// Of a chat; a completion has none.
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    /// What is said of caching.
    #[serde(borrow)]
    pub prompt_cache_retention: Option<&'a RawValue>,
    /// A name for what shares a prefix.
    #[serde(borrow)]
    pub prompt_cache_key: Option<&'a RawValue>,
    /// SGLang's own. `null` counts as said, here and below.
    #[serde(borrow, default, deserialize_with = "present")]
    pub priority: Option<&'a RawValue>,
    /// What the router would add.
    #[serde(borrow, default, deserialize_with = "present")]
    pub infera_retention: Option<&'a RawValue>,
    /// The same for vLLM.
    #[serde(borrow, default, rename = "_infera_retention", deserialize_with = "present")]
    pub underscored_retention: Option<&'a RawValue>,
    /// Passed to vLLM's connector; the router adds to it.
    #[serde(borrow, default, deserialize_with = "present")]
    pub kv_transfer_params: Option<&'a RawValue>,
}

/// A field that is there is `Some`, even if it is `null`.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl<'a> Fields<'a> {
    /// Whether it is a chat.
    #[must_use]
    pub const fn has_messages(&self) -> bool {
        self.messages.is_some()
    }

    /// Reads a JSON object.
    ///
    /// # Errors
    /// What is wrong with the body, and where.
    pub fn read(body: &'a [u8]) -> Result<Self, serde_json::Error> {
        // Else the list of all values would do as well.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(serde::de::Error::custom("the body is no JSON object"));
        }
        serde_json::from_slice(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_wherever_they_stand() {
        let fields = Fields::read(br#" {"x":[{"model":"no"}],"model":"a\u0062"} "#).unwrap();
        assert_eq!(fields.model.as_deref(), Some("ab"));
        assert!(Fields::read(br#"{"model":null}"#).unwrap().model.is_none());
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
