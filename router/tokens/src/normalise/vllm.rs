//! As vLLM does (0.32): `renderers/chat_utils.py`, `renderers/hf.py` and the request's own model.

use std::sync::Arc;

use super::{Chat, Continued, Manner, Media, Parts, medium_of, pick, typed};
use crate::content_form::ContentForm;
use crate::json::{Json, Map};
use crate::request::Request;
use crate::template::Template;
use crate::why_not::WhyNot;

/// The line in front of a system prompt that a well-known client changes with every request; vLLM takes it out.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// The fields of all kinds of parts that vLLM knows.
const PART_FIELDS: [&str; 18] = [
    "audio_embeds",
    "audio_url",
    "closed",
    "data",
    "file",
    "image_embeds",
    "image_pil",
    "image_url",
    "input_audio",
    "name",
    "prompt_cache_breakpoint",
    "refusal",
    "text",
    "thinking",
    "type",
    "uuid",
    "video_embeds",
    "video_url",
];

pub(super) fn tools(request: &Request, manner: &Manner) -> Result<Option<Json>, WhyNot> {
    let choice = request.body.get("tool_choice");
    let unused = choice.and_then(Json::as_text).is_some_and(|choice| &**choice == "none");
    let Some(tools) = request.body.get("tools") else {
        // A template variable of the request may still bring some.
        let chosen = choice.is_some() && !unused;
        return if chosen {
            Err(WhyNot::Invalid("a tool choice without tools"))
        } else {
            Ok(own_tools(request))
        };
    };
    let tools = tools.as_list().filter(|tools| !tools.is_empty());
    let tools = tools.ok_or(WhyNot::Invalid("tools that are not a list of some"))?;
    if unused && manner.drops_unused_tools {
        return Ok(own_tools(request));
    }
    let tools: Option<Vec<Json>> = tools.iter().map(tool).collect();
    let tools = tools.ok_or(WhyNot::Invalid("a tool without a function"))?;
    Ok(own_tools(request).or(Some(Json::List(tools))))
}

/// Tools among the template variables win over those of the request.
fn own_tools(request: &Request) -> Option<Json> {
    let own = request.map("chat_template_kwargs")?.get("tools")?;
    (!unset(own)).then(|| own.clone())
}

/// Known fields only, in the order of the model; a missing description and missing parameters are there as `null`.
fn tool(tool: &Json) -> Option<Json> {
    let function = tool.get("function")?.as_map()?;
    let deferred = tool.get("defer_loading");
    let mut dumped = Map::default();
    for field in ["name", "description", "parameters"] {
        dumped.insert(field.into(), function.get(field).cloned().unwrap_or_default());
    }
    for field in ["strict", "defer_loading"] {
        let mut value = function.get(field).filter(|value| !value.is_null());
        if field == "defer_loading" {
            value = value.or(deferred);
        }
        dumped.extend(value.map(|value| (field.into(), value.clone())));
    }
    let mut outer = typed("function", [("function", Json::Map(dumped))]);
    outer.extend(deferred.map(|deferred| ("defer_loading".into(), deferred.clone())));
    Some(Json::Map(outer))
}

pub(super) fn chat(
    request: &Request,
    tools: Option<Json>,
    template: &Template,
    manner: &Manner,
    media: Media,
) -> Result<Chat, WhyNot> {
    if request.body.get("truncate_prompt_tokens").is_some() {
        return Err(WhyNot::Unknowable("truncate_prompt_tokens"));
    }
    let mut chat = Chat { tools, ..Chat::default() };
    for source in request.messages()? {
        let (message, has_media) = message(source, template.vllm_form, media)?;
        chat.has_media |= has_media;
        chat.messages.push(message);
    }
    if !template.knows_developer && chat.messages.iter().any(|message| role(message) == "developer")
    {
        developers_to_system(&mut chat.messages);
    }
    chat.add_generation_prompt = request.flag("add_generation_prompt").unwrap_or(true);
    if request.flag("continue_final_message") == Some(true) {
        if chat.add_generation_prompt {
            return Err(WhyNot::Invalid("a last message to continue and one to begin"));
        }
        chat.continued = Continued::InText;
    }
    chat.specials = request.flag("add_special_tokens") == Some(true);
    chat.variables = variables(request, manner);
    Ok(chat)
}

