//! The way of one request: prepared, rendered, encoded.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::Value;

use crate::continued;
use crate::files::{self, LoadError, Native};
use crate::json::{Json, Map};
use crate::normalise::{self, Chat, Continued, Engine, MARK, Manner, Media};
use crate::request::{Request, Route};
use crate::template::{Budget, Template, add_variables};
use crate::tokenizer::{CANARY, Encoded, Tokenizer};
use crate::why_not::WhyNot;

/// Bounds on what one request may take, and on what is remembered of all.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a text that is encoded, and of ids; longer ones get none.
    pub text_bytes: usize,
    /// Work of one rendering: instructions, and bytes at 64 to one. A conversation of a megabyte takes less than half a million.
    pub template_fuel: u64,
    /// Bytes of the cache of ids, of each model; 0 for none.
    pub cache_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { text_bytes: 4 << 20, template_fuel: 4_000_000, cache_bytes: 64 << 20 }
    }
}

/// The token ids of a request's prompt.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Prompt {
    /// In order. Of media there are only the placeholders that the template puts there.
    pub ids: Vec<u32>,
    /// So many of them, from the first on, are what the engine will see: all, unless there are media.
    pub certain: usize,
    /// Bytes of the text, 0 if the request brought ids.
    pub text_bytes: usize,
    /// Bytes of it whose ids were remembered.
    pub cached_bytes: usize,
}

/// Two chats, without and with tools, to compare with what a worker's `/tokenize` says of them.
pub const PARITY_CHATS: [&str; 2] = [
    r#"{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How are you? 你好 🦄"}]}"#,
    r#"{"messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [{"type": "function", "function": {"name": "weather",
        "description": "Says the weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]}"#,
];

/// Everything that is needed to know a model's token ids; shared by threads.
#[derive(Debug)]
pub struct Tokens {
    tokenizer: Tokenizer,
    templates: BTreeMap<String, Template>,
    special_tokens: Map,
    native: Native,
    limits: Limits,
}

impl Tokens {
    /// Reads the model at `path`: its folder, or its `tokenizer.json`. Takes up to some seconds.
    ///
    /// # Errors
    /// There is no usable tokenizer, or a file is damaged. A template that does not compile is one.
    pub fn load(path: &Path, limits: Limits) -> Result<Self, LoadError> {
        let files = files::read(path)?;
        let malformed = |why: String| LoadError::Malformed { path: path.to_owned(), why };
        let budget = Budget { fuel: limits.template_fuel, text_bytes: limits.text_bytes };
        let mut templates = BTreeMap::new();
        for (name, source) in files.templates {
            let template = Template::compile(&source, budget);
            let template = template.map_err(|why| malformed(format!("template {name}: {why}")))?;
            templates.insert(name, template);
        }
        let tokenizer = Tokenizer::new(files.tokenizer, limits.cache_bytes);
        Ok(Self {
            tokenizer: tokenizer.map_err(|why| malformed(why.to_string()))?,
            templates,
            special_tokens: files.special_tokens,
            native: files.native,
            limits,
        })
    }

    /// The same model, whose chats are known to be encoded without a template: `INFERA_KV_CHAT_ENCODING=dsv4`.
    #[must_use]
    pub fn without_template(self) -> Self {
        Self { native: Native::Everywhere, ..self }
    }

    /// Does a worker that announced these ids of the canary have the same tokenizer?
    #[must_use]
    pub fn agrees(&self, canary: &[u32]) -> bool {
        self.tokenizer.encode(CANARY, false).is_ok_and(|encoded| encoded.ids == canary)
    }

