//! Properties of the codecs: what is encoded decodes to itself, arbitrary bytes never panic, and
//! the reader agrees with another msgpack implementation about what is well formed.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use kvd_proto::arena_offer::ArenaOffer;
use kvd_proto::block_key::Namespace;
use kvd_proto::column::{ColumnBuf, KeyColumnBuf};
use kvd_proto::ids::{Epoch, LeaseId, SessionId, TicketId};
use kvd_proto::lineage::Lineage;
use kvd_proto::malformed::Malformed;
use kvd_proto::miss::MissReason;
use kvd_proto::pack::{Array, Metadata, NESTING_MAX, Pairs, Reader};
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_proto::tier::Tier;
use kvd_proto::{v1, v2};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const UNUSED_MARKER: u8 = 0xc1;
const NIL: u8 = 0xc0;

fn class() -> impl Strategy<Value = Retention> {
    select(&Retention::ALL[..])
}

fn bytes(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..longest)
}

/// Lengths on both sides of every msgpack length form.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/é]{0,40}", (200_usize..300).prop_map(|len| "x".repeat(len))]
}

fn v1_request_returns(request: v1::Request<'_>) {
    let mut out = vec![0xee];
    request.encode(&mut out);
    let (body, rest) = kvd_proto::frame::split(&out[1..], u32::MAX).unwrap();
    assert_eq!((v1::Request::decode(body), rest), (Ok(request), &[][..]));
}

fn v1_reply_returns(reply: v1::Reply<'_>) {
    let mut out = Vec::new();
    reply.encode(&mut out);
    assert_eq!(v1::Reply::decode(&out[4..]), Ok(reply));
}

fn v2_request_returns(request: v2::Request<'_>) {
    let mut out = vec![0xee];
    request.encode(&mut out);
    let limit = kvd_proto::frame::V2_FRAME_BYTES_MAX;
    let (body, rest) = kvd_proto::frame::split(&out[1..], limit).unwrap();
    assert_eq!((v2::Request::decode(body), rest), (Ok(request), &[][..]));
}

fn v2_reply_returns(reply: v2::Reply<'_>) {
    let mut out = Vec::new();
    reply.encode(&mut out);
    assert_eq!(v2::Reply::decode(&out[4..]), Ok(reply));
}

