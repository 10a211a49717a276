//! Golden files for the tests of this crate: read, decoded a second way, compared.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use rmpv::Value;
use serde_json::{Map, Value as Json};

/// One recorded frame.
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) from_client: bool,
    pub(crate) frame: Vec<u8>,
}

impl Golden {
    /// The frame without its prefix.
    pub(crate) fn body(&self) -> &[u8] {
        &self.frame[4..]
    }
}

/// Reads a golden file; every frame's prefix and its `fields` are checked on the way, with a
/// msgpack implementation that is not ours.
pub(crate) fn read(text: &str) -> Vec<Golden> {
    let file: Json = serde_json::from_str(text).unwrap();
    let frames = file["frames"].as_object().unwrap();
    frames
        .iter()
        .map(|(name, entry)| {
            let frame = from_hex(entry["hex"].as_str().unwrap());
            let body = &frame[4..];
            assert_eq!(u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize, body.len());
            let mut rest = body;
            let value = rmpv::decode::read_value(&mut rest).unwrap();
            assert!(rest.is_empty(), "{name}: bytes after the map");
            let fields = entry["fields"].clone();
            assert_eq!(to_json(&value), fields, "{name}: fields do not describe the frame");
            let from_client = entry["from"] == "client";
            Golden { name: name.clone(), from_client, frame }
        })
        .collect()
}

/// Lower-case hexadecimal digits to bytes.
pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Bytes to lower-case hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Boolean(value) => (*value).into(),
        Value::Integer(value) => {
            value.as_u64().map_or_else(|| value.as_i64().unwrap().into(), Json::from)
        }
        Value::F32(value) => (*value).into(),
        Value::F64(value) => (*value).into(),
        Value::String(text) => text.as_str().unwrap().into(),
        Value::Binary(bytes) => serde_json::json!({ "bin": to_hex(bytes) }),
        Value::Array(items) => items.iter().map(to_json).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|(key, value)| (key.as_str().unwrap().to_owned(), to_json(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Ext(..) => panic!("no message has an extension"),
    }
}