/// The worker's defaults, over them the request's own, over these what the API has fields for.
fn variables(request: &Request, manner: &Manner) -> Map {
    let mut variables = manner.template_kwargs.clone();
    let own = request.map("chat_template_kwargs");
    let set = |(name, value): (&Arc<str>, &Json)| {
        (!unset(value)).then(|| (Arc::clone(name), value.clone()))
    };
    variables.extend(own.into_iter().flatten().filter_map(set));
    for name in ["documents", "reasoning_effort"] {
        let value = request.body.get(name).filter(|value| !unset(value));
        variables.extend(value.map(|value| (name.into(), value.clone())));
    }
    let effort = request.body.get("reasoning_effort");
    if let Some(effort) = effort
        && own.is_none_or(|own| !own.contains_key("enable_thinking"))
    {
        let thinks = effort.as_text().is_none_or(|effort| &**effort != "none");
        variables.insert("enable_thinking".into(), Json::Bool(thinks));
    }
    variables
}

/// Values that vLLM takes for "not given".
fn unset(value: &Json) -> bool {
    value.is_null() || value.as_text().is_some_and(|text| &**text == "auto")
}

fn role(message: &Json) -> &str {
    message.get("role").and_then(Json::as_text).map_or("", |role| &**role)
}

/// One message as templates get it, and whether it has media.
fn message(source: &Json, form: ContentForm, media: Media) -> Result<(Json, bool), WhyNot> {
    let role = role(source);
    if role.is_empty() {
        return Err(WhyNot::Invalid("a message without a role"));
    }
    let parts = content(source, role, media)?;
    let has_media = parts.has_media;
    // A list of nothing but texts is joined for tools, whatever the template takes.
    let only_texts = !has_media && parts.items.len() == parts.texts.len();
    let form = if role == "tool" && only_texts { ContentForm::Text } else { form };
    let mut message = Map::default();
    message.insert("role".into(), Json::text(role));
    message.insert("content".into(), parts.content(form, "\n", media));
    if role == "assistant" {
        let calls = source.get("tool_calls").map(tool_calls).transpose()?.flatten();
        message.extend(calls.map(|calls| ("tool_calls".into(), calls)));
        let reasoning = source.get("reasoning").or_else(|| source.get("reasoning_content"));
        for name in ["reasoning", "reasoning_content"] {
            message.extend(reasoning.map(|reasoning| (name.into(), reasoning.clone())));
        }
    }
    let map = source.as_map().ok_or(WhyNot::Invalid("a message that is not an object"))?;
    if role == "tool" {
        message.extend(pick(map, &["tool_call_id"]));
    }
    let texts = pick(map, &["name", "task"]);
    message.extend(texts.into_iter().filter(|(_, value)| value.as_text().is_some()));
    if role == "developer" {
        message.insert("tools".into(), source.get("tools").cloned().unwrap_or_default());
    }
    Ok((Json::Map(message), has_media))
}

fn content(source: &Json, role: &str, media: Media) -> Result<Parts, WhyNot> {
    let mut parts = Parts::default();
    let whole;
    let items = match source.get("content") {
        None => &[][..],
        Some(Json::List(items)) => items,
        Some(text @ Json::Text(_)) => {
            whole = [text.clone()];
            &whole
        }
        Some(_) => return Err(WhyNot::Invalid("content that is neither a text nor a list")),
    };
    for item in items {
        part(&mut parts, item, role, media)?;
    }
    // Empty texts vanish where texts are joined.
    parts.texts.retain(|text| !text.is_empty());
    Ok(parts)
}

