//! Protocol 1, what becomes of requests that are not as they should be: which end the connection,
//! which are answered with an error, which are ignored.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use kvd_proto::block_key::Namespace;
use kvd_proto::malformed::Malformed;
use kvd_proto::retention::Retention;
use kvd_proto::v1::error::ErrorCode;
use kvd_proto::v1::set::{Head, HeadState, Set, Tail};
use kvd_proto::v1::{Rejected, Reply, Request};
use kvd_proto::v2;
use rmpv::Value;

fn body(fields: &[(&str, Value)]) -> Vec<u8> {
    let entries = fields.iter().map(|(name, value)| ((*name).into(), value.clone())).collect();
    encoded(&Value::Map(entries))
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    rmpv::encode::write_value(&mut out, value).unwrap();
    out
}

fn bin(bytes: &[u8]) -> Value {
    Value::Binary(bytes.to_vec())
}

fn rejected(bytes: &[u8]) -> Rejected {
    Request::decode(bytes).unwrap_err()
}

fn assert_closes(bytes: &[u8]) {
    let rejected = rejected(bytes);
    assert!(rejected.closes(), "{rejected:?}");
    let mut out = Vec::new();
    rejected.encode(&mut out);
    assert!(out.is_empty(), "a close is silent");
}

fn assert_answers(bytes: &[u8], code: ErrorCode) {
    let rejected = rejected(bytes);
    assert!(!rejected.closes(), "{rejected:?}");
    let mut out = Vec::new();
    rejected.encode(&mut out);
    let Ok(Reply::Error(error)) = Reply::decode(&out[4..]) else { panic!("no error frame") };
    assert_eq!(error.code, code.as_str(), "{rejected:?}");
    assert!(error.message.len() <= 200);
}

/// An operation, its required fields with good values, and the names of its optional fields.
type Smallest = (&'static str, Vec<(&'static str, Value)>, Vec<&'static str>);

/// The smallest request of each kind.
fn smallest() -> Vec<Smallest> {
    let keys = || Value::Array(vec![bin(b"k")]);
    let ns = ["model", "compat_key"];
    let with = |more: &[&'static str]| [&ns[..], more].concat();
    let map = || Value::Array(vec![Value::Map(Vec::new())]);
    vec![
        (
            "hello",
            vec![("client_id", "c".into())],
            vec!["protocol_version", "prefers_shared_arena"],
        ),
        ("get", vec![("key", bin(b"k"))], with(&[])),
        ("batch_get", vec![("keys", keys())], with(&[])),
        (
            "set",
            vec![("key", bin(b"k")), ("value", bin(b"v"))],
            with(&["retention", "metadata", "ttl_seconds"]),
        ),
        (
            "batch_set",
            vec![
                ("keys", keys()),
                ("values", keys()),
                ("retentions", Value::Array(vec!["long".into()])),
                ("metadatas", map()),
            ],
            with(&["ttls_seconds"]),
        ),
        ("set_reserve", vec![("size", 1.into())], vec![]),
        (
            "set_commit",
            vec![("lease_token", 1.into()), ("key", bin(b"k")), ("length", 1.into())],
            with(&["retention", "ttl_seconds"]),
        ),
        ("set_cancel", vec![("lease_token", 1.into())], vec![]),
        ("prefetch_hint", vec![("keys", keys())], with(&["deadline_ms"])),
        ("exists", vec![("keys", keys())], with(&[])),
        ("clear", vec![], with(&[])),
    ]
}

fn request(op: &'static str, fields: &[(&'static str, Value)]) -> Vec<u8> {
    body(&[&[("op", op.into())], fields].concat())
}

#[test]
fn bytes_that_are_no_message_end_the_connection() {
    for bytes in [
        &b""[..],
        b"\xc1",
        b"\xc0",
        b"\x90",
        b"\x80",
        b"\x81\xa3key\xc4\x01k",
        b"\x81\xa2op\x05",
        b"\x81\xa2op\xa5stats\xc0",
        b"\x82\xa2op\xa5stats\x01\x01",
        b"\x82\xa2op\xa5stats\xa1a",
        b"\x82\xa2op\xa5stats\xa1a\xa1\xff",
        b"\x81\xa2op\xa2\xff\xff",
        b"\xdf\xff\xff\xff\xff\xa2op\xa5stats",
    ] {
        assert_closes(bytes);
    }
    let metadata = Value::Map(vec![(
        "deep".into(),
        Value::Array(vec![Value::Map(vec![(1.into(), 1.into())])]),
    )]);
    let fields = [("key", bin(b"k")), ("value", bin(b"v")), ("metadata", metadata)];
    assert_closes(&request("set", &fields));
}

