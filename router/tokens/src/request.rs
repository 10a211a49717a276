//! The body of a request, read once.

use crate::json::{Json, Map};
use crate::why_not::WhyNot;

/// Which route the body came by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Route {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

/// A parsed body.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) route: Route,
    pub(crate) body: Json,
}

impl Request {
    /// Reads `body`, of which at most `bytes_max` are looked at.
    ///
    /// # Errors
    /// [`WhyNot::TooLarge`], or [`WhyNot::Malformed`] if it is not a JSON object.
    pub fn parse(route: Route, body: &[u8], bytes_max: usize) -> Result<Self, WhyNot> {
        if body.len() > bytes_max {
            return Err(WhyNot::TooLarge);
        }
        let body =
            Json::parse(body).map_err(|error| WhyNot::Malformed(error.to_string().into()))?;
        if body.as_map().is_none() {
            return Err(WhyNot::Malformed("not an object".into()));
        }
        Ok(Self { route, body })
    }

    /// The model that is asked for, which may be an adapter.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.body.get("model")?.as_text().map(|model| &**model)
    }

    /// The adapter that SGLang's `lora_path` names.
    #[must_use]
    pub fn adapter(&self) -> Option<&str> {
        first_text(self.body.get("lora_path")?)
    }

    /// The salt of the request's cache entries: `cache_salt`.
    #[must_use]
    pub fn salt(&self) -> Option<&str> {
        first_text(self.body.get("cache_salt")?)
    }

    /// The client's name for what shares a prefix: `prompt_cache_key`.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        let key = self.body.get("prompt_cache_key")?.as_text()?;
        Some(&**key).filter(|key| !key.is_empty())
    }

    /// Prompts in it: several of a completion are answered, and counted, together.
    #[must_use]
    pub fn prompts(&self) -> usize {
        let items = self.body.get("prompt").and_then(Json::as_list).unwrap_or_default();
        // A list of numbers is one prompt, as ids.
        let is_prompt = |item: &&Json| item.as_text().is_some() || item.as_list().is_some();
        items.iter().filter(is_prompt).count().max(1)
    }

    /// What each image is: its address, or its bytes as a data URI or as base64; in order.
    #[must_use]
    pub fn images(&self) -> Vec<&str> {
        let messages = self.body.get("messages").and_then(Json::as_list).unwrap_or_default();
        let contents = messages.iter().filter_map(|message| message.get("content")?.as_list());
        contents.flatten().filter_map(image).collect()
    }

    pub(crate) fn map(&self, key: &str) -> Option<&Map> {
        self.body.get(key)?.as_map()
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.body.get(key)?.as_bool()
    }

    /// # Errors
    /// There is no list of messages, or nothing in it.
    pub(crate) fn messages(&self) -> Result<&[Json], WhyNot> {
        let messages = self.body.get("messages").and_then(Json::as_list);
        messages.filter(|messages| !messages.is_empty()).ok_or(WhyNot::Invalid("no messages"))
    }
}

fn image(part: &Json) -> Option<&str> {
    let image = part.get("image_url").or_else(|| part.get("image"))?;
    image.as_text().or_else(|| image.get("url")?.as_text()).map(|image| image.trim())
}

/// A text, or the first one of a list.
fn first_text(value: &Json) -> Option<&str> {
    match value {
        Json::List(items) => items.first()?.as_text().map(|text| &**text),
        other => other.as_text().map(|text| &**text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str) -> Request {
        Request::parse(Route::Chat, body.as_bytes(), 1000).unwrap()
    }

    #[test]
    fn who_asks_for_what() {
        let asked = request(r#"{"model": "m", "lora_path": ["sql", null], "cache_salt": "t1"}"#);
        assert_eq!(
            (asked.model(), asked.adapter(), asked.salt()),
            (Some("m"), Some("sql"), Some("t1"))
        );
        let asked = request(r#"{"model": null, "lora_path": "sql"}"#);
        assert_eq!((asked.model(), asked.adapter(), asked.salt()), (None, Some("sql"), None));
    }

    #[test]
    fn images_are_found_in_both_spellings() {
        let asked = request(
            r#"{"messages": [{"content": "x"}, {"content": [{"type": "text", "text": "y"},
                {"type": "image_url", "image_url": {"url": " http://a "}}, {"image_url": "b"}]}]}"#,
        );
        assert_eq!(asked.images(), ["http://a", "b"]);
    }

    #[test]
    fn prompts_are_counted() {
        for (body, prompts) in [
            (r#"{"prompt": "a"}"#, 1),
            (r#"{"prompt": [1, 2, 3]}"#, 1),
            (r#"{"prompt": ["a"]}"#, 1),
            (r#"{"prompt": ["a", "b", "c"]}"#, 3),
            (r#"{"prompt": [[1, 2], [3]]}"#, 2),
            (r#"{"messages": []}"#, 1),
        ] {
            assert_eq!(request(body).prompts(), prompts, "{body}");
        }
    }

    #[test]
    fn bodies_are_bounded_and_must_be_objects() {
        let parsed = |body: &str| Request::parse(Route::Chat, body.as_bytes(), 10).map(|_| ());
        assert_eq!(parsed("{}"), Ok(()));
        assert_eq!(parsed("{\"a\": \"aaaaaaaaaa\"}"), Err(WhyNot::TooLarge));
        assert!(matches!(parsed("[]"), Err(WhyNot::Malformed(_))));
        assert!(matches!(parsed("{"), Err(WhyNot::Malformed(_))));
    }
}
