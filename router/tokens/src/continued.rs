//! A last message that the model is to continue, as Transformers does it: what the template puts after it is cut off.

use std::sync::Arc;

use crate::json::Json;
use crate::why_not::WhyNot;

/// Stands at the end of the content while it is rendered; the space shows whether the template trims.
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

const NO_TEXT: WhyNot = WhyNot::Invalid("a last message to continue, without text");

/// Marks the end of the last message's content.
pub(crate) fn mark(messages: &mut [Json]) -> Result<(), WhyNot> {
    let text = last_text(messages).ok_or(NO_TEXT)?;
    *text = format!("{text}{TAG}").into();
    Ok(())
}

/// The rendered text up to the mark. `messages` are the unmarked ones.
pub(crate) fn cut(mut rendered: String, messages: &[Json]) -> Result<String, WhyNot> {
    let mut messages = messages.to_vec();
    let text = last_text(&mut messages).ok_or(NO_TEXT)?;
    let lost = WhyNot::Refused("the last message does not appear in the chat".into());
    let at =
        rendered.rfind(TAG.trim_end()).filter(|_| rendered.contains(text.trim())).ok_or(lost)?;
    let kept = rendered.get(at..).is_some_and(|rest| rest.starts_with(TAG));
    rendered.truncate(at);
    if !kept {
        rendered.truncate(rendered.trim_end().len());
    }
    Ok(rendered)
}

/// The content of the last message, or the last text in it.
fn last_text(messages: &mut [Json]) -> Option<&mut Arc<str>> {
    let Json::Map(last) = messages.last_mut()? else { return None };
    match last.get_mut("content")? {
        Json::Text(text) => Some(text),
        Json::List(parts) => parts.iter_mut().rev().find_map(|part| {
            let Json::Map(part) = part else { return None };
            let Json::Text(text) = part.get_mut("text")? else { return None };
            Some(text)
        }),
        _ => None,
    }
}
