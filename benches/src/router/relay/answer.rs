//! An answer as it comes, in whatever pieces: its head, then its body without the framing of chunks. Pure.

use anyhow::{bail, ensure};

/// Longest head.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// An answer so far.
#[derive(Debug, Default)]
pub struct Answer {
    head: Vec<u8>,
    body: Vec<u8>,
    next: Next,
}

/// What comes next.
#[derive(Debug, Default)]
enum Next {
    #[default]
    Head,
    /// The size of a chunk, as far as it is known.
    Size(usize),
    /// So many bytes of a chunk.
    Bytes(usize),
    /// The end of the line after a chunk.
    LineEnd,
    /// The same after the last one.
    LastLineEnd,
    Nothing,
}

impl Answer {
    /// Makes room for the next answer.
    pub fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
        self.next = Next::Head;
    }

    /// The body so far.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether this is all of it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.next, Next::Nothing)
    }

    /// Takes what has come.
    ///
    /// # Errors
    /// It is no answer with status 200 in chunks, or goes on after its end.
    pub fn take(&mut self, mut bytes: &[u8]) -> anyhow::Result<()> {
        while let Some((first, rest)) = bytes.split_first() {
            bytes = match &mut self.next {
                Next::Head => {
                    self.head.push(*first);
                    if self.head.ends_with(b"\r\n\r\n") {
                        self.judge_head()?;
                        self.next = Next::Size(0);
                    }
                    ensure!(self.head.len() < HEAD_BYTES_MAX, "a head without an end");
                    rest
                }
                Next::Size(size) => {
                    match first {
                        b'\r' => {}
                        b'\n' if *size == 0 => self.next = Next::LastLineEnd,
                        b'\n' => self.next = Next::Bytes(*size),
                        digit => match char::from(*digit).to_digit(16) {
                            Some(digit) => *size = *size << 4 | digit as usize,
                            None => bail!("no size of a chunk: {digit:#x}"),
                        },
                    }
                    rest
                }
                Next::Bytes(left) => {
                    let (chunk, rest) = bytes.split_at((*left).min(bytes.len()));
                    self.body.extend_from_slice(chunk);
                    *left -= chunk.len();
                    if *left == 0 {
                        self.next = Next::LineEnd;
                    }
                    rest
                }
                Next::LineEnd | Next::LastLineEnd => {
                    if *first == b'\n' {
                        let is_last = matches!(self.next, Next::LastLineEnd);
                        self.next = if is_last { Next::Nothing } else { Next::Size(0) };
                    }
                    rest
                }
                Next::Nothing => bail!("more than an answer"),
            };
        }
        Ok(())
    }

    fn judge_head(&self) -> anyhow::Result<()> {
        let head = String::from_utf8_lossy(&self.head).to_ascii_lowercase();
        let is_good = head.starts_with("http/1.1 200 ")
            && head.contains("\r\ntransfer-encoding: chunked\r\n");
        ensure!(is_good, "another answer was expected than {head}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n10\r\n0123456789\r\nxyz\n\r\n0\r\n\r\n";

    #[test]
    fn a_body_is_the_same_however_it_is_cut() {
        for cut in 1..TEXT.len() {
            let mut answer = Answer::default();
            answer.take(&TEXT[..cut]).unwrap();
            assert!(!answer.is_over());
            answer.take(&TEXT[cut..]).unwrap();
            assert!(answer.is_over());
            assert_eq!(answer.body(), b"abc0123456789\r\nxyz\n");
        }
    }

    #[test]
    fn what_is_no_such_answer_is_refused() {
        for text in [
            "HTTP/1.1 502 Bad Gateway\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nH",
        ] {
            Answer::default().take(text.as_bytes()).unwrap_err();
        }
    }
}