proptest! {
    #[test]
    fn v1_single_key_requests_return(
        key in bytes(300), value in bytes(70_000), retention in class(), model in text(),
        compat_key in text(), ttl in option::of(any::<f64>().prop_filter("nan", |t| !t.is_nan())),
        number in any::<i64>(), token in any::<u64>(), word in text(), flag in any::<bool>(),
    ) {
        let namespace = Namespace { model: &model, compat_key: &compat_key };
        let metadata = Metadata::from_encoded(b"\x82\xa1a\x91\xc0\xa1b\x80").unwrap();
        let set = v1::set::Set {
            key: &key, value: &value, retention, namespace, metadata, ttl_seconds: ttl,
        };
        v1_request_returns(v1::Request::Set(set));
        v1_request_returns(v1::Request::Get(v1::get::Get { key: &key, namespace }));
        v1_request_returns(v1::Request::Clear(v1::clear::Clear { namespace }));
        v1_request_returns(v1::Request::SetCommit(v1::set_commit::SetCommit {
            lease_token: TicketId(token), key: &key, length: number, namespace,
            retention: &word, ttl_seconds: number,
        }));
        v1_request_returns(v1::Request::SetReserve(v1::set_reserve::SetReserve { size: number }));
        v1_request_returns(v1::Request::SetCancel(v1::set_cancel::SetCancel {
            lease_token: TicketId(token),
        }));
        v1_request_returns(v1::Request::Hello(v1::hello::Hello {
            client_id: &word, protocol_version: number, prefers_shared_arena: flag,
        }));
    }

    #[test]
    fn v1_batches_return(
        items in vec((bytes(20), bytes(300), class(), option::of(any::<i32>())), 0..40),
        model in text(), deadline_ms in any::<i64>(),
    ) {
        let namespace = Namespace { model: &model, compat_key: "" };
        let keys: Vec<&[u8]> = items.iter().map(|item| item.0.as_slice()).collect();
        let values: Vec<&[u8]> = items.iter().map(|item| item.1.as_slice()).collect();
        let retentions: Vec<Retention> = items.iter().map(|item| item.2).collect();
        let ttls: Vec<Option<f64>> = items.iter().map(|item| item.3.map(f64::from)).collect();
        let metadatas = vec![Metadata::EMPTY; items.len()];
        let keys = Array::Slice(&keys);
        let batch = v1::batch_set::BatchSet {
            keys, values: Array::Slice(&values), retentions: Array::Slice(&retentions),
            metadatas: Array::Slice(&metadatas), namespace,
            ttls_seconds: Some(Array::Slice(&ttls)),
        };
        prop_assert_eq!(batch.items().count(), items.len());
        v1_request_returns(v1::Request::BatchSet(batch));
        v1_request_returns(v1::Request::BatchGet(v1::batch_get::BatchGet { keys, namespace }));
        v1_request_returns(v1::Request::Exists(v1::exists::Exists { keys, namespace }));
        v1_request_returns(v1::Request::PrefetchHint(v1::prefetch_hint::PrefetchHint {
            keys, namespace, deadline_ms,
        }));
    }

    #[test]
    fn v1_replies_return(
        rows in vec(option::of((bytes(300), any::<u32>(), 0..=i64::MAX as u64, class())), 0..40),
        number in any::<u64>(), slot in any::<i64>(), word in text(), flag in any::<bool>(),
    ) {
        let values: Vec<Option<&[u8]>> =
            rows.iter().map(|row| row.as_ref().map(|row| row.0.as_slice())).collect();
        let retentions: Vec<Option<Retention>> =
            rows.iter().map(|row| row.as_ref().map(|row| row.3)).collect();
        let shared: Vec<Option<v1::batch_get::SharedHit>> = rows.iter().map(|row| {
            row.as_ref().map(|row| v1::batch_get::SharedHit {
                offset: row.2, length: number, version: row.1, retention: Some(row.3),
            })
        }).collect();
        let present: Vec<bool> = rows.iter().map(Option::is_some).collect();
        let reasons: Vec<Option<&str>> =
            present.iter().map(|present| (!present).then_some(word.as_str())).collect();
        let present = Array::Slice(present.as_slice());
        let inline = v1::batch_get::BatchGetResponse {
            values: Array::Slice(&values), retentions: Array::Slice(&retentions),
        };
        v1_reply_returns(v1::Reply::BatchGet(inline));
        v1_reply_returns(v1::Reply::BatchGetShared(v1::batch_get::BatchGetSharedResponse {
            rows: v1::batch_get::SharedRows::Slice(&shared), slot_size: number,
        }));
        v1_reply_returns(v1::Reply::BatchSetAck(v1::batch_set::BatchSetAck {
            accepted: present, reasons: Array::Slice(&reasons),
        }));
        v1_reply_returns(v1::Reply::Exists(v1::exists::ExistsResponse { present }));
        v1_reply_returns(v1::Reply::SetReserve(v1::set_reserve::SetReserveResponse {
            lease_token: TicketId(number), slot_id: slot, payload_offset: number,
            payload_max_size: number, reason: &word,
        }));
        v1_reply_returns(v1::Reply::SetCommit(v1::set_commit::SetCommitResponse {
            accepted: flag, reason: &word,
        }));
        v1_reply_returns(v1::Reply::SetAck(v1::set::SetAck { accepted: flag, reason: Some(&word) }));
        v1_reply_returns(v1::Reply::ClearAck(v1::clear::ClearAck { cleared_entries: number }));
        for value in values {
            v1_reply_returns(v1::Reply::Get(v1::get::GetResponse { value, retention: None }));
        }
    }

    #[test]
    fn inline_answers_in_pieces_are_the_whole_answers(
        rows in vec(option::of((bytes(70_000), class())), 0..40),
    ) {
        let values: Vec<Option<&[u8]>> =
            rows.iter().map(|row| row.as_ref().map(|row| row.0.as_slice())).collect();
        let retentions: Vec<Option<Retention>> =
            rows.iter().map(|row| row.as_ref().map(|row| row.1)).collect();
        let mut whole = Vec::new();
        v1::batch_get::BatchGetResponse {
            values: Array::Slice(&values), retentions: Array::Slice(&retentions),
        }.encode(&mut whole);
        let items: Vec<Option<v1::get::InlineHit>> = rows.iter().map(|row| {
            row.as_ref().map(|row| v1::get::InlineHit {
                len_bytes: u32::try_from(row.0.len()).unwrap(), retention: row.1,
            })
        }).collect();
        let batch = v1::batch_get::InlineBatch { items: &items };
        let body_bytes = u32::try_from(whole.len() - 4).unwrap();
        let mut pieces = Vec::new();
        let refused = batch.encode_head(&mut pieces, body_bytes - 1);
        let (len_bytes, limit_bytes) = (body_bytes.into(), u64::from(body_bytes - 1));
        prop_assert_eq!(refused, Err(Malformed::FrameTooLarge { len_bytes, limit_bytes }));
        prop_assert!(pieces.is_empty());
        batch.encode_head(&mut pieces, body_bytes).unwrap();
        for (item, value) in items.iter().zip(&values) {
            v1::batch_get::InlineBatch::encode_item(&mut pieces, *item);
            pieces.extend_from_slice(value.unwrap_or_default());
        }
        batch.encode_tail(&mut pieces);
        prop_assert!(pieces == whole);
        for (item, value) in items.iter().zip(&values) {
            let (Some(hit), Some(value)) = (item, value) else { continue };
            let mut whole = Vec::new();
            v1::get::GetResponse { value: Some(value), retention: Some(hit.retention) }
                .encode(&mut whole);
            let mut pieces = Vec::new();
            hit.encode_head(&mut pieces, u32::MAX).unwrap();
            pieces.extend_from_slice(value);
            hit.encode_tail(&mut pieces);
            prop_assert!(pieces == whole);
        }
    }

    #[test]
    fn v2_requests_return(
        rows in vec((bytes(257), any::<u64>(), any::<u64>(), any::<bool>()), 0..60),
        model in text(), compat_key in text(), id in any::<u64>(), epoch in any::<u64>(),
        retention in class(), deadline_ms in any::<u32>(), prefix in any::<bool>(),
        ttl in option::of(1..=u64::MAX), with_lineages in any::<bool>(),
        with_checksums in any::<bool>(),
    ) {
        let namespace = Namespace { model: &model, compat_key: &compat_key };
        let mut buf = KeyColumnBuf::new();
        for row in &rows {
            buf.push(&row.0).unwrap();
        }
        let keys = buf.as_column();
        prop_assert!(keys.iter().eq(rows.iter().map(|row| row.0.as_slice())));
        prop_assert!(keys.iter().rev().eq(rows.iter().rev().map(|row| row.0.as_slice())));
        let tickets: ColumnBuf<u64> = rows.iter().map(|row| row.1).collect();
        let lens: ColumnBuf<u64> = rows.iter().map(|row| row.2).collect();
        let (tickets, lens, epoch) = (tickets.as_column(), lens.as_column(), Epoch(epoch));
        let lineage = Lineage { tokens_per_block: 16, ..Lineage::default() }.encode();
        let lineages: Vec<Option<&[u8]>> =
            rows.iter().map(|row| row.3.then_some(lineage.as_slice())).collect();
        let lineages = with_lineages.then_some(Array::Slice(lineages.as_slice()));
        let checksums = with_checksums.then_some(lens);
        v2_request_returns(v2::Request::Locate(v2::locate::Locate { id, namespace, keys, prefix }));
        v2_request_returns(v2::Request::Fetch(v2::fetch::Fetch {
            id, namespace, keys, prefix, deadline_ms,
        }));
        v2_request_returns(v2::Request::Release(v2::release::Release { epoch, leases: tickets }));
        v2_request_returns(v2::Request::Reserve(v2::reserve::Reserve { id, retention, lens }));
        let commit = v2::commit::Commit {
            id, epoch, namespace, retention, ttl_ms: ttl, tickets, keys, lens, checksums, lineages,
        };
        let given = rows.iter().map(|row| (with_checksums && row.2 != 0).then_some(row.2));
        prop_assert!(commit.checksums_given().eq(given));
        v2_request_returns(v2::Request::Commit(commit));
        v2_request_returns(v2::Request::Prefetch(v2::prefetch::Prefetch {
            namespace, keys, deadline_ms,
        }));
        v2_request_returns(v2::Request::Cancel(v2::cancel::Cancel { id, epoch, tickets }));
        v2_request_returns(v2::Request::Resume(v2::resume::Resume {
            id, leases: tickets, tickets: lens, sessions: tickets,
        }));
        v2_request_returns(v2::Request::Stats(v2::stats::Stats { id }));
    }

    #[test]
    fn v2_replies_return(
        rows in vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>()), 0..60),
        miss in option::of(select(&MissReason::ALL[..])), tier in select(&Tier::ALL[..]),
        refusal in option::of(select(&Refusal::ALL[..])), id in any::<u64>(), word in text(),
        size_bytes in any::<u64>(), server_pid in any::<u32>(),
    ) {
        let mut located = v2::locate::LocatedRows::default();
        let mut fetched = v2::fetch::FetchedRows::default();
        let mut reserved = v2::reserve::ReservedRows::default();
        let mut committed = v2::commit::CommittedRows::default();
        for &(first, offset, len_bytes, load_us) in &rows {
            located.push(v2::locate::LocatedRow::Present { tier, len_bytes, load_us });
            let lease = LeaseId(first);
            fetched.push(v2::fetch::FetchedRow::Hit { lease, offset, len_bytes });
            let ticket = TicketId(first);
            reserved.push(v2::reserve::ReservedRow::Granted { ticket, offset });
            committed.push(refusal.map_or(Ok(()), Err));
        }
        if let Some(reason) = miss {
            located.push(v2::locate::LocatedRow::Miss(reason));
            fetched.push(v2::fetch::FetchedRow::Miss(reason));
            prop_assert_eq!(fetched.reply(id).row(rows.len()),
                Some(v2::fetch::FetchedRow::Miss(reason)));
        }
        prop_assert_eq!(fetched.reply(id).rows().count(), fetched.reply(id).len());
        v2_reply_returns(v2::Reply::Located(located.reply(id)));
        v2_reply_returns(v2::Reply::Fetched(fetched.reply(id)));
        v2_reply_returns(v2::Reply::Reserved(reserved.reply(id)));
        v2_reply_returns(v2::Reply::Committed(committed.reply(id)));
        let values: Vec<(&str, u64)> = rows.iter().map(|row| (word.as_str(), row.0)).collect();
        let values = Pairs::Slice(&values);
        v2_reply_returns(v2::Reply::Stats(v2::stats::StatsReply { id, values }));
        let offer = ArenaOffer { size_bytes, slot_size_bytes: id, server_pid };
        v2_reply_returns(v2::Reply::HelloAck(v2::hello::HelloAck {
            server_id: &word, protocol_version: 2, shared_arena: Some(offer), epoch: Epoch(id),
            session: SessionId(id), features: Array::Slice(&[word.as_str()]),
            limits: v2::hello::Limits {
                keys_max: id, frame_bytes_max: 1, leases_max: 2, tickets_max: 3,
                in_flight_bytes_max: 4, value_bytes_max: size_bytes,
            },
        }));
    }

    #[test]
    fn lineages_return(
        engine_hashes in vec(bytes(40), 0..50), router_hashes in vec(any::<u64>(), 0..50),
        parent in option::of(bytes(40)), tokens_per_block in any::<u32>(),
        lora in option::of(text()), salt in option::of(text()),
    ) {
        let lineage =
            Lineage { engine_hashes, router_hashes, parent, tokens_per_block, lora, salt };
        prop_assert_eq!(Lineage::decode(&lineage.encode()), Ok(lineage));
    }

    #[test]
    fn arbitrary_bytes_never_panic(body in bytes(400)) {
        drop(v1::Request::decode(&body));
        drop(v1::Reply::decode(&body));
        drop(v2::Request::decode(&body));
        drop(v2::Reply::decode(&body));
        drop(Lineage::decode(&body));
        drop(v1::set::Tail::decode(&body, u32::MAX));
        let limit = u32::try_from(body.len()).unwrap();
        let _state = v1::set::Head::parse(&body, limit);
        drop(kvd_proto::frame::split(&body, 300));
    }

    #[test]
    fn the_reader_agrees_with_another_implementation(
        value in tree(), cut in any::<prop::sample::Index>(), flip in any::<u8>(),
    ) {
        let mut body = Vec::new();
        rmpv::encode::write_value(&mut body, &value).unwrap();
        prop_assert_eq!(ours(&body), Some(body.len()));
        let at = cut.index(body.len());
        prop_assert_eq!(ours(&body[..at]), None);
        body[at] ^= flip;
        // The marker that msgpack never uses is malformed to us (a test of the reader shows it)
        // and nil to the other, so they are compared without it.
        body.iter_mut().filter(|byte| **byte == UNUSED_MARKER).for_each(|byte| *byte = NIL);
        prop_assert_eq!(ours(&body), theirs(&body));
    }

    #[test]
    fn a_batch_that_is_too_long_is_refused_by_its_first_column(extra in 1_usize..50) {
        let count = kvd_proto::column::KEYS_MAX + extra;
        let leases: ColumnBuf<u64> = (0..count as u64).collect();
        let mut out = Vec::new();
        v2::release::Release { epoch: Epoch(1), leases: leases.as_column() }.encode(&mut out);
        let rejected = v2::Request::decode(&out[4..]).unwrap_err();
        prop_assert_eq!(rejected.reason, Malformed::TooMany {
            field: "leases", count: count as u64, limit: 4096,
        });
    }
}

