//! Requests that the router answers itself, in the shape that clients of OpenAI's API expect.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::{IntoResponse, Response as Answer};
use hyper::header::CONTENT_TYPE;
use serde_json::json;

/// Why a request is not answered by a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The request is wrong: what is wrong with it.
    BadRequest(String),
    /// Its body is larger than this many bytes.
    BodyTooLarge(usize),
    /// Its body did not arrive in time.
    BodyTooSlow,
    /// There is nothing at this path.
    NotFound(String),
    /// There is, but not for this method.
    WrongMethod,
    /// This router is not set up for it.
    NotServed(&'static str),
    /// Nobody serves the model.
    NoWorker(String),
    /// Those who do could not be reached, or broke off before they answered.
    Unreachable(String),
    /// The worker was silent for too long.
    Timeout,
    /// The router has too much to do.
    Overloaded,
    /// The router ends.
    ShuttingDown,
}

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoWorker(_) | Self::NotServed(_) | Self::Overloaded | Self::ShuttingDown => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Unreachable(_) => StatusCode::BAD_GATEWAY,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    const fn code(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad_request",
            Self::BodyTooLarge(_) => "body_too_large",
            Self::BodyTooSlow => "body_timeout",
            Self::NotFound(_) => "not_found",
            Self::WrongMethod => "method_not_allowed",
            Self::NotServed(_) => "not_available",
            Self::NoWorker(_) => "no_worker",
            Self::Unreachable(_) => "worker_unreachable",
            Self::Timeout => "upstream_timeout",
            Self::Overloaded => "overloaded",
            Self::ShuttingDown => "shutting_down",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::BadRequest(what) | Self::NoWorker(what) | Self::Unreachable(what) => what.clone(),
            Self::NotServed(why) => (*why).to_owned(),
            Self::BodyTooLarge(most) => format!("the body is larger than {most} bytes"),
            Self::BodyTooSlow => "the body did not arrive in time".to_owned(),
            Self::NotFound(path) => format!("there is no {path} here"),
            Self::WrongMethod => "this path is for another method".to_owned(),
            Self::Timeout => "the worker was silent for too long".to_owned(),
            Self::Overloaded => "the router has too many long requests to read".to_owned(),
            Self::ShuttingDown => "the router is shutting down".to_owned(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Answer {
        let status = self.status();
        let kind = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
        let error = json!({"error": {
            "message": self.message(),
            "type": kind,
            "param": null,
            "code": self.code(),
        }});
        let mut answer = Response::new(Body::from(error.to_string()));
        *answer.status_mut() = status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer
    }
}
