//! The environment of chat templates, as Transformers makes it in Python.
//!
//! `trim_blocks`, `lstrip_blocks`, loop controls, the `generation` tag, `raise_exception`, `strftime_now`, `tojson`, and the
//! methods that Python's texts and dictionaries have.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{ValueKind, from_args};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};

use crate::{python_json, python_repr};

/// The variable that carries the time, in seconds since 1970. No template can name it.
pub(crate) const NOW: &str = "the time of this rendering";

/// How deep blocks, macros and loops may nest.
const NESTING_MAX: usize = 100;

/// An environment without templates.
pub(crate) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax());
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_recursion_limit(NESTING_MAX);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(format);
    environment.remove_global("debug");
    environment.add_filter("tojson", python_json::tojson);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map
        )
    });
    environment.add_test("iterable", |value: &Value| {
        value.is_undefined() || value.kind() == ValueKind::String || value.try_iter().is_ok()
    });
    environment
}

/// How templates are read: the rest of the syntax is the default.
pub(crate) fn syntax() -> SyntaxConfig {
    let mut builder = SyntaxConfig::builder();
    builder.trim_blocks(true).lstrip_blocks(true);
    builder.build().unwrap_or_default()
}

fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

/// Engines print their local time; here it is UTC, which is what containers are set to.
fn strftime_now(state: &State<'_, '_>, pattern: &str) -> Result<String, Error> {
    let seconds = state.lookup(NOW).and_then(|now| now.as_i64()).unwrap_or_default();
    let refused = |error: jiff::Error| Error::new(ErrorKind::InvalidOperation, error.to_string());
    let now = Timestamp::from_second(seconds).map_err(refused)?.to_zoned(TimeZone::UTC);
    jiff::fmt::strtime::format(pattern, &now).map_err(refused)
}

fn format(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let own = matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Number);
    if !own || value.is_integer() {
        return minijinja::escape_formatter(out, state, value);
    }
    out.write_str(&python_repr::repr(state, value)?).map_err(Error::from)
}

/// Methods of Python that the companion crate does not have, then those that it has.
fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args);
    };
    match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (head, tail) =
                text.split_once(separator).map_or((text, None), |(h, t)| (h, Some(t)));
            let found = if tail.is_some() { separator } else { "" };
            Ok([head, found, tail.unwrap_or("")].into_iter().map(Value::from).collect())
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (head, tail) =
                text.rsplit_once(separator).map_or((None, text), |(h, t)| (Some(h), t));
            let found = if head.is_some() { separator } else { "" };
            Ok([head.unwrap_or(""), found, tail].into_iter().map(Value::from).collect())
        }
        "rsplit" => {
            let (separator, limit): (&str, Option<i64>) = from_args(args)?;
            let limit = limit.and_then(|limit| usize::try_from(limit).ok());
            let mut parts: Vec<&str> = match limit {
                Some(limit) => text.rsplitn(limit.saturating_add(1), separator).collect(),
                None => text.rsplit(separator).collect(),
            };
            parts.reverse();
            Ok(parts.into_iter().map(Value::from).collect())
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    }
}
