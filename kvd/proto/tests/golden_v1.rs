//! Protocol 1, byte for byte: every frame recorded from the reference decodes to the message
//! written out here, and that message encodes to the recorded bytes.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod support;

use kvd_proto::arena_offer::ArenaOffer;
use kvd_proto::block_key::Namespace;
use kvd_proto::frame;
use kvd_proto::ids::TicketId;
use kvd_proto::pack::{Array, Metadata};
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_proto::v1::batch_get::{
    BatchGet, BatchGetResponse, BatchGetSharedResponse, InlineBatch, SharedHit, SharedRows,
};
use kvd_proto::v1::batch_set::{BatchSet, BatchSetAck};
use kvd_proto::v1::clear::{Clear, ClearAck};
use kvd_proto::v1::error::ErrorResponse;
use kvd_proto::v1::exists::{Exists, ExistsResponse};
use kvd_proto::v1::get::{Get, GetResponse, GetSharedResponse, InlineHit};
use kvd_proto::v1::hello::{Hello, HelloAck};
use kvd_proto::v1::prefetch_hint::PrefetchHint;
use kvd_proto::v1::set::{Set, SetAck};
use kvd_proto::v1::set_cancel::{SetCancel, SetCancelResponse};
use kvd_proto::v1::set_commit::{SetCommit, SetCommitResponse};
use kvd_proto::v1::set_reserve::{SetReserve, SetReserveResponse};
use kvd_proto::v1::stats::{Stats, StatsResponse};
use kvd_proto::v1::{Reply, Request};
use support::Golden;

const EMPTY: Namespace<'static> = Namespace { model: "", compat_key: "" };
const K: &[u8] = b"kkkkkkkk";

fn goldens() -> Vec<Golden> {
    support::read(include_str!("golden/v1.json"))
}

fn store_requests() -> Vec<(&'static str, Request<'static>)> {
    let metadata = Metadata::from_encoded(b"\x81\xa1a\x01").unwrap();
    let set = Set {
        key: K,
        value: b"vvvv",
        retention: Retention::Long,
        namespace: Namespace { model: "m", compat_key: "c" },
        metadata,
        ttl_seconds: Some(1.5),
    };
    let set_default = Set {
        retention: Retention::Short,
        namespace: EMPTY,
        metadata: Metadata::EMPTY,
        ttl_seconds: None,
        ..set
    };
    let commit = SetCommit {
        lease_token: TicketId(1),
        key: K,
        length: 10,
        namespace: EMPTY,
        retention: "default",
        ttl_seconds: 0,
    };
    let batch_set = BatchSet {
        keys: Array::Slice(&[b"aaaaaaaa"]),
        values: Array::Slice(&[b"v"]),
        retentions: Array::Slice(&[Retention::Short]),
        metadatas: Array::Slice(&[Metadata::EMPTY]),
        namespace: EMPTY,
        ttls_seconds: Some(Array::Slice(&[None])),
    };
    vec![
        ("set", Request::Set(set)),
        ("set_default", Request::Set(set_default)),
        ("batch_set", Request::BatchSet(batch_set)),
        ("set_reserve", Request::SetReserve(SetReserve { size: 65_536 })),
        ("set_commit", Request::SetCommit(commit)),
        ("set_cancel", Request::SetCancel(SetCancel { lease_token: TicketId(1) })),
    ]
}

fn other_requests() -> Vec<(&'static str, Request<'static>)> {
    let hello = |prefers_shared_arena| {
        Request::Hello(Hello { client_id: "c1", protocol_version: 1, prefers_shared_arena })
    };
    let get = Get {
        key: &[0, 1, 2, 3, 4, 5, 6, 7],
        namespace: Namespace { model: "m", compat_key: "tp0of1_pp0of1" },
    };
    let two: Array<'_, &[u8]> = Array::Slice(&[b"aaaaaaaa", b"bbbbbbbb"]);
    let one: Array<'_, &[u8]> = Array::Slice(&[K]);
    let hint = PrefetchHint { keys: one, namespace: EMPTY, deadline_ms: 1000 };
    vec![
        ("hello", hello(false)),
        ("hello_arena", hello(true)),
        ("get", Request::Get(get)),
        ("batch_get", Request::BatchGet(BatchGet { keys: two, namespace: EMPTY })),
        ("prefetch_hint", Request::PrefetchHint(hint)),
        ("exists", Request::Exists(Exists { keys: one, namespace: EMPTY })),
        ("clear", Request::Clear(Clear { namespace: EMPTY })),
        ("stats", Request::Stats(Stats)),
    ]
}

fn store_replies() -> Vec<(&'static str, Reply<'static>)> {
    let reserved = SetReserveResponse {
        lease_token: TicketId(1),
        slot_id: 3,
        payload_offset: 208,
        payload_max_size: 48,
        reason: "",
    };
    let batch_ack = BatchSetAck {
        accepted: Array::Slice(&[true, false]),
        reasons: Array::Slice(&[None, Some("value_larger_than_store")]),
    };
    vec![
        ("set_ack", Reply::SetAck(Ok(()).into())),
        ("set_ack_reject", Reply::SetAck(SetAck::from(Err(Refusal::HigherPriority)))),
        ("batch_set_ack", Reply::BatchSetAck(batch_ack)),
        ("set_reserve_response", Reply::SetReserve(reserved)),
        ("set_reserve_reject", Reply::SetReserve(SetReserveResponse::refused(Refusal::NoArena))),
        ("set_commit_response", Reply::SetCommit(SetCommitResponse::from(Ok(())))),
        ("set_cancel_response", Reply::SetCancel(SetCancelResponse)),
    ]
}