fn part(parts: &mut Parts, item: &Json, role: &str, media: Media) -> Result<(), WhyNot> {
    let kind = item.get("type").and_then(Json::as_text).map(|kind| &**kind);
    let text = match (item, kind) {
        (Json::Text(text), _) => Some(text),
        (_, Some("text" | "input_text" | "output_text")) => {
            item.get("text").and_then(Json::as_text)
        }
        (_, Some("refusal")) => item.get("refusal").and_then(Json::as_text),
        (_, Some("thinking")) => item.get("thinking").and_then(Json::as_text),
        (_, Some("prompt_embeds")) => return Err(WhyNot::Unknowable("prompt_embeds")),
        (_, Some("tool_reference")) => {
            let name = item.get("name").cloned().unwrap_or_default();
            parts.texts.extend(name.as_text().cloned());
            parts.items.push(Json::Map(typed("tool_reference", [("name", name)])));
            return Ok(());
        }
        (_, kind) => {
            let key = |key: &Arc<str>| medium_of(key);
            let named = || item.as_map()?.keys().find_map(key);
            let medium = kind.map_or_else(named, medium_of);
            parts.medium(
                medium.ok_or(WhyNot::Invalid("a part of an unknown type"))?,
                media,
                unknown(item),
            );
            return Ok(());
        }
    };
    let Some(text) = text else { return Ok(()) };
    if role != "system" || !text.starts_with(BILLING_HEADER) {
        parts.text(Arc::clone(text), unknown(item));
    } else if let Some((_, rest)) = text.split_once('\n').filter(|(_, rest)| !rest.is_empty()) {
        parts.text(rest.into(), unknown(item));
    }
    Ok(())
}

/// What a part has beside the fields that vLLM knows of any part: it is handed on.
fn unknown(part: &Json) -> Map {
    let further =
        part.as_map().into_iter().flatten().filter(|(field, _)| !PART_FIELDS.contains(&&***field));
    further.map(|(field, value)| (Arc::clone(field), value.clone())).collect()
}

/// Arguments become objects, whatever they are; no calls at all are left out.
fn tool_calls(calls: &Json) -> Result<Option<Json>, WhyNot> {
    let calls = calls.as_list().ok_or(WhyNot::Invalid("tool calls that are not a list"))?;
    let calls: Option<Vec<Json>> = calls.iter().map(tool_call).collect();
    let calls = calls.ok_or(WhyNot::Invalid("a tool call without a function"))?;
    Ok((!calls.is_empty()).then_some(Json::List(calls)))
}

fn tool_call(call: &Json) -> Option<Json> {
    let function = call.get("function")?.as_map()?;
    let arguments = match function.get("arguments") {
        Some(Json::Map(arguments)) => Json::Map(arguments.clone()),
        Some(Json::Text(text)) => Json::parse(text.as_bytes())
            .ok()
            .filter(|json| json.as_map().is_some())
            .unwrap_or_else(|| Json::Map(Map::default())),
        _ => Json::Map(Map::default()),
    };
    let mut dumped = pick(function, &["arguments", "name"]);
    dumped.insert("arguments".into(), arguments);
    let mut outer = pick(call.as_map()?, &["id", "function", "type"]);
    outer.insert("function".into(), Json::Map(dumped));
    Some(Json::Map(outer))
}

/// For a template that does not know developers: they speak as the system does, in one message in front of all others.
fn developers_to_system(messages: &mut Vec<Json>) {
    for message in messages.iter_mut().filter(|message| role(message) == "developer") {
        if let Json::Map(message) = message {
            message.insert("role".into(), Json::text("system"));
            message.shift_remove("tools");
        }
    }
    if !messages.iter().skip(1).any(|message| role(message) == "system") {
        return;
    }
    let (system, mut others): (Vec<Json>, Vec<Json>) =
        messages.drain(..).partition(|message| role(message) == "system");
    let texts: Vec<Arc<str>> =
        system.iter().filter_map(content_text).filter(|text| !text.is_empty()).collect();
    let mut merged = Map::default();
    merged.insert("role".into(), Json::text("system"));
    merged.insert("content".into(), Json::text(&texts.join("\n\n")));
    messages.push(Json::Map(merged));
    messages.append(&mut others);
}

fn content_text(message: &Json) -> Option<Arc<str>> {
    match message.get("content")? {
        Json::Text(text) => Some(Arc::clone(text)),
        Json::List(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_text());
            let texts: Vec<&str> = texts.map(|text| &**text).collect();
            Some(texts.join("\n").into())
        }
        _ => None,
    }
}