/// Any msgpack value with text keys, nested a little.
fn tree() -> impl Strategy<Value = rmpv::Value> {
    let leaf = prop_oneof![
        Just(rmpv::Value::Nil),
        any::<bool>().prop_map(rmpv::Value::from),
        any::<u64>().prop_map(rmpv::Value::from),
        any::<i64>().prop_map(rmpv::Value::from),
        any::<f32>().prop_map(rmpv::Value::from),
        any::<f64>().prop_map(rmpv::Value::from),
        text().prop_map(rmpv::Value::from),
        bytes(300).prop_map(rmpv::Value::from),
        (any::<i8>(), bytes(20)).prop_map(|(kind, bytes)| rmpv::Value::Ext(kind, bytes)),
    ];
    leaf.prop_recursive(4, 64, 20, |inner| {
        let named = (text().prop_map(rmpv::Value::from), inner.clone());
        prop_oneof![
            vec(inner, 0..20).prop_map(rmpv::Value::Array),
            vec(named, 0..20).prop_map(rmpv::Value::Map),
        ]
    })
}

/// Bytes that our reader takes for one value; none if it is not well formed.
fn ours(body: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(body);
    reader.value().ok()?;
    Some(body.len() - reader.rest().len())
}

/// The same by the other implementation, with our two rules on top: text is UTF-8, and map keys
/// are text.
fn theirs(body: &[u8]) -> Option<usize> {
    fn is_ours(value: &rmpv::Value) -> bool {
        match value {
            rmpv::Value::String(text) => text.is_str(),
            rmpv::Value::Array(items) => items.iter().all(is_ours),
            rmpv::Value::Map(entries) => {
                entries.iter().all(|(key, value)| key.as_str().is_some() && is_ours(value))
            }
            rmpv::Value::Nil
            | rmpv::Value::Boolean(_)
            | rmpv::Value::Integer(_)
            | rmpv::Value::F32(_)
            | rmpv::Value::F64(_)
            | rmpv::Value::Binary(_)
            | rmpv::Value::Ext(..) => true,
        }
    }
    let mut rest = body;
    let depth = NESTING_MAX;
    let value = rmpv::decode::read_value_with_max_depth(&mut rest, depth).ok()?;
    is_ours(&value).then(|| body.len() - rest.len())
}