#[test]
fn unknown_operations_and_fields_and_missing_fields_end_the_connection() {
    assert_closes(&request("fetch", &[]));
    assert_closes(&request("", &[]));
    assert_closes(&request("lookup_tier", &[]));
    for (op, required, _) in smallest() {
        assert!(Request::decode(&request(op, &required)).is_ok(), "{op}");
        let unknown = [&required[..], &[("unknown", 1.into())]].concat();
        assert_closes(&request(op, &unknown));
        for missing in 0..required.len() {
            let mut fewer = required.clone();
            fewer.remove(missing);
            assert_closes(&request(op, &fewer));
        }
    }
    let many: Vec<(String, Value)> = (0..100).map(|n| (format!("f{n}"), n.into())).collect();
    let mut fields: Vec<(&str, Value)> = vec![("op", "get".into()), ("key", bin(b"k"))];
    fields.extend(many.iter().map(|(name, value)| (name.as_str(), value.clone())));
    assert_closes(&body(&fields));
    fields[0].1 = "stats".into();
    assert!(matches!(Request::decode(&body(&fields)), Ok(Request::Stats(_))));
}

#[test]
fn a_wrong_kind_in_a_field_is_an_internal_error() {
    let extension = Value::Ext(5, vec![1, 2, 3]);
    let floats = ["ttl_seconds"];
    for (op, required, optional) in smallest() {
        let names = required.iter().map(|(name, _)| *name).chain(optional.iter().copied());
        for name in names {
            let mut wrong: Vec<Value> = vec![
                true.into(),
                extension.clone(),
                Value::Array(vec![Value::Nil, extension.clone()]),
            ];
            if name == "prefers_shared_arena" {
                wrong[0] = 1.into();
            }
            if !(floats.contains(&name) && op == "set") && name != "ttls_seconds" {
                wrong.push(Value::Nil);
            }
            if !floats.contains(&name) || op == "set_commit" {
                wrong.push(1.5.into());
            }
            for value in wrong {
                let mut fields: Vec<_> =
                    required.iter().filter(|(known, _)| *known != name).cloned().collect();
                fields.push((name, value.clone()));
                let bytes = request(op, &fields);
                if op == "prefetch_hint" {
                    let rejected = rejected(&bytes);
                    assert!(matches!(rejected, Rejected::Ignored(_)), "{rejected:?}");
                    assert!(!rejected.closes() && rejected.code().is_none());
                } else if op == "batch_set" && name.ends_with('s') && value.is_array() {
                    assert_answers(&bytes, ErrorCode::BatchSetArityMismatch);
                } else {
                    assert_answers(&bytes, ErrorCode::InternalError);
                }
            }
        }
    }
}

#[test]
fn words_that_name_no_class() {
    let set = |retention: &str| {
        let fields = [("key", bin(b"k")), ("value", bin(b"v")), ("retention", retention.into())];
        request("set", &fields)
    };
    for word in ["", "default", "forever", "LONG"] {
        assert_answers(&set(word), ErrorCode::InternalError);
    }
    assert_answers(&set(&"x".repeat(10_000)), ErrorCode::InternalError);
    let commit = |retention: &str| {
        let fields = [
            ("lease_token", 1.into()),
            ("key", bin(b"k")),
            ("length", 1.into()),
            ("retention", retention.into()),
        ];
        let bytes = request("set_commit", &fields);
        let Ok(Request::SetCommit(commit)) = Request::decode(&bytes) else { panic!("{retention}") };
        commit.class()
    };
    assert_eq!(commit(""), Some(Retention::Short));
    assert_eq!(commit("default"), Some(Retention::Short));
    assert_eq!(commit("none"), Some(Retention::None));
    assert_eq!(commit("forever"), None);
}

#[test]
fn replies_from_a_client_are_bad_op() {
    for op in ["hello_ack", "get_response", "batch_get_shared_response", "stats_response", "error"]
    {
        assert_answers(&request(op, &[]), ErrorCode::BadOp);
        assert_answers(&request(op, &[("whatever", 1.into())]), ErrorCode::BadOp);
    }
    assert_closes(b"\x82\xa2op\xa5error\xa1a\xc1");
}

