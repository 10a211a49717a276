//! Which headers cross the router, in both directions. Pure.

use hyper::HeaderMap;
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// Which rank of a worker is to serve a request; only the router says so.
const RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");
/// A request's id goes by two names.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The other name.
pub const INFERA_REQUEST_ID: HeaderName = HeaderName::from_static("x-infera-request-id");

/// Headers of one connection, not of the request.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Longest id that is taken from a client.
const ID_BYTES_MAX: usize = 128;

/// A client's headers as a worker gets them: the end-to-end ones without `dropped`, no encoding asked for.
#[must_use]
pub fn to_worker(from: &HeaderMap, dropped: &[HeaderName], id: &HeaderValue) -> HeaderMap {
    let mut headers = end_to_end(from);
    for name in dropped.iter().chain(&[HOST, CONTENT_LENGTH, EXPECT, RANK]) {
        headers.remove(name);
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    set_id(&mut headers, id);
    headers
}

/// Says which rank is meant.
pub fn set_rank(headers: &mut HeaderMap, rank: u32) {
    headers.insert(RANK, HeaderValue::from(rank));
}

/// A worker's headers as the client gets them.
#[must_use]
pub fn to_client(from: &HeaderMap, id: &HeaderValue) -> HeaderMap {
    let mut headers = end_to_end(from);
    set_id(&mut headers, id);
    headers
}

/// Writes a request's id in both its names.
pub fn set_id(headers: &mut HeaderMap, id: &HeaderValue) {
    headers.insert(REQUEST_ID, id.clone());
    headers.insert(INFERA_REQUEST_ID, id.clone());
}

/// The id that the client gave the request, or a new one.
#[must_use]
pub fn request_id(from: &HeaderMap) -> HeaderValue {
    let given = [REQUEST_ID, INFERA_REQUEST_ID].into_iter().filter_map(|name| from.get(name));
    let is_good = |id: &&HeaderValue| {
        let bytes = id.as_bytes();
        (1..=ID_BYTES_MAX).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ')
    };
    let found = given.into_iter().find(is_good);
    found.cloned().unwrap_or_else(|| {
        let new = format!("{:032x}", fastrand::u128(..));
        HeaderValue::try_from(new).unwrap_or_else(|_never| HeaderValue::from_static("-"))
    })
}

fn end_to_end(from: &HeaderMap) -> HeaderMap {
    let mut headers = from.clone();
    let values = from.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = values.flat_map(|value| value.split(','));
    for name in named.filter_map(|name| name.trim().parse::<HeaderName>().ok()) {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        map
    }

    #[test]
    fn end_to_end_headers_reach_the_worker_and_others_do_not() {
        let from = headers(&[
            ("host", "router"),
            ("content-length", "3"),
            ("accept-encoding", "gzip"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("x-data-parallel-rank", "7"),
            ("authorization", "Bearer k"),
            ("traceparent", "00-1"),
            ("x-vendor", "a"),
            ("x-vendor", "b"),
            ("x-secret", "s"),
        ]);
        let id = HeaderValue::from_static("id-1");
        let dropped = [HeaderName::from_static("x-secret")];
        let sent = to_worker(&from, &dropped, &id);
        let mut names: Vec<&str> = sent.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "accept-encoding",
                "authorization",
                "traceparent",
                "x-infera-request-id",
                "x-request-id",
                "x-vendor"
            ]
        );
        assert_eq!(sent.get_all("x-vendor").iter().count(), 2);
        assert_eq!(
            (&sent["accept-encoding"], &sent["x-request-id"]),
            (&"identity".parse().unwrap(), &id)
        );
    }

    #[test]
    fn an_id_is_taken_if_it_is_good_and_made_if_not() {
        let id = |name, value: &str| request_id(&headers(&[(name, value)]));
        assert_eq!(id("x-request-id", "abc"), "abc");
        assert_eq!(id("x-infera-request-id", "abc"), "abc");
        let longest = "x".repeat(128);
        assert_eq!(id("x-request-id", &longest), longest);
        for bad in ["", "é", &"x".repeat(129)] {
            assert_eq!(id("x-request-id", bad).len(), 32, "{bad:?}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }

    #[test]
    fn vendor_headers_of_an_answer_pass() {
        let from = headers(&[
            ("content-type", "text/event-stream"),
            ("retry-after", "3"),
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("x-request-id", "the worker's"),
        ]);
        let sent = to_client(&from, &HeaderValue::from_static("ours"));
        assert_eq!(
            (&sent["retry-after"], &sent["x-request-id"]),
            (&"3".parse().unwrap(), &"ours".parse().unwrap())
        );
        assert!(!sent.contains_key("transfer-encoding") && !sent.contains_key("connection"));
    }
}