#[test]
fn unknown_codes_of_a_later_release_read_as_shed() {
    let mut out = Vec::new();
    let mut rows = v2::fetch::FetchedRows::default();
    rows.push(v2::fetch::FetchedRow::Miss(MissReason::Shed));
    rows.reply(1).encode(&mut out);
    let at = out.iter().position(|byte| *byte == MissReason::Shed.code()).unwrap();
    out[at] = 0x7e;
    let Ok(v2::Reply::Fetched(fetched)) = v2::Reply::decode(&out[4..]) else { panic!("refused") };
    assert_eq!(fetched.row(0), Some(v2::fetch::FetchedRow::Miss(MissReason::Shed)));
}

#[test]
fn long_keys_and_names_are_refused_before_they_are_kept() {
    let model = "m".repeat(1025);
    let mut keys = KeyColumnBuf::new();
    keys.push(&[0; 256]).unwrap();
    let locate = |model| v2::locate::Locate {
        id: 9,
        namespace: Namespace { model, compat_key: "" },
        keys: keys.as_column(),
        prefix: false,
    };
    let mut out = Vec::new();
    locate(&model).encode(&mut out);
    let rejected = v2::Request::decode(&out[4..]).unwrap_err();
    assert_eq!((rejected.id, rejected.reason.code()), (Some(9), "bad_field"));
    assert!(!rejected.reason.ends_session());
    v2_request_returns(v2::Request::Locate(locate(&model[..1024])));
}