#[test]
fn arrays_of_a_batch_are_compared_before_their_items() {
    let array = |items: &[Value]| Value::Array(items.to_vec());
    let batch = |values: &[Value], retentions: &[Value], ttls: Value| {
        let metadatas = array(&[Value::Map(vec![]), Value::Map(vec![])]);
        let fields = [
            ("keys", array(&[bin(b"a"), bin(b"b")])),
            ("values", array(values)),
            ("retentions", array(retentions)),
            ("metadatas", metadatas),
            ("ttls_seconds", ttls),
        ];
        request("batch_set", &fields)
    };
    let values = [bin(b"1"), bin(b"2")];
    let classes: [Value; 2] = ["long".into(), "none".into()];
    assert!(Request::decode(&batch(&values, &classes, Value::Nil)).is_ok());
    let ttls = array(&[Value::Nil, 2.into()]);
    let good = batch(&values, &classes, ttls);
    let Ok(Request::BatchSet(set)) = Request::decode(&good) else { panic!("refused") };
    let ttls: Vec<_> = set.items().map(|item| item.ttl_seconds).collect();
    assert_eq!(ttls, [None, Some(2.0)]);
    let arity = ErrorCode::BatchSetArityMismatch;
    assert_answers(&batch(&values[..1], &classes, Value::Nil), arity);
    assert_answers(&batch(&[5.into()], &classes, Value::Nil), arity);
    assert_answers(&batch(&values, &["forever".into()], Value::Nil), arity);
    assert_answers(&batch(&values, &classes, array(&[])), arity);
    let internal = ErrorCode::InternalError;
    assert_answers(&batch(&[bin(b"1"), Value::Nil], &classes, Value::Nil), internal);
    assert_answers(&batch(&values, &["long".into(), "x".into()], Value::Nil), internal);
}

#[test]
fn integers_and_floats_of_whatever_width() {
    let set = |ttl: Value| {
        let bytes =
            request("set", &[("key", bin(b"k")), ("value", bin(b"v")), ("ttl_seconds", ttl)]);
        let Ok(Request::Set(set)) = Request::decode(&bytes) else { panic!("refused") };
        set.ttl_seconds
    };
    assert_eq!(set(Value::F32(1.5)), Some(1.5));
    assert_eq!(set(3.into()), Some(3.0));
    assert_eq!(set((-3).into()), Some(-3.0));
    assert_eq!(set(Value::Nil), None);
    let wide = b"\x82\xa2op\xabset_reserve\xa4size\xcf\x00\x00\x00\x00\x00\x00\x00\x07";
    let Ok(Request::SetReserve(reserve)) = Request::decode(wide) else { panic!("refused") };
    assert_eq!(reserve.size, 7);
    let huge = request("set_reserve", &[("size", u64::MAX.into())]);
    let Ok(Request::SetReserve(reserve)) = Request::decode(&huge) else { panic!("refused") };
    assert_eq!(reserve.size, i64::MAX);
    let negative = request("set_cancel", &[("lease_token", (-1).into())]);
    let Ok(Request::SetCancel(cancel)) = Request::decode(&negative) else { panic!("refused") };
    assert_eq!(cancel.lease_token.0, 0);
}

#[test]
fn defaults_of_absent_fields() {
    let bytes = body(&[("value", bin(b"v")), ("key", bin(b"k")), ("op", "set".into())]);
    let Ok(Request::Set(set)) = Request::decode(&bytes) else { panic!("refused") };
    assert_eq!(set.retention, Retention::Short);
    assert_eq!(set.namespace, Namespace::default());
    assert_eq!((set.metadata.count(), set.ttl_seconds), (0, None));
    let bytes = request("hello", &[("client_id", "".into())]);
    let Ok(Request::Hello(hello)) = Request::decode(&bytes) else { panic!("refused") };
    assert_eq!((hello.protocol_version, hello.prefers_shared_arena), (1, false));
    let keys = [("keys", Value::Array(vec![]))];
    let bytes = request("prefetch_hint", &keys);
    let Ok(Request::PrefetchHint(hint)) = Request::decode(&bytes) else { panic!("refused") };
    assert_eq!(hint.deadline_ms, 1000);
}

#[test]
fn which_protocol_a_first_hello_asks_for() {
    let hello = |version: Value| {
        request("hello", &[("client_id", "c".into()), ("protocol_version", version)])
    };
    let asks = |bytes: &[u8]| v2::hello::Hello::asks_for_v2(bytes);
    assert!(asks(&hello(2.into())) && asks(&hello(7.into())) && asks(&hello(u64::MAX.into())));
    assert!(!asks(&hello(1.into())) && !asks(&hello((-2).into())) && !asks(&hello("2".into())));
    assert!(!asks(&request("hello", &[("client_id", "c".into())])));
    assert!(!asks(&request("stats", &[("protocol_version", 2.into())])));
    assert!(!asks(b"") && !asks(b"\xc1"));
    let bytes = hello(u64::MAX.into());
    let Ok(v2::Request::Hello(hello)) = v2::Request::decode(&bytes) else { panic!("refused") };
    assert_eq!((hello.protocol_version, hello.prefers_shared_arena), (u32::MAX, false));
}

