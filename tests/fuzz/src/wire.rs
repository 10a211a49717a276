//! Any bytes as the body of a frame that a peer sends.

use kvd_proto::frame::PREFIX_BYTES;
use kvd_proto::lineage::Lineage;
use kvd_proto::v1::set::{Head, HeadState, Set, Tail};
use kvd_proto::{v1, v2};

/// A body sent to the daemon by a protocol-1 client.
pub fn v1_request(body: &[u8]) {
    match v1::Request::decode(body) {
        Ok(request) => {
            let sent = frame_of(|out| request.encode(out));
            let again = v1::Request::decode(body_of(&sent)).expect("our own frame");
            assert_eq!(frame_of(|out| again.encode(out)), sent, "decoding loses something");
        }
        Err(rejected) => {
            let sent = frame_of(|out| rejected.encode(out));
            let told = rejected.code();
            assert_eq!(sent.is_empty(), told.is_none());
            assert!(!rejected.closes() || told.is_none(), "a close is silent");
            if let Some(code) = told {
                let Ok(v1::Reply::Error(error)) = v1::Reply::decode(body_of(&sent)) else {
                    panic!("the error frame does not decode");
                };
                assert_eq!(error.code, code.as_str());
            }
        }
    }
    streamed_set(body);
    if let Ok(reply) = v1::Reply::decode(body) {
        let sent = frame_of(|out| reply.encode(out));
        assert!(v1::Reply::decode(body_of(&sent)).is_ok(), "our own frame");
    }
}

/// A set that is received as a stream has the outcome of the same set decoded as a whole.
fn streamed_set(body: &[u8]) {
    let body_bytes = u32::try_from(body.len()).expect("a short body");
    let HeadState::Head(head) = Head::parse(body, body_bytes) else {
        return;
    };
    for end in 0..head.value_at.min(64) {
        assert_eq!(Head::parse(&body[..end], body_bytes), HeadState::NeedMore, "{end} bytes");
    }
    let value_end = head.value_at + head.value_len as usize;
    let streamed = Tail::decode(&body[value_end..], head.fields_left).map(|tail| Set {
        key: tail.key_again.unwrap_or(head.key),
        value: tail.value_again.unwrap_or(&body[head.value_at..value_end]),
        retention: tail.retention,
        namespace: tail.namespace,
        metadata: tail.metadata,
        ttl_seconds: tail.ttl_seconds,
    });
    match (v1::Request::decode(body), streamed) {
        (Ok(v1::Request::Set(whole)), Ok(streamed)) => {
            let whole = frame_of(|out| whole.encode(out));
            assert_eq!(whole, frame_of(|out| streamed.encode(out)));
        }
        // Only a second `op` behind the value can turn a set into this; streamed, it closes.
        (Ok(v1::Request::Stats(_)), Err(streamed)) => assert!(streamed.closes()),
        (Err(whole), Err(streamed)) => {
            assert_eq!(whole.closes(), streamed.closes());
            assert_eq!(whole.code(), streamed.code());
        }
        (whole, streamed) => panic!("as a whole {whole:?}, as a stream {streamed:?}"),
    }
}

/// A body sent to the daemon by a protocol-2 client.
pub fn v2_request(body: &[u8]) {
    let asks_for_v2 = v2::hello::Hello::asks_for_v2(body);
    match v2::Request::decode(body) {
        Ok(request) => {
            let sent = frame_of(|out| request.encode(out));
            assert_eq!(v2::Request::decode(body_of(&sent)), Ok(request));
            if let v2::Request::Hello(hello) = request {
                assert_eq!(asks_for_v2, hello.protocol_version >= v2::PROTOCOL_VERSION);
            }
        }
        Err(rejected) => {
            let sent = frame_of(|out| rejected.encode(out));
            let Ok(v2::Reply::Error(error)) = v2::Reply::decode(body_of(&sent)) else {
                panic!("the error frame does not decode");
            };
            assert_eq!((error.id, error.code), (rejected.id, rejected.reason.code()));
        }
    }
    assert_eq!(Lineage::check(body).is_ok(), Lineage::decode(body).is_ok());
    if let Ok(lineage) = Lineage::decode(body) {
        assert_eq!(Lineage::decode(&lineage.encode()), Ok(lineage));
    }
}

/// A body sent to one of our clients by whoever sits on the socket.
pub fn v2_reply(body: &[u8]) {
    let Ok(reply) = v2::Reply::decode(body) else {
        return;
    };
    let sent = frame_of(|out| reply.encode(out));
    let again = v2::Reply::decode(body_of(&sent)).expect("our own frame");
    assert_eq!(again.id(), reply.id());
    assert_eq!(frame_of(|out| again.encode(out)), sent, "decoding loses something");
    let rows = match reply {
        v2::Reply::Located(located) => Some((located.len(), located.rows().count())),
        v2::Reply::Fetched(fetched) => Some((fetched.len(), fetched.rows().count())),
        v2::Reply::Reserved(reserved) => Some((reserved.len(), reserved.rows().count())),
        v2::Reply::Committed(committed) => Some((committed.len(), committed.rows().count())),
        v2::Reply::HelloAck(_)
        | v2::Reply::Cancelled(_)
        | v2::Reply::Resumed(_)
        | v2::Reply::Cleared(_)
        | v2::Reply::Stats(_)
        | v2::Reply::Error(_) => None,
    };
    assert!(rows.is_none_or(|(announced, found)| announced == found));
}

fn frame_of(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn body_of(frame: &[u8]) -> &[u8] {
    &frame[PREFIX_BYTES..]
}