    /// Bytes that the cache of ids holds.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        self.tokenizer.cache.bytes()
    }

    /// The ids of `request`, as a worker of this `manner` makes them. `now` is for templates that print the date.
    ///
    /// # Errors
    /// Why there are none.
    pub fn of(
        &self,
        request: &Request,
        manner: &Manner,
        now: SystemTime,
    ) -> Result<Prompt, WhyNot> {
        if let Some(ids) = given_ids(request, manner.engine) {
            return self.given(ids.as_ids().ok_or(WhyNot::Invalid("ids that are none"))?);
        }
        match request.route {
            Route::Chat => self.chat(request, manner, now),
            Route::Completions => self.completion(request, manner),
        }
    }

    fn completion(&self, request: &Request, manner: &Manner) -> Result<Prompt, WhyNot> {
        for (field, engine) in [
            ("prompt_embeds", Engine::Vllm),
            ("truncate_prompt_tokens", Engine::Vllm),
            ("extra_key", Engine::Sglang),
        ] {
            if manner.engine == engine && request.body.get(field).is_some() {
                return Err(WhyNot::Unknowable(field));
            }
        }
        // An empty suffix is none.
        if request
            .body
            .get("suffix")
            .and_then(Json::as_text)
            .is_some_and(|suffix| !suffix.is_empty())
        {
            return Err(WhyNot::Unknowable("suffix"));
        }
        let prompt = request.body.get("prompt").ok_or(WhyNot::Invalid("no prompt"))?;
        if let Some(ids) = prompt.as_ids().filter(|ids| !ids.is_empty()) {
            return self.given(ids);
        }
        // Of several prompts, the first one counts.
        let first = prompt.as_list().and_then(<[Json]>::first).unwrap_or(prompt);
        if let Some(ids) = first.as_ids().filter(|ids| !ids.is_empty()) {
            return self.given(ids);
        }
        let text =
            first.as_text().ok_or(WhyNot::Invalid("a prompt that is neither text nor ids"))?;
        let specials = match manner.engine {
            Engine::Vllm => request.flag("add_special_tokens").unwrap_or(true),
            Engine::Sglang => true,
        };
        self.certain(self.encoded(text, specials)?, text.len())
    }

    fn chat(&self, request: &Request, manner: &Manner, now: SystemTime) -> Result<Prompt, WhyNot> {
        let own = |of: Option<&Map>| {
            of.and_then(|of| of.get("chat_template")).is_some_and(|own| !own.is_null())
        };
        if own(request.body.as_map()) || own(request.map("chat_template_kwargs")) {
            return Err(WhyNot::OwnTemplate);
        }
        if self.native == Native::Everywhere
            || (self.native == Native::InVllm && manner.engine == Engine::Vllm)
        {
            return Err(WhyNot::NativeEncoder);
        }
        let tools = normalise::tools(request, manner)?;
        let template = self.template(tools.is_some())?;
        let prepared = |media| normalise::chat(request, tools.clone(), template, manner, media);
        let chat = prepared(Media::AsEngines)?;
        let text = self.render(&chat, template, manner, now)?;
        let mut encoded = self.encoded(&text, chat.specials)?;
        if let Continued::Apart(prefix) = &chat.continued {
            self.append(&mut encoded, prefix)?;
        }
        if !chat.has_media {
            return self.certain(encoded, text.len());
        }
        let marked = self.render(&prepared(Media::Marked)?, template, manner, now)?;
        let certain = self.before_media(&text, &marked, chat.specials)?;
        Ok(Prompt { certain, ..self.certain(encoded, text.len())? })
    }

    fn template(&self, with_tools: bool) -> Result<&Template, WhyNot> {
        let for_tools = with_tools.then(|| self.templates.get("tool_use")).flatten();
        for_tools.or_else(|| self.templates.get("default")).ok_or(WhyNot::NoTemplate)
    }

    fn render(
        &self,
        chat: &Chat,
        template: &Template,
        manner: &Manner,
        now: SystemTime,
    ) -> Result<String, WhyNot> {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed());
        let rendered = |tools: Option<&Json>| {
            let mut messages = chat.messages.clone();
            if chat.continued == Continued::InText {
                continued::mark(&mut messages)?;
            }
            let mut variables = BTreeMap::new();
            add_variables(&mut variables, &self.special_tokens);
            // Known to every template, unless the request says what they are.
            variables.insert("documents".into(), Value::from(()));
            add_variables(&mut variables, &chat.variables);
            variables.insert("messages".into(), Value::from(&Json::List(messages)));
            variables.insert("tools".into(), tools.map_or(Value::from(()), Value::from));
            variables
                .insert("add_generation_prompt".into(), Value::from(chat.add_generation_prompt));
            let text = template.render(variables, now)?;
            if chat.continued == Continued::InText {
                continued::cut(text, &chat.messages)
            } else {
                Ok(text)
            }
        };
        match (rendered(chat.tools.as_ref()), manner.engine, &chat.tools) {
            // SGLang then tries the bare functions.
            (Err(WhyNot::Refused(_)), Engine::Sglang, Some(tools)) => {
                rendered(Some(&bare_functions(tools)))
            }
            (outcome, ..) => outcome,
        }
    }

    /// How many ids at the front do not depend on media: those of the text in front of the first one.
    fn before_media(&self, text: &str, marked: &str, specials: bool) -> Result<usize, WhyNot> {
        let marked_at = marked.find(MARK).unwrap_or(0);
        let same = text.char_indices().zip(marked.chars()).find(|((_, a), b)| a != b);
        let same = same.map_or(text.len().min(marked.len()), |((at, _), _)| at);
        let front = text.get(..same.min(marked_at)).unwrap_or_default();
        // The last ids of the front may be others with something behind them.
        let (front, marked) = (self.encoded(front, specials)?, self.encoded(marked, specials)?);
        Ok(front.ids.iter().zip(&marked.ids).take_while(|(a, b)| a == b).count())
    }

    /// SGLang's way to continue a message: its ids, without the token that every text begins with.
    fn append(&self, encoded: &mut Encoded, prefix: &str) -> Result<(), WhyNot> {
        let further = self.encoded(prefix, true)?;
        let begin = self.special_tokens.get("bos_token").and_then(Json::as_text);
        let begin = begin.and_then(|token| self.tokenizer.id(token));
        let skipped = usize::from(begin.is_some() && further.ids.first().copied() == begin);
        encoded.ids.extend(further.ids.iter().skip(skipped));
        Ok(())
    }

    fn encoded(&self, text: &str, specials: bool) -> Result<Encoded, WhyNot> {
        if text.len() > self.limits.text_bytes {
            return Err(WhyNot::TooLarge);
        }
        self.tokenizer.encode(text, specials)
    }

    fn given(&self, ids: Vec<u32>) -> Result<Prompt, WhyNot> {
        self.certain(Encoded { ids, cached_bytes: 0 }, 0)
    }

    fn certain(&self, encoded: Encoded, text_bytes: usize) -> Result<Prompt, WhyNot> {
        if encoded.ids.len() > self.limits.text_bytes {
            return Err(WhyNot::TooLarge);
        }
        let certain = encoded.ids.len();
        Ok(Prompt { ids: encoded.ids, certain, text_bytes, cached_bytes: encoded.cached_bytes })
    }
}

/// Ids that a chat brings along. vLLM does not look at them if it needs the messages: to repeat them, or for media.
fn given_ids(request: &Request, engine: Engine) -> Option<&Json> {
    if request.route != Route::Chat {
        return None;
    }
    if engine == Engine::Sglang {
        return request.body.get("input_ids");
    }
    let ids = request.body.get("kv_transfer_params")?.get("prompt_token_ids")?;
    let is_list =
        |message: &Json| message.get("content").is_some_and(|content| content.as_list().is_some());
    let needs_messages =
        request.flag("echo") == Some(true) || request.messages().ok()?.iter().any(is_list);
    (!needs_messages).then_some(ids)
}

/// Tools without what OpenAI's interface wraps around functions.
fn bare_functions(tools: &Json) -> Json {
    let bare = |tool: &Json| tool.get("function").unwrap_or(tool).clone();
    Json::List(tools.as_list().unwrap_or_default().iter().map(bare).collect())
}
