//! What an answer looks like: JSON, a coded error, and the way to the store that cannot block the
//! admin thread.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::daemon::Daemon;

/// The state of every route.
pub(super) type Shared = Arc<Daemon>;

/// A request that is not answered: `{"error": {"code": …, "message": …}}`.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Refused {
    /// The request is wrong.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: "bad_request", message: message.into() }
    }

    /// The request is longer than one may be.
    pub(super) fn too_large(message: impl Into<String>) -> Self {
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, code: "too_large", message: message.into() }
    }

    /// The request is right, but not now.
    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self { status: StatusCode::CONFLICT, code: "conflict", message: message.into() }
    }

    /// There is no such thing.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, code: "not_found", message: message.into() }
    }

    /// Whoever asks is not known.
    pub(super) fn unauthorized() -> Self {
        let message = "the token is missing or wrong".to_owned();
        Self { status: StatusCode::UNAUTHORIZED, code: "unauthorized", message }
    }

    /// The daemon did not answer in time.
    pub(super) fn too_late() -> Self {
        let message = "the daemon did not answer within the deadline".to_owned();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, code: "deadline", message }
    }
}

impl From<QueryRejection> for Refused {
    fn from(rejected: QueryRejection) -> Self {
        Self::bad_request(rejected.body_text())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let error = json!({"error": {"code": self.code, "message": self.message}});
        (self.status, Json(error)).into_response()
    }
}

/// Runs `read` on one of the reader threads, where waiting for the store's lock is allowed.
pub(super) async fn with<R: Send + 'static>(
    daemon: Shared,
    read: impl FnOnce(&Daemon) -> R + Send + 'static,
) -> Result<R, Refused> {
    let reading = tokio::task::spawn_blocking(move || read(&daemon));
    reading.await.map_err(|_ended| Refused::too_late())
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that hexadecimal digits in either case stand for.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_reads_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&hex(&bytes)), Some(bytes));
        assert_eq!(from_hex("0Aff"), Some(vec![10, 255]));
        assert_eq!(from_hex(""), Some(Vec::new()));
        for wrong in ["0", "0g", "+1", "é0", "0x"] {
            assert_eq!(from_hex(wrong), None, "{wrong:?}");
        }
    }
}
