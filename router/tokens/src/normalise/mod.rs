//! From the body of a chat to what a template gets, as each engine prepares it.

mod sglang;
mod vllm;

use std::sync::Arc;

use crate::content_form::ContentForm;
use crate::json::{Json, Map};
use crate::request::Request;
use crate::template::Template;
use crate::why_not::WhyNot;

/// The server whose way of preparing a chat is followed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Engine {
    /// vLLM, and servers that behave like it.
    #[default]
    Vllm,
    /// SGLang.
    Sglang,
}

/// How a worker prepares chats, beyond what its model says.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// Its server.
    pub engine: Engine,
    /// Its default template variables: vLLM's `--default-chat-template-kwargs` and SGLang's of the same name.
    pub template_kwargs: Map,
    /// vLLM's `--exclude-tools-when-tool-choice-none`; SGLang always leaves them out.
    pub drops_unused_tools: bool,
}

/// What to put where an image, a video or a sound stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Media {
    /// What the engine puts there.
    AsEngines,
    /// [`MARK`], to find the place in the text.
    Marked,
}

/// Stands for a medium. From Unicode's private area: a client that sends it shortens its own credit.
pub(crate) const MARK: &str = "\u{e0f5}\u{e0f6}";

/// What a template is rendered with.
#[derive(Debug, Default)]
pub(crate) struct Chat {
    pub(crate) messages: Vec<Json>,
    /// None: the template sees `none`.
    pub(crate) tools: Option<Json>,
    /// Further variables.
    pub(crate) variables: Map,
    pub(crate) add_generation_prompt: bool,
    pub(crate) continued: Continued,
    pub(crate) has_media: bool,
    /// Tokens that the tokenizer adds to every text are wanted.
    pub(crate) specials: bool,
}

/// Whether the last message is to be continued, and how.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) enum Continued {
    #[default]
    No,
    /// It is rendered, and what follows its content is cut off.
    InText,
    /// It is not rendered; its ids follow those of the rest.
    Apart(Arc<str>),
}

/// The tools as the template sees them, which decides which template it is.
///
/// # Errors
/// The engine refuses the request.
pub(crate) fn tools(request: &Request, manner: &Manner) -> Result<Option<Json>, WhyNot> {
    match manner.engine {
        Engine::Vllm => vllm::tools(request, manner),
        Engine::Sglang => sglang::tools(request),
    }
}

/// # Errors
/// The engine refuses the request, or only the engine knows what becomes of it.
pub(crate) fn chat(
    request: &Request,
    tools: Option<Json>,
    template: &Template,
    manner: &Manner,
    media: Media,
) -> Result<Chat, WhyNot> {
    match manner.engine {
        Engine::Vllm => vllm::chat(request, tools, template, manner, media),
        Engine::Sglang => sglang::chat(request, tools, template, manner, media),
    }
}

/// The parts of one message's content, on their way to what the template takes.
#[derive(Debug, Default)]
struct Parts {
    items: Vec<Json>,
    texts: Vec<Arc<str>>,
    has_media: bool,
}

impl Parts {
    /// `further`: what a list of parts keeps beside the text.
    fn text(&mut self, text: Arc<str>, further: Map) {
        let mut part = typed("text", [("text", Json::Text(Arc::clone(&text)))]);
        part.extend(further);
        self.items.push(Json::Map(part));
        self.texts.push(text);
    }

    fn medium(&mut self, kind: &str, media: Media, further: Map) {
        self.has_media = true;
        let mut part = match media {
            Media::AsEngines => typed(kind, []),
            Media::Marked => typed("text", [("text", Json::text(MARK))]),
        };
        part.extend(further);
        self.items.push(Json::Map(part));
    }

    /// The content: a list, or the texts with `separator` between them. In a text, media stand in front of everything.
    fn content(self, form: ContentForm, separator: &str, media: Media) -> Json {
        match form {
            ContentForm::Parts => Json::List(self.items),
            ContentForm::Text => {
                let mark = (self.has_media && media == Media::Marked).then_some(MARK);
                let texts = self.texts.iter().map(|text| &**text);
                let texts: Vec<&str> = mark.into_iter().chain(texts).collect();
                Json::text(&texts.join(separator))
            }
        }
    }
}

/// `{"type": kind, …}`
fn typed<const N: usize>(kind: &str, fields: [(&str, Json); N]) -> Map {
    let fields = fields.into_iter().map(|(name, value)| (name.into(), value));
    [("type".into(), Json::text(kind))].into_iter().chain(fields).collect()
}

/// What kind of medium a part of this type is.
fn medium_of(kind: &str) -> Option<&'static str> {
    match kind {
        "image_url" | "input_image" | "image_pil" | "image_embeds" => Some("image"),
        "audio_url" | "input_audio" | "audio_embeds" => Some("audio"),
        "video_url" | "video_embeds" => Some("video"),
        _ => None,
    }
}

/// Copies the entries of `map` at `keys`, in the order of `keys`.
fn pick(map: &Map, keys: &[&str]) -> Map {
    let entry =
        |key: &&str| map.get_key_value(*key).map(|(key, value)| (Arc::clone(key), value.clone()));
    keys.iter().filter_map(entry).collect()
}
