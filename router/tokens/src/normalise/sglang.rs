//! As SGLang does (0.5.23): `entrypoints/openai/serving_chat.py`, `parser/jinja_template_utils.py` and the request's own model.

use std::sync::Arc;

use super::{Chat, Continued, Manner, Media, Parts, medium_of, pick, typed};
use crate::content_form::ContentForm;
use crate::json::{Json, Map};
use crate::request::Request;
use crate::template::Template;
use crate::why_not::WhyNot;

const ROLES: [&str; 8] =
    ["user", "system", "assistant", "tool", "function", "developer", "latest_reminder", "root"];

pub(super) fn tools(request: &Request) -> Result<Option<Json>, WhyNot> {
    let tools = request.body.get("tools").and_then(Json::as_list).unwrap_or_default();
    let tools: Option<Vec<Json>> = tools.iter().map(tool).collect();
    let mut tools = tools.ok_or(WhyNot::Invalid("a tool without a function"))?;
    match request.body.get("tool_choice") {
        Some(Json::Text(choice)) if &**choice == "none" => tools.clear(),
        Some(choice @ Json::Map(_)) => {
            let chosen = choice.get("function").and_then(|function| function.get("name"));
            tools.retain(|tool| {
                tool.get("function").and_then(|function| function.get("name")) == chosen
            });
        }
        _ => {}
    }
    Ok((!tools.is_empty()).then_some(Json::List(tools)))
}

/// A function keeps the order of its fields; what is missing follows as `null`.
fn tool(tool: &Json) -> Option<Json> {
    const FIELDS: [&str; 5] = ["description", "name", "parameters", "strict", "defer_loading"];
    let function = tool.get("function")?.as_map()?;
    let outer_deferred = tool.get("defer_loading");
    let mut dumped = Map::default();
    let known = function.iter().filter(|(field, _)| FIELDS.contains(&&***field));
    dumped.extend(known.map(|(field, value)| (Arc::clone(field), value.clone())));
    for field in FIELDS {
        if !dumped.contains_key(field) {
            dumped.insert(field.into(), Json::Null);
        }
    }
    if let Some(deferred) = outer_deferred
        && dumped.get("defer_loading").is_some_and(Json::is_null)
    {
        dumped.insert("defer_loading".into(), deferred.clone());
    }
    dumped.retain(|field, value| {
        !(value.is_null() && matches!(&**field, "strict" | "defer_loading"))
    });
    let kind = tool.get("type").and_then(Json::as_text).map_or("function", |kind| &**kind);
    let deferred = outer_deferred.cloned().unwrap_or_default();
    Some(Json::Map(typed(kind, [("function", Json::Map(dumped)), ("defer_loading", deferred)])))
}

pub(super) fn chat(
    request: &Request,
    tools: Option<Json>,
    template: &Template,
    manner: &Manner,
    media: Media,
) -> Result<Chat, WhyNot> {
    if request.body.get("extra_key").is_some() {
        return Err(WhyNot::Unknowable("extra_key"));
    }
    let mut chat = Chat { tools, add_generation_prompt: true, ..Chat::default() };
    for source in request.messages()? {
        let (message, has_media) = message(source, template.sglang_form, media)?;
        chat.has_media |= has_media;
        chat.messages.push(message);
    }
    last_message(&mut chat, request.flag("continue_final_message") == Some(true));
    chat.variables = variables(request, manner);
    Ok(chat)
}

/// An assistant's last message is continued, or becomes the user's.
fn last_message(chat: &mut Chat, continued: bool) {
    let Some(last) = chat.messages.last().filter(|last| role(last) == "assistant") else { return };
    let Some(text) = last.get("content").and_then(Json::as_text).cloned() else { return };
    chat.messages.pop();
    if continued {
        chat.continued = Continued::Apart(text);
        return;
    }
    let mut message = Map::default();
    message.insert("role".into(), Json::text("user"));
    message.insert("content".into(), Json::Text(text));
    chat.messages.push(Json::Map(message));
}

fn variables(request: &Request, manner: &Manner) -> Map {
    let mut own = request.map("chat_template_kwargs").cloned().unwrap_or_default();
    let reasoning = request.body.get("reasoning").filter(|reasoning| reasoning.as_map().is_some());
    let stated = reasoning.and_then(|of| of.get("effort").or_else(|| of.get("reasoning_effort")));
    let mut effort = stated.or_else(|| request.body.get("reasoning_effort")).cloned();
    let thinks = match &effort {
        Some(effort) => Some(effort.as_text().is_none_or(|effort| &**effort != "none")),
        None => reasoning
            .and_then(|of| of.get("enabled").or_else(|| of.get("enable")))
            .and_then(Json::as_bool)
            .filter(|on| *on),
    };
    if let Some(thinks) = thinks {
        for name in ["thinking", "enable_thinking"] {
            own.entry(name.into()).or_insert(Json::Bool(thinks));
        }
    }
    for (name, value) in &manner.template_kwargs {
        own.entry(Arc::clone(name)).or_insert_with(|| value.clone());
    }
    effort =
        effort.or_else(|| own.get("reasoning_effort").filter(|effort| !effort.is_null()).cloned());
    let mut variables = Map::default();
    variables.extend(effort.map(|effort| ("reasoning_effort".into(), effort)));
    variables.extend(own);
    variables
}