fn set_frame() -> Vec<u8> {
    let set = Set {
        key: b"kkk",
        value: b"vvvvv",
        retention: Retention::Long,
        namespace: Namespace { model: "m", compat_key: "c" },
        metadata: kvd_proto::pack::Metadata::EMPTY,
        ttl_seconds: Some(2.0),
    };
    let mut out = Vec::new();
    set.encode(&mut out);
    out.split_off(4)
}

fn body_bytes(body: &[u8]) -> u32 {
    u32::try_from(body.len()).unwrap()
}

#[test]
fn a_set_is_recognised_from_its_first_bytes() {
    let body = set_frame();
    let HeadState::Head(head) = Head::parse(&body, body_bytes(&body)) else { panic!("no head") };
    assert_eq!((head.key, head.value_len, head.fields_left), (&b"kkk"[..], 5, 5));
    assert_eq!(&body[head.value_at..head.value_at + 5], b"vvvvv");
    for end in 0..head.value_at {
        let state = Head::parse(&body[..end], body_bytes(&body));
        assert_eq!(state, HeadState::NeedMore, "{end}");
    }
    let state = Head::parse(&body[..head.value_at], body_bytes(&body));
    assert_eq!(state, HeadState::Head(head));
    let tail = Tail::decode(&body[head.value_at + 5..], head.fields_left).unwrap();
    assert_eq!((tail.retention, tail.ttl_seconds), (Retention::Long, Some(2.0)));
    assert_eq!((tail.key_again, tail.value_again), (None, None));
}

#[test]
fn what_is_no_streamable_set_is_left_to_the_whole_decoder() {
    let k = || ("key", bin(b"k"));
    let v = || ("value", bin(b"v"));
    for fields in [
        vec![("op", "get".into()), k(), v()],
        vec![("op", "set".into()), v(), k()],
        vec![k(), v(), ("op", "set".into())],
        vec![("op", "set".into()), ("key", "k".into()), v()],
        vec![("op", "set".into()), k(), ("value", "v".into())],
        vec![("op", "set".into()), ("key", bin(&[0; 5000])), v()],
        vec![("op", "set".into()), k()],
    ] {
        let bytes = body(&fields);
        assert_eq!(Head::parse(&bytes, body_bytes(&bytes)), HeadState::NotStreamable);
    }
    let body = set_frame();
    let HeadState::Head(head) = Head::parse(&body, body_bytes(&body)) else { panic!("no head") };
    let parse =
        |body_bytes: usize| Head::parse(&body[..head.value_at], u32::try_from(body_bytes).unwrap());
    assert!(matches!(parse(head.value_at + 5), HeadState::Head(_)));
    assert_eq!(parse(head.value_at + 4), HeadState::NotStreamable, "value leaves the body");
    assert_eq!(Head::parse(b"\x83\xa2op", 4), HeadState::NotStreamable, "truncated at its end");
    assert_eq!(Head::parse(b"\xc1", 100), HeadState::NotStreamable);
}

#[test]
fn the_tail_follows_the_rules_of_the_whole() {
    let tail = |fields: &[(&str, Value)]| {
        let bytes = body(fields);
        let count = u32::try_from(fields.len()).unwrap();
        Tail::decode(&bytes[1..], count).map(|tail| {
            (tail.retention, tail.key_again.map(<[u8]>::to_vec), tail.value_again.map(<[u8]>::len))
        })
    };
    assert_eq!(tail(&[]), Ok((Retention::Short, None, None)));
    let again = tail(&[("key", bin(b"2")), ("op", "set".into()), ("value", bin(b"xyz"))]);
    assert_eq!(again, Ok((Retention::Short, Some(b"2".to_vec()), Some(3))));
    assert!(matches!(tail(&[("colour", 1.into())]), Err(Rejected::Close(_))));
    assert!(matches!(tail(&[("model", 1.into())]), Err(Rejected::Internal(_))));
    assert!(matches!(tail(&[("retention", "x".into())]), Err(Rejected::Internal(_))));
    assert!(matches!(tail(&[("op", "get".into())]), Err(Rejected::Close(_))));
    assert!(matches!(tail(&[("op", "error".into())]), Err(Rejected::BadOp { .. })));
    assert!(matches!(
        Tail::decode(b"\xc0", 0),
        Err(Rejected::Close(Malformed::Trailing { left: 1 }))
    ));
    assert!(matches!(Tail::decode(b"", 1), Err(Rejected::Close(Malformed::Truncated { .. }))));
}
