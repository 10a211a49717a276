//! `POST /v1/cache/prewarm`: blocks that will be asked for soon, by the daemons' keys, or as the prompt that they are of.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use hyper::StatusCode;
use kvd_proto::block_key::{KEY_BYTES_MAX, NAMESPACE_PART_BYTES_MAX, Namespace};
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{App, Shared};
use crate::feed::{Reading, Wanted};
use crate::hints::Hint;
use crate::hosts::Host;
use crate::picker::models_of;
use crate::refusal::Refusal;

/// Keys in one request.
const KEYS_MAX: usize = 65_536;

#[derive(Debug, Deserialize)]
struct Asked {
    model: String,
    #[serde(default, deserialize_with = "keys")]
    block_hashes: Option<Vec<Vec<u8>>>,
    #[serde(default)]
    compat_key: String,
    #[serde(default = "second")]
    deadline_ms: i64,
    #[serde(default)]
    messages: Option<IgnoredAny>,
    #[serde(default)]
    prompt: Option<IgnoredAny>,
}

const fn second() -> i64 {
    1_000
}

/// Hands the keys on. Whether they are there, and come in time, is not known.
pub(super) async fn answer(
    State(app): State<Shared>,
    request: Request,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let (_, body) = app.bodies.take(request).await?;
    let read = |body: &[u8]| serde_json::from_slice::<Asked>(body);
    let asked = app.relay.readers().read(&body, read).await?;
    let asked = asked.map_err(|error| Refusal::BadRequest(error.to_string()))?;
    let wrong = |what: &str| Refusal::BadRequest(what.to_owned());
    if asked.model.is_empty() {
        return Err(wrong("model is empty"));
    }
    let namespace = Namespace { model: &asked.model, compat_key: &asked.compat_key };
    // It goes into each hint.
    if !namespace.is_within_limits() {
        let most = NAMESPACE_PART_BYTES_MAX;
        return Err(wrong(&format!("model or compat_key is longer than {most} bytes")));
    }
    let lifetime_ms = u64::try_from(asked.deadline_ms).ok().filter(|ms| *ms > 0);
    let lifetime = lifetime_ms.map(Duration::from_millis);
    let lifetime = lifetime.ok_or_else(|| wrong("deadline_ms is not above 0"))?;
    let is_prompt = asked.messages.is_some() || asked.prompt.is_some();
    let (hosts, count) = match asked.block_hashes {
        Some(_) if is_prompt => return Err(wrong("either block_hashes or a prompt")),
        None if is_prompt => {
            let by_cache = app.by_cache.as_ref().ok_or(Refusal::NotServed(
                "prompts are understood with --router-policy kv-aware only",
            ))?;
            let (host, count) =
                by_cache.prewarm(&body, &app.relay.read(&body).await?, lifetime).await?;
            (vec![host], count)
        }
        None => return Err(wrong("block_hashes, messages or prompt are missing")),
        Some(keys) => {
            let count = keys.len();
            let (model, compat_key) = (asked.model, asked.compat_key);
            (of_keys(&app, (model, compat_key), keys, lifetime).await?, count)
        }
    };
    let answer = json!({"accepted": true, "n_keys": count, "hosts": hosts});
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// Tells the daemon on this host, and those that have some of the keys on disk only, or of which nobody knows what they
/// have. Who was told.
async fn of_keys(
    app: &App,
    (model, compat_key): (String, String),
    keys: Vec<Vec<u8>>,
    lifetime: Duration,
) -> Result<Vec<String>, Refusal> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    if !app.hints.has_takers() {
        return Err(Refusal::NotServed(
            "no daemon takes hints: there is no --kvd-socket-path, and none registered a prefetch_url",
        ));
    }
    let keys: Arc<[Vec<u8>]> = keys.into();
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let namespace = Namespace { model: &model, compat_key: &compat_key };
    let deadline_ms = i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX);
    let hint = Hint { namespace, keys: &slices, deadline_ms };
    let fleet = app.fleet.load();
    let workers = fleet.workers().filter(|worker| worker.record.model_name == model);
    let named = workers.flat_map(|worker| models_of(&worker.record));
    let models: BTreeSet<Arc<str>> = named.chain([model.as_str().into()]).collect();
    let models: Vec<Arc<str>> = models.into_iter().collect();
    drop(fleet);
    let mut told = Vec::new();
    if app.hints.tell_local(&hint) {
        told.push("local".to_owned());
    }
    let asked = app.hints.hosts().into_iter().map(|host| {
        let wanted = Wanted::Keys { compat_key: compat_key.clone(), keys: Arc::clone(&keys) };
        let reading = Reading { models: models.clone(), wanted, lifetime };
        async move {
            let count = told_by_view(app, &host, reading).await;
            (host, count)
        }
    });
    for (host, count) in futures_util::future::join_all(asked).await {
        let id = &host.registration.host_id;
        if count.map_or_else(|| app.hints.tell(id, &hint), |count| count > 0) {
            told.push(id.clone());
        }
    }
    Ok(told)
}

/// Of how many keys a host was told, by what is known of it; nothing if that is nothing.
async fn told_by_view(app: &App, host: &Host, reading: Reading) -> Option<usize> {
    let feeds = app.feeds.as_ref()?;
    let listening = feeds.listening();
    let feed = listening.hosts.get(&host.registration.host_id)?;
    feeds.read_ahead_and_tell(feed, reading).await
}

/// Keys in hexadecimal, read one by one: a list that is too long is not held first.
fn keys<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Vec<u8>>>, D::Error> {
    struct Keys;

    impl<'de> Visitor<'de> for Keys {
        type Value = Vec<Vec<u8>>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a list of keys in hexadecimal")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut keys = Vec::new();
            while let Some(text) = list.next_element::<Cow<'de, str>>()? {
                if keys.len() == KEYS_MAX {
                    return Err(A::Error::custom("more than 65536 block_hashes"));
                }
                let key = bytes_of(&text);
                keys.push(key.ok_or_else(|| {
                    A::Error::custom("block_hashes are not all keys in hexadecimal")
                })?);
            }
            Ok(keys)
        }
    }

    from.deserialize_seq(Keys).map(Some)
}

/// The bytes of a key that hexadecimal digits stand for; at least one, and no more than a daemon keeps.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if text.len() > 2 * KEY_BYTES_MAX {
        return None;
    }
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| !digits.is_empty() && digits.len().is_multiple_of(2))?;
    digits.chunks_exact(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_pairs_of_digits() {
        assert_eq!(bytes_of("00fFa1"), Some(vec![0, 255, 161]));
        assert_eq!(bytes_of(&"0f".repeat(KEY_BYTES_MAX)).unwrap().len(), KEY_BYTES_MAX);
        for wrong in ["", "0", "0g", "+1", "é0", &"0f".repeat(KEY_BYTES_MAX + 1)] {
            assert_eq!(bytes_of(wrong), None, "{wrong}");
        }
    }
}
