//! Requests and heads as they stand on the wire.

use std::io::{self, BufRead};

/// A request that a worker got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `POST`, `GET`.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// All of it.
    pub body: Vec<u8>,
}

impl Seen {
    /// Reads one; `None` if the connection ends before it begins.
    ///
    /// # Errors
    /// The connection fails or ends within it.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let Some((first, headers)) = head(from)? else { return Ok(None) };
        let mut words = first.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        Ok(Some(Self { method, target, headers, body }))
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// A first line, and the headers after it.
pub(super) type Head = (String, Vec<(String, String)>);

/// Reads the lines up to the blank one.
pub(super) fn head(from: &mut impl BufRead) -> io::Result<Option<Head>> {
    let mut first = String::new();
    if from.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            None => return Ok(Some((first.trim_end().to_owned(), headers))),
        }
    }
}
