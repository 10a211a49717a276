//! `POST /v1/cache/prewarm`: blocks that will be asked for soon, by the daemons' keys.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use hyper::StatusCode;
use kvd_proto::block_key::Namespace;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use crate::hints::Hint;
use crate::refusal::Refusal;

/// Keys in one request.
const KEYS_MAX: usize = 65_536;

#[derive(Debug, Deserialize)]
struct Asked {
    model: String,
    block_hashes: Vec<String>,
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
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let wrong = |what: &str| Refusal::BadRequest(what.to_owned());
    let asked: Asked =
        serde_json::from_slice(&body).map_err(|error| Refusal::BadRequest(error.to_string()))?;
    if asked.model.is_empty() {
        return Err(wrong("model is empty"));
    }
    if asked.deadline_ms <= 0 {
        return Err(wrong("deadline_ms is not above 0"));
    }
    if asked.block_hashes.len() > KEYS_MAX {
        return Err(wrong("more than 65536 block_hashes"));
    }
    let keys = asked.block_hashes.iter().map(|text| bytes_of(text));
    let keys: Option<Vec<Vec<u8>>> = keys.collect();
    let keys = keys.ok_or_else(|| wrong("block_hashes are not all hexadecimal"))?;
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let accepted = |hosts: Vec<String>| {
        let answer = json!({"accepted": true, "n_keys": keys.len(), "hosts": hosts});
        Ok((StatusCode::ACCEPTED, Json(answer)))
    };
    if keys.is_empty() {
        return accepted(Vec::new());
    }
    let namespace = Namespace { model: &asked.model, compat_key: &asked.compat_key };
    let hosts = app.hints.tell(&Hint { namespace, keys: &keys, deadline_ms: asked.deadline_ms });
    if hosts.is_empty() {
        return Err(Refusal::NotServed(
            "no daemon takes hints: there is no --kvd-socket-path, and none registered a prefetch_url",
        ));
    }
    accepted(hosts)
}

/// The bytes that hexadecimal digits stand for; at least one.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| !digits.is_empty() && digits.len().is_multiple_of(2))?;
    digits.chunks_exact(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn keys_are_pairs_of_digits() {
        assert_eq!(bytes_of("00fFa1"), Some(vec![0, 255, 161]));
        for wrong in ["", "0", "0g", "+1", "é0"] {
            assert_eq!(bytes_of(wrong), None, "{wrong}");
        }
    }
}
