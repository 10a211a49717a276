//! `POST /v1/cache/prewarm`: blocks that will be asked for soon, by the daemons' keys.

use std::borrow::Cow;
use std::fmt;

use axum::Json;
use axum::extract::{Request, State};
use hyper::StatusCode;
use kvd_proto::block_key::{KEY_BYTES_MAX, NAMESPACE_PART_BYTES_MAX, Namespace};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::Shared;
use crate::hints::Hint;
use crate::refusal::Refusal;

/// Keys in one request.
const KEYS_MAX: usize = 65_536;

#[derive(Debug, Deserialize)]
struct Asked {
    model: String,
    #[serde(deserialize_with = "keys")]
    block_hashes: Vec<Vec<u8>>,
    #[serde(default)]
    compat_key: String,
    #[serde(default = "second")]
    deadline_ms: i64,
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
    if asked.deadline_ms <= 0 {
        return Err(wrong("deadline_ms is not above 0"));
    }
    let keys: Vec<&[u8]> = asked.block_hashes.iter().map(Vec::as_slice).collect();
    let accepted = |hosts: Vec<String>| {
        let answer = json!({"accepted": true, "n_keys": keys.len(), "hosts": hosts});
        Ok((StatusCode::ACCEPTED, Json(answer)))
    };
    if keys.is_empty() {
        return accepted(Vec::new());
    }
    let hosts = app.hints.tell(&Hint { namespace, keys: &keys, deadline_ms: asked.deadline_ms });
    if hosts.is_empty() {
        return Err(Refusal::NotServed(
            "no daemon takes hints: there is no --kvd-socket-path, and none registered a prefetch_url",
        ));
    }
    accepted(hosts)
}

/// Keys in hexadecimal, read one by one: a list that is too long is not held first.
fn keys<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<u8>>, D::Error> {
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

    from.deserialize_seq(Keys)
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
