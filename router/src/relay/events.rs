//! What the router knows of a stream of events that passes: whether its last event is complete, and whether it
//! was the one that ends a stream. Pure.

use bytes::Bytes;
use serde_json::json;

/// The last bytes, long enough to hold the end mark and the blank line after it.
const TAIL_BYTES: usize = 24;
const END_MARK: &[u8] = b"[DONE]";

/// The end of what has passed.
#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    /// These bytes have passed.
    pub(super) fn see(&mut self, chunk: &[u8]) {
        if chunk.len() >= TAIL_BYTES {
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(&chunk[chunk.len().saturating_sub(TAIL_BYTES)..]);
        let over = self.bytes.len().saturating_sub(TAIL_BYTES);
        self.bytes.drain(..over);
    }

    /// Whether the last event was `data: [DONE]`.
    #[must_use]
    pub(super) fn is_done(&self) -> bool {
        let last = self.bytes.trim_ascii_end();
        let Some(before) = last.strip_suffix(END_MARK) else { return false };
        before.trim_ascii_end().ends_with(b"data:")
    }

    /// Whether an event has begun that no blank line has ended.
    fn is_open(&self) -> bool {
        let ends = [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"];
        !self.bytes.is_empty() && !ends.iter().any(|end| self.bytes.ends_with(end))
    }

    /// What ends the stream for the client: the event that has begun is closed, then comes one that says why.
    #[must_use]
    pub(super) fn interruption(&self, message: &str) -> Bytes {
        let close = if self.is_open() { "\n\n" } else { "" };
        let error = json!({"error": {
            "message": message,
            "type": "upstream_error",
            "param": null,
            "code": "stream_interrupted",
        }});
        Bytes::from(format!("{close}data: {error}\n\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(chunks: &[&str]) -> Tail {
        let mut tail = Tail::default();
        chunks.iter().for_each(|chunk| tail.see(chunk.as_bytes()));
        tail
    }

    #[test]
    fn the_end_is_seen_however_it_is_cut() {
        let text = "data: {\"a\":\"0123456789012345678901234567890\"}\n\ndata: [DONE]\n\n";
        for cut in 1..text.len() {
            let (left, right) = text.split_at(cut);
            assert!(after(&[left, right]).is_done(), "{cut}");
            assert!(!after(&[left]).is_done() || cut >= text.len() - 2, "{cut}");
        }
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        let bytes: Vec<&str> = bytes.iter().map(String::as_str).collect();
        assert!(after(&bytes).is_done());
        assert!(after(&["data:[DONE]\r\n\r\n"]).is_done());
    }

    #[test]
    fn what_only_looks_like_the_end_is_none() {
        for text in ["", "[DONE]", "data: {\"x\":\"[DONE]\"}\n\n", "data: [DONE]\n\ndata: {}\n\n"] {
            assert!(!after(&[text]).is_done(), "{text:?}");
        }
    }

    #[test]
    fn an_open_event_is_closed_first() {
        let whole = after(&["data: {}\n\n"]).interruption("gone");
        assert!(whole.starts_with(b"data: {\"error\""), "{whole:?}");
        assert!(whole.ends_with(b"\n\n"));
        for open in ["data: {\"a", "data: {}\n", "data: {}\r\n"] {
            assert!(after(&[open]).interruption("gone").starts_with(b"\n\ndata: "), "{open:?}");
        }
        assert!(after(&["data: {}\r\n\r\n"]).interruption("x").starts_with(b"data"));
        assert!(after(&[]).interruption("x").starts_with(b"data"));
    }
}
