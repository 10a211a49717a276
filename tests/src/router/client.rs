//! A client that sees each byte of an answer, and when the connection ends.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::request::head;
use crate::PATIENCE;

/// An answer whose head has come. Dropping it closes the connection.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    from: BufReader<TcpStream>,
    is_over: bool,
}

/// Posts `body` and waits for the head of the answer.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn post(to: SocketAddr, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    send(to, "POST", path, headers, body).expect("an answer")
}

/// Gets `path`: the status and the body.
///
/// # Panics
/// If there is no answer.
#[must_use]
pub fn get(to: SocketAddr, path: &str) -> (u16, String) {
    let mut reply = send(to, "GET", path, &[], "").expect("an answer");
    let body = reply.text();
    (reply.status, body)
}

/// A chat request for the model `m`, to be streamed.
///
/// # Panics
/// If there is no answer.
#[must_use]
pub fn ask(to: SocketAddr) -> Reply {
    post(to, "/v1/chat/completions", &[], CHAT)
}

/// The body of [`ask`].
pub const CHAT: &str =
    r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}"#;

/// One request on a connection of its own.
///
/// # Errors
/// The connection fails or ends before the head of an answer.
pub fn send(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(request.as_bytes())?;
    Reply::read(BufReader::new(stream))
}

impl Reply {
    fn read(mut from: BufReader<TcpStream>) -> io::Result<Self> {
        let Some((first, headers)) = head(&mut from)? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(Self { status: status.expect("a status"), headers, from, is_over: false })
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The next chunk of the body as it was sent; nothing after the last one.
    ///
    /// # Errors
    /// The connection ended before the body did.
    pub fn chunk(&mut self) -> io::Result<Vec<u8>> {
        if self.is_over {
            return Ok(Vec::new());
        }
        if let Some(length) = self.header("content-length") {
            let mut body = vec![0; length.parse().expect("a length")];
            self.is_over = true;
            self.from.read_exact(&mut body)?;
            return Ok(body);
        }
        let mut size = String::new();
        if self.from.read_line(&mut size)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let size = usize::from_str_radix(size.trim(), 16).expect("the size of a chunk");
        let mut chunk = vec![0; size + 2];
        self.from.read_exact(&mut chunk)?;
        chunk.truncate(size);
        self.is_over = size == 0;
        Ok(chunk)
    }

    /// All of the rest of the body.
    ///
    /// # Errors
    /// The connection ended before the body did.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(body);
            }
            body.extend_from_slice(&chunk);
        }
    }

    /// The rest of the body as text.
    ///
    /// # Panics
    /// If the connection ended before the body did, or it is no text.
    #[must_use]
    pub fn text(&mut self) -> String {
        String::from_utf8(self.rest().expect("the whole body")).expect("text")
    }

    /// The `code` of an error in the body.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn code(&mut self) -> String {
        let body: Value = serde_json::from_str(&self.text()).expect("JSON");
        let error = &body["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{body}");
        assert!(error.get("param").is_some(), "{body}");
        error["code"].as_str().expect("a code").to_owned()
    }
}
