//! `repr` of Python: how a list or a map looks that a template prints as it is.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

/// Deeper values are not followed.
const DEPTH_MAX: usize = 128;

/// What Python prints for a list, a map or a float; everything else as minijinja does, which already follows Python.
///
/// # Errors
/// The fuel is gone, or the value nests too deep.
pub(crate) fn repr(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    let mut printer = Printer { state, out: String::new() };
    printer.item(value, 0, false)?;
    Ok(printer.out)
}

struct Printer<'s, 'a, 'b> {
    state: &'s State<'a, 'b>,
    out: String,
}

impl Printer<'_, '_, '_> {
    fn item(&mut self, value: &Value, depth: usize, quoted: bool) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::new(ErrorKind::InvalidOperation, "nests too deep to print"));
        }
        self.state.consume_fuel(1)?;
        match value.kind() {
            ValueKind::String if quoted => self.text(value.as_str().unwrap_or_default())?,
            ValueKind::Seq => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            ValueKind::Number if !value.is_integer() => {
                self.out.push_str(&python_float(f64::try_from(value.clone())?));
            }
            _ => self.out.push_str(&value.to_string()),
        }
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let tuple = value.is_tuple();
        self.out.push(if tuple { '(' } else { '[' });
        for (number, entry) in value.try_iter()?.enumerate() {
            self.out.push_str(if number > 0 { ", " } else { "" });
            self.item(&entry, depth + 1, true)?;
        }
        self.out.push_str(match (tuple, value.len()) {
            (true, Some(1)) => ",)",
            (true, _) => ")",
            (false, _) => "]",
        });
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('{');
        for (number, key) in value.try_iter()?.enumerate() {
            self.out.push_str(if number > 0 { ", " } else { "" });
            self.item(&key, depth + 1, true)?;
            self.out.push_str(": ");
            self.item(&value.get_item(&key)?, depth + 1, true)?;
        }
        self.out.push('}');
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Error> {
        self.state.consume_fuel(text.len() as u64 / 16)?;
        // Single quotes, unless the text has some and no double ones.
        let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
        self.out.push(quote);
        for sign in text.chars() {
            match sign {
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                sign if sign == quote => self.out.extend(['\\', sign]),
                sign if sign.is_control() => {
                    self.out.push_str(&format!("\\x{:02x}", u32::from(sign)));
                }
                sign => self.out.push(sign),
            }
        }
        self.out.push(quote);
        Ok(())
    }
}

/// A float as Python's `repr` writes it: the shortest digits that read back the same.
pub(crate) fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // The shortest digits, as d.ddde±x.
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&power) {
        let plain = value.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", power.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_maps_look_like_pythons() {
        let inner: Value =
            [Value::from("it's"), Value::from("a \"b\"\n"), Value::from(())].into_iter().collect();
        let value = Value::from_pairs([("k", inner), ("f", Value::from(true))]);
        let environment = minijinja::Environment::new();
        let out = repr(&environment.empty_state(), &value).unwrap();
        assert_eq!(out, r#"{'k': ["it's", 'a "b"\n', None], 'f': True}"#);
    }

    #[test]
    fn floats_are_written_as_python_does() {
        for (value, expected) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456.789, "123456.789"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (-2.5e-10, "-2.5e-10"),
        ] {
            assert_eq!(python_float(value), expected);
        }
    }
}
