//! Just enough HTTP to ask the daemon's admin socket one thing at a time.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::until::until;

/// The status and the body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// One request on a connection of its own. HTTP/1.0, so that the answer ends with the connection.
pub(crate) fn ask(socket: &Path, method: &str, target: &str) -> Answer {
    // It opens after the socket of the engines, which is what a start waits for.
    let connect = || UnixStream::connect(socket).ok();
    let mut stream = until("the admin socket accepts", crate::PATIENCE, connect);
    stream.set_read_timeout(Some(crate::PATIENCE)).expect("setting a timeout");
    let head = format!("{method} {target} HTTP/1.0\r\nHost: kvd\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("asking");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("reading the answer");
    parse(&answer)
}

fn parse(answer: &str) -> Answer {
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer with a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Answer { status: status.expect("a status line"), body: body.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_body_are_read() {
        let answer = parse("HTTP/1.0 503 Service Unavailable\r\nx: y\r\n\r\n{\"a\":\r\n\r\n1}");
        assert_eq!(answer, Answer { status: 503, body: "{\"a\":\r\n\r\n1}".to_owned() });
    }
}