fn role(message: &Json) -> &str {
    message.get("role").and_then(Json::as_text).map_or("", |role| &**role)
}

fn message(source: &Json, form: ContentForm, media: Media) -> Result<(Json, bool), WhyNot> {
    const FIELDS: [&str; 9] = [
        "role",
        "content",
        "tool_call_id",
        "name",
        "phase",
        "reasoning_content",
        "tool_calls",
        "tools",
        "prefix",
    ];
    let map = source.as_map().ok_or(WhyNot::Invalid("a message that is not an object"))?;
    let role = role(source).to_lowercase();
    if !ROLES.contains(&&*role) {
        return Err(WhyNot::Invalid("a role that SGLang does not know"));
    }
    let fields: &[&str] = if role == "user" { &FIELDS[..2] } else { &FIELDS };
    let mut message = pick(map, fields);
    message.retain(|_, value| !value.is_null());
    message.insert("role".into(), Json::text(&role));
    let (content, has_media) = content(source, &role, form, media)?;
    message.insert("content".into(), content);
    if let Some(calls) = message.get_mut("tool_calls") {
        *calls = tool_calls(calls)?;
    }
    if let Some(tools) = message.get_mut("tools") {
        let dumped: Option<Vec<Json>> =
            tools.as_list().unwrap_or_default().iter().map(tool).collect();
        *tools = Json::List(dumped.ok_or(WhyNot::Invalid("a tool without a function"))?);
    }
    Ok((Json::Map(message), has_media))
}

fn content(
    source: &Json,
    role: &str,
    form: ContentForm,
    media: Media,
) -> Result<(Json, bool), WhyNot> {
    let items = match source.get("content") {
        None => return Ok((Json::text(""), false)),
        Some(text @ Json::Text(_)) => return Ok((text.clone(), false)),
        Some(Json::List(items)) => items,
        Some(_) => return Err(WhyNot::Invalid("content that is neither a text nor a list")),
    };
    let mut parts = Parts::default();
    for item in items {
        let kind = item.get("type").and_then(Json::as_text).map_or("", |kind| &**kind);
        match kind {
            "text" | "input_text" => {
                let text = item.get("text").and_then(Json::as_text);
                let text = text.ok_or(WhyNot::Invalid("a text without text"))?;
                parts.text(Arc::clone(text), Map::default());
            }
            "tool_reference" => parts.items.push(item.clone()),
            _ => {
                if let Some(medium) = medium_of(kind) {
                    parts.medium(medium, media, Map::default());
                }
            }
        }
    }
    let has_media = parts.has_media;
    let only_texts = parts.items.len() == parts.texts.len();
    let form = if role == "tool" && only_texts { ContentForm::Text } else { form };
    Ok((parts.content(form, " ", media), has_media))
}

/// Arguments in JSON become objects.
fn tool_calls(calls: &Json) -> Result<Json, WhyNot> {
    let calls = calls.as_list().ok_or(WhyNot::Invalid("tool calls that are not a list"))?;
    calls.iter().map(tool_call).collect::<Result<_, _>>().map(Json::List)
}

fn tool_call(call: &Json) -> Result<Json, WhyNot> {
    let no_function = WhyNot::Invalid("a tool call without a function");
    let function = call.get("function").and_then(Json::as_map).ok_or(no_function)?;
    let arguments = match function.get("arguments") {
        Some(Json::Text(text)) => {
            let parsed = Json::parse(text.as_bytes()).ok().filter(|json| json.as_map().is_some());
            parsed.ok_or(WhyNot::Invalid("arguments that are not a JSON object"))?
        }
        other => other.cloned().unwrap_or_default(),
    };
    let mut dumped = Map::default();
    dumped.insert("name".into(), function.get("name").cloned().unwrap_or_default());
    dumped.insert("arguments".into(), arguments);
    let mut outer = Map::default();
    for field in ["id", "index"] {
        outer.insert(field.into(), call.get(field).cloned().unwrap_or_default());
    }
    outer.insert("type".into(), Json::text("function"));
    outer.insert("function".into(), Json::Map(dumped));
    Ok(Json::Map(outer))
}