fn lookup_replies() -> Vec<(&'static str, Reply<'static>)> {
    let hit = GetResponse { value: Some(b"hello"), retention: Some(Retention::Short) };
    let shared = GetSharedResponse {
        slot_offset: 1040,
        length: 5,
        version: 2,
        retention: Some(Retention::Long),
        slot_size: 1024,
    };
    let batch = BatchGetResponse {
        values: Array::Slice(&[Some(b"x"), None]),
        retentions: Array::Slice(&[Some(Retention::Short), None]),
    };
    let row = SharedHit { offset: 16, length: 5, version: 2, retention: Some(Retention::Short) };
    let rows = SharedRows::Slice(Box::leak(Box::new([Some(row), None])));
    vec![
        ("get_response_hit", Reply::Get(hit)),
        ("get_response_miss", Reply::Get(GetResponse::MISS)),
        ("get_shared_response", Reply::GetShared(shared)),
        ("batch_get_response", Reply::BatchGet(batch)),
        (
            "batch_get_shared_response",
            Reply::BatchGetShared(BatchGetSharedResponse { rows, slot_size: 1024 }),
        ),
        (
            "exists_response",
            Reply::Exists(ExistsResponse { present: Array::Slice(&[true, false]) }),
        ),
    ]
}

fn other_replies() -> Vec<(&'static str, Reply<'static>)> {
    let ack = HelloAck { server_id: "kvd-00000000", protocol_version: 1, shared_arena: None };
    let offer = ArenaOffer { size_bytes: 8 << 30, slot_size_bytes: 0, server_pid: 4242 };
    let stats = StatsResponse {
        entries: 1,
        host_bytes: 2,
        spillover_bytes: 3,
        long_bytes: 4,
        gets_total: 5,
        sets_total: 6,
        hits_total: 7,
        misses_total: 8,
        evictions_total: 9,
    };
    vec![
        ("hello_ack", Reply::HelloAck(ack)),
        ("hello_ack_arena", Reply::HelloAck(HelloAck { shared_arena: Some(offer), ..ack })),
        ("clear_ack", Reply::ClearAck(ClearAck { cleared_entries: 3 })),
        ("stats_response", Reply::Stats(stats)),
        ("error", Reply::Error(ErrorResponse { code: "bad_op", message: "x" })),
    ]
}

#[test]
fn every_recorded_frame_both_ways() {
    let requests: Vec<_> = store_requests().into_iter().chain(other_requests()).collect();
    let replies: Vec<_> = [store_replies(), lookup_replies(), other_replies()].concat();
    let goldens = goldens();
    assert_eq!(goldens.len(), requests.len() + replies.len());
    for golden in &goldens {
        let name = golden.name.as_str();
        let mut encoded = Vec::new();
        if golden.from_client {
            let (_, request) = requests.iter().find(|(known, _)| *known == name).unwrap();
            assert_eq!(Request::decode(golden.body()).as_ref(), Ok(request), "{name}");
            request.encode(&mut encoded);
        } else {
            let (_, reply) = replies.iter().find(|(known, _)| *known == name).unwrap();
            assert_eq!(Reply::decode(golden.body()).as_ref(), Ok(reply), "{name}");
            reply.encode(&mut encoded);
        }
        assert_eq!(encoded, golden.frame, "{name}");
        let split = frame::split(&encoded, frame::FRAME_BYTES_MAX_DEFAULT);
        assert_eq!(split, Ok((golden.body(), &[][..])), "{name}");
    }
}

#[test]
fn what_was_decoded_encodes_to_the_same_bytes() {
    for golden in goldens() {
        let mut encoded = Vec::new();
        if golden.from_client {
            Request::decode(golden.body()).unwrap().encode(&mut encoded);
        } else {
            Reply::decode(golden.body()).unwrap().encode(&mut encoded);
        }
        assert_eq!(encoded, golden.frame, "{}", golden.name);
    }
}

#[test]
fn values_sent_from_elsewhere_make_the_recorded_frames() {
    let goldens = goldens();
    let recorded = |name: &str| &goldens.iter().find(|golden| golden.name == name).unwrap().frame;
    let hit = InlineHit { len_bytes: 5, retention: Retention::Short };
    let mut out = Vec::new();
    hit.encode_head(&mut out, u32::MAX).unwrap();
    out.extend_from_slice(b"hello");
    hit.encode_tail(&mut out);
    assert_eq!(&out, recorded("get_response_hit"));

    let items = [Some(InlineHit { len_bytes: 1, retention: Retention::Short }), None];
    let batch = InlineBatch { items: &items };
    let mut out = Vec::new();
    batch.encode_head(&mut out, u32::MAX).unwrap();
    for item in items {
        InlineBatch::encode_item(&mut out, item);
        if item.is_some() {
            out.push(b'x');
        }
    }
    batch.encode_tail(&mut out);
    assert_eq!(&out, recorded("batch_get_response"));
}

#[test]
fn recorded_fields_are_what_the_file_says() {
    // The comparison itself is in `support::read`; a file that lies must not pass it.
    let lie = include_str!("golden/v1.json").replace("\"c1\"", "\"c2\"");
    assert!(std::panic::catch_unwind(|| support::read(&lie)).is_err());
}