#[test]
fn checksums_that_do_not_fit_their_tickets_are_refused() {
    let mut keys = KeyColumnBuf::new();
    keys.push(b"k").unwrap();
    let one: ColumnBuf<u64> = [1].into_iter().collect();
    let two: ColumnBuf<u64> = [1, 2].into_iter().collect();
    let commit = v2::commit::Commit {
        id: 1,
        epoch: Epoch(1),
        namespace: Namespace { model: "", compat_key: "" },
        retention: Retention::Long,
        ttl_ms: None,
        tickets: one.as_column(),
        keys: keys.as_column(),
        lens: one.as_column(),
        checksums: Some(two.as_column()),
        lineages: None,
    };
    let mut out = Vec::new();
    commit.encode(&mut out);
    let rejected = v2::Request::decode(&out[4..]).unwrap_err();
    let reason = Malformed::LengthMismatch { field: "checksums", expected: 1, found: 2 };
    assert_eq!((rejected.id, rejected.reason), (Some(1), reason));
    let fits = v2::commit::Commit { checksums: Some(one.as_column()), ..commit };
    v2_request_returns(v2::Request::Commit(fits));
    assert!(fits.checksums_given().eq([Some(1)]));
    let without = v2::commit::Commit { checksums: None, ..commit };
    assert!(without.checksums_given().eq([None]));
}
