//! `json.dumps` as Transformers gives it to templates: Python's separators, nothing escaped for HTML.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use crate::python_repr::python_float;

/// Deeper than any schema; a template that builds more is not followed.
const DEPTH_MAX: usize = 128;
/// Bytes of text that one unit of fuel pays for.
const BYTES_PER_FUEL: usize = 4;

/// The filter `tojson`, with the arguments of Transformers' own.
///
/// # Errors
/// The value cannot be written as JSON (Python raises, too), an argument is of the wrong kind, or the fuel is gone.
pub(crate) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    options: Kwargs,
) -> Result<Value, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(indent_text(&indent)?),
    };
    let (item, key) = match separators.as_deref() {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(refused("separators are two texts")),
    };
    let mut writer = Writer {
        state,
        out: String::new(),
        paid: 0,
        indent,
        item,
        key,
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sorted: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

fn indent_text(indent: &Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str() {
        return Ok(text.to_owned());
    }
    let spaces = indent.as_usize().filter(|spaces| *spaces <= 64);
    Ok(" ".repeat(spaces.ok_or_else(|| refused("indent is a small number or a text"))?))
}

fn refused(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

struct Writer<'s, 'a, 'b> {
    state: &'s State<'a, 'b>,
    out: String,
    /// Bytes of `out` that fuel was paid for.
    paid: usize,
    indent: Option<String>,
    item: String,
    key: String,
    ascii: bool,
    sorted: bool,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(refused("nests too deep for JSON"));
        }
        self.pay()?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => {
                write!(self.out, "{value}")
                    .map_err(|_| refused("a number that cannot be written"))?;
            }
            ValueKind::Number => {
                let float = python_float(f64::try_from(value.clone())?);
                self.out.push_str(match float.as_str() {
                    "nan" => "NaN",
                    "inf" => "Infinity",
                    "-inf" => "-Infinity",
                    finite => finite,
                });
            }
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            _ => return Err(refused("is not JSON serializable")),
        }
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.between(empty, depth + 1);
            empty = false;
            self.value(&item, depth + 1)?;
        }
        self.close(empty, depth, ']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sorted {
            keys.sort();
        }
        self.out.push('{');
        let mut empty = true;
        for key in keys {
            self.between(empty, depth + 1);
            empty = false;
            match key.kind() {
                ValueKind::String => self.text(key.as_str().unwrap_or_default()),
                ValueKind::None => self.text("null"),
                ValueKind::Bool => self.text(if key.is_true() { "true" } else { "false" }),
                ValueKind::Number if key.is_integer() => self.text(&key.to_string()),
                _ => return Err(refused("a key that JSON does not have")),
            }
            self.out.push_str(&self.key);
            self.value(&value.get_item(&key)?, depth + 1)?;
        }
        self.close(empty, depth, '}');
        Ok(())
    }

    /// What stands in front of an item.
    fn between(&mut self, first: bool, depth: usize) {
        if !first {
            self.out.push_str(&self.item);
        }
        self.new_line(depth);
    }

    fn close(&mut self, empty: bool, depth: usize, sign: char) {
        if !empty {
            self.new_line(depth);
        }
        self.out.push(sign);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for sign in text.chars() {
            match sign {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                sign if sign < ' ' || (self.ascii && sign > '\u{7e}') => self.escaped(sign),
                sign => self.out.push(sign),
            }
        }
        self.out.push('"');
    }

    fn escaped(&mut self, sign: char) {
        if self.ascii && sign == '\u{7f}' {
            self.out.push(sign);
            return;
        }
        for unit in sign.encode_utf16(&mut [0; 2]) {
            self.out.push_str("\\u");
            for shift in [12, 8, 4, 0] {
                let digit = u32::from((*unit >> shift) & 0xf);
                self.out.extend(char::from_digit(digit, 16));
            }
        }
    }

    fn pay(&mut self) -> Result<(), Error> {
        let owed = (self.out.len() - self.paid) / BYTES_PER_FUEL;
        self.paid += owed * BYTES_PER_FUEL;
        self.state.consume_fuel(1 + owed as u64)
    }
}
