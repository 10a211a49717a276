//! What a worker says that a request took, read from its answer as it passes. Pure.
//!
//! The answer is not parsed: within texts of JSON a quote has a backslash in front, so a name between bare quotes is a
//! name, and the last one counts.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// What all names end with: most chunks have nothing of it, and are not looked at any closer.
static NAMES_END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("_tokens\""));
/// Longest part of a name and its number that may be cut by the end of a chunk.
const OVERLAP: usize = 48;

/// What a request took, as far as it was said.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u32>,
    /// Tokens of it that did not have to be computed.
    pub cached_tokens: Option<u32>,
}

/// Looks for it in the chunks of an answer.
#[derive(Debug, Default)]
pub(super) struct Reader {
    usage: Usage,
    /// The end of what has passed.
    end: Vec<u8>,
}

impl Reader {
    /// These bytes have passed.
    pub(super) fn see(&mut self, chunk: &[u8]) {
        let seam = chunk.len().min(OVERLAP);
        self.end.extend_from_slice(&chunk[..seam]);
        let end = std::mem::take(&mut self.end);
        self.look(&end);
        self.look(chunk);
        self.end = end;
        if chunk.len() >= OVERLAP {
            self.end.clear();
            self.end.extend_from_slice(&chunk[chunk.len() - OVERLAP..]);
        } else {
            let over = self.end.len().saturating_sub(OVERLAP);
            self.end.drain(..over);
        }
    }

    /// What was said so far.
    pub(super) const fn usage(&self) -> Usage {
        self.usage
    }

    fn look(&mut self, bytes: &[u8]) {
        if NAMES_END.find(bytes).is_none() {
            return;
        }
        if let Some(number) = last_number(bytes, b"\"prompt_tokens\"") {
            self.usage.prompt_tokens = Some(number);
        }
        if let Some(number) = last_number(bytes, b"\"cached_tokens\"") {
            self.usage.cached_tokens = Some(number);
        }
    }
}

/// The number behind the last `name` that has one, with something behind it.
fn last_number(bytes: &[u8], name: &[u8]) -> Option<u32> {
    let mut places = memchr::memmem::rfind_iter(bytes, name);
    places.find_map(|at| {
        let rest = bytes[at + name.len()..].trim_ascii_start();
        let rest = rest.strip_prefix(b":")?.trim_ascii_start();
        let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
        str::from_utf8(&rest[..end]).ok()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = concat!(
        r#"data: {"choices":[{"delta":{"content":"\"cached_tokens\": 9,"}}]}"#,
        "\n\n",
        r#"data: {"usage":{"prompt_tokens": 120,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":64}}}"#,
        "\n\ndata: [DONE]\n\n"
    );
    const SAID: Usage = Usage { prompt_tokens: Some(120), cached_tokens: Some(64) };

    fn after(chunks: &[&[u8]]) -> Usage {
        let mut reader = Reader::default();
        chunks.iter().for_each(|chunk| reader.see(chunk));
        reader.usage()
    }

    #[test]
    fn it_is_found_however_the_answer_is_cut() {
        assert_eq!(after(&[ANSWER.as_bytes()]), SAID);
        for cut in 0..ANSWER.len() {
            let (left, right) = ANSWER.as_bytes().split_at(cut);
            assert_eq!(after(&[left, right]), SAID, "{cut}");
        }
        let bytes: Vec<&[u8]> = ANSWER.as_bytes().chunks(1).collect();
        assert_eq!(after(&bytes), SAID);
    }

    #[test]
    fn what_was_not_said_is_not_known() {
        for answer in [
            "",
            r#"{"usage":{"prompt_tokens":null,"prompt_tokens_details":null}}"#,
            r#"{"text":"\"prompt_tokens\":5,\"cached_tokens\":4 "}"#,
            r#"{"prompt_tokens":99999999999999}"#,
            r#"{"prompt_tokens":7"#,
        ] {
            assert_eq!(after(&[answer.as_bytes()]), Usage::default(), "{answer}");
        }
    }
}
