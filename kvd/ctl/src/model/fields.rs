//! A `config.json` by the names of its fields, which differ between models.

use serde_json::Value;

/// The part of the file that describes the language model.
pub(super) struct Fields<'a> {
    value: &'a Value,
}

/// Where models that also see or hear put their language model.
const NESTED: [&str; 4] = ["text_config", "llm_config", "language_config", "thinker_config"];

impl<'a> Fields<'a> {
    pub(super) fn of_text(whole: &'a Value) -> Self {
        let mut value = whole;
        // A nested one may hold one itself.
        while let Some(nested) =
            NESTED.iter().find_map(|name| value.get(name).filter(|nested| nested.is_object()))
        {
            value = nested;
        }
        Self { value }
    }

    /// Whether a field says something.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.value.get(name).filter(|value| !value.is_null())
    }

    /// The first of these that is a whole number.
    pub(super) fn number(&self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| self.get(name)?.as_u64())
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name)?.as_str()
    }

    /// `None` if it is not said.
    pub(super) fn truth(&self, name: &str) -> Option<bool> {
        self.get(name)?.as_bool()
    }

    /// A list of words.
    pub(super) fn words(&self, name: &str) -> Option<Vec<&'a str>> {
        self.get(name)?.as_array()?.iter().map(Value::as_str).collect()
    }

    /// A list of whole numbers.
    pub(super) fn numbers(&self, name: &str) -> Option<Vec<u64>> {
        self.get(name)?.as_array()?.iter().map(Value::as_u64).collect()
    }

    /// The fields of an object inside.
    pub(super) fn inside(&self, name: &str) -> Option<Self> {
        self.get(name).filter(|value| value.is_object()).map(|value| Self { value })
    }
}
