//! The configuration file: TOML, every option a top-level key, with `_` or `-` between words.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use super::given::{Given, Said};
use super::option::Opt;
use super::problem::{Source, nearest};
use super::value::Kind;
use super::{Host, table};

/// Reads the file that a flag or the environment names, if any.
pub(super) fn read(host: Host, given: &mut Given) {
    let Some(Said { text: path, source }) = given.get(table::CONFIG.name).cloned() else {
        return;
    };
    if path.trim().is_empty() {
        return;
    }
    let parsed = (host.read_file)(Path::new(&path))
        .map_err(|error| format!("cannot read {path}: {error}"))
        .and_then(|text| {
            text.parse::<Table>().map_err(|error| format!("{path} is not TOML: {error}"))
        });
    match parsed {
        Ok(keys) => take(&path, &keys, given),
        Err(message) => given.problem(source, message.trim_end().replace('\n', "\n    ")),
    }
}

fn take(path: &str, keys: &Table, given: &mut Given) {
    let mut seen: BTreeMap<&'static str, String> = BTreeMap::new();
    for (key, value) in keys {
        let source = Source::File { file: path.to_owned(), key: key.clone() };
        let name = key.replace('_', "-");
        let known = || table::all().filter(|option| option.name != table::CONFIG.name);
        let Some(option) = known().find(|option| option.name == name) else {
            given.problem(source, unknown(&name, known()));
            continue;
        };
        if let Some(first) = seen.insert(option.name, key.clone()) {
            given.problem(source, format!("the same option as {first}; keep one of the two"));
            continue;
        }
        match text_of(option, value) {
            Ok(text) => given.offer(option, text, source),
            Err(message) => given.problem(source, message),
        }
    }
}

fn unknown(name: &str, known: impl Iterator<Item = &'static Opt>) -> String {
    match nearest(name, known.map(|option| option.name)) {
        Some(meant) => format!("not known; did you mean {}?", meant.replace('-', "_")),
        None => "not known; keys are the option names of --help at top level".to_owned(),
    }
}

/// The value as one would write it on the command line.
fn text_of(option: &Opt, value: &Value) -> Result<String, String> {
    let several = matches!(option.kind, Kind::Users | Kind::Path);
    match value {
        Value::String(text) => Ok(text.clone()),
        // 0o660 and 660 are the same to nobody but a TOML reader, which hands over a plain number.
        Value::Integer(_) if option.kind == Kind::Mode => {
            Err("write the permissions as a text, like \"0660\"".to_owned())
        }
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(truth) => Ok(truth.to_string()),
        Value::Array(items) if several => {
            let texts: Result<Vec<String>, String> =
                items.iter().map(|item| text_of_item(option, item)).collect();
            Ok(texts?.join(","))
        }
        Value::Array(_) | Value::Table(_) | Value::Datetime(_) => Err(wrong_type(option, value)),
    }
}

fn text_of_item(option: &Opt, item: &Value) -> Result<String, String> {
    match item {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        _ => Err(wrong_type(option, item)),
    }
}

fn wrong_type(option: &Opt, value: &Value) -> String {
    format!("a TOML {} is not allowed; expected {}", value.type_str(), option.kind.allowed())
}
