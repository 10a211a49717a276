//! Protocol 2, byte for byte: the messages written out here encode to the pinned frames, and the
//! pinned frames decode to these messages. A change of the wire shows here first.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod support;

use kvd_proto::arena_offer::ArenaOffer;
use kvd_proto::block_key::Namespace;
use kvd_proto::column::{ColumnBuf, KeyColumnBuf};
use kvd_proto::ids::{Epoch, LeaseId, SessionId, TicketId};
use kvd_proto::lineage::Lineage;
use kvd_proto::miss::MissReason;
use kvd_proto::pack::{Array, Pairs};
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_proto::tier::Tier;
use kvd_proto::v2::cancel::{Cancel, Cancelled};
use kvd_proto::v2::clear::{Clear, ClearScope, Cleared};
use kvd_proto::v2::commit::{Commit, CommittedRows};
use kvd_proto::v2::error::ErrorReply;
use kvd_proto::v2::fetch::{Fetch, FetchedRow, FetchedRows};
use kvd_proto::v2::hello::{Hello, HelloAck, Limits};
use kvd_proto::v2::locate::{Locate, LocatedRow, LocatedRows};
use kvd_proto::v2::prefetch::Prefetch;
use kvd_proto::v2::release::Release;
use kvd_proto::v2::reserve::{Reserve, ReservedRow, ReservedRows};
use kvd_proto::v2::resume::{Resume, Resumed};
use kvd_proto::v2::stats::{Stats, StatsReply};
use kvd_proto::v2::{Reply, Request, feature};

/// What the messages borrow from.
struct Parts {
    keys: KeyColumnBuf,
    ids: ColumnBuf<u64>,
    lens: ColumnBuf<u64>,
    lineage: Vec<u8>,
    located: LocatedRows,
    fetched: FetchedRows,
    reserved: ReservedRows,
    committed: CommittedRows,
    not_durable: CommittedRows,
    checksums: ColumnBuf<u64>,
    sessions: ColumnBuf<u64>,
    none: ColumnBuf<u64>,
}

impl Parts {
    fn new() -> Self {
        let mut keys = KeyColumnBuf::new();
        keys.push(&[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        keys.push(b"page.kv").unwrap();
        let lineage = Lineage {
            engine_hashes: vec![vec![0xaa; 4], vec![0xbb; 4]],
            router_hashes: vec![7],
            parent: Some(vec![0xcc; 4]),
            tokens_per_block: 16,
            lora: None,
            salt: Some("tenant".to_owned()),
        };
        let mut located = LocatedRows::default();
        located.push(LocatedRow::Present { tier: Tier::Host, len_bytes: 4096, load_us: 0 });
        located.push(LocatedRow::Miss(MissReason::Evicted(Retention::Short)));
        let mut fetched = FetchedRows::default();
        fetched.push(FetchedRow::Hit { lease: LeaseId(0x1_0000_0002), offset: 8192, len_bytes: 5 });
        fetched.push(FetchedRow::Miss(MissReason::OtherNamespace));
        let mut reserved = ReservedRows::default();
        reserved.push(ReservedRow::Granted { ticket: TicketId(0x1_0000_0003), offset: 4096 });
        reserved.push(ReservedRow::Refused(Refusal::ArenaFull));
        let mut committed = CommittedRows::default();
        committed.push(Ok(()));
        committed.push(Err(Refusal::UnknownTicket));
        let mut not_durable = CommittedRows::default();
        not_durable.push(Ok(()));
        not_durable.push(Err(Refusal::NotDurable));
        // The second block has none.
        let checksums = [0x4184_655c_c752_323a, 0].into_iter().collect();
        let sessions = [7, 8].into_iter().collect();
        let ids = [0x1_0000_0003, 4].into_iter().collect();
        let lens = [65_536, 0].into_iter().collect();
        let lineage = lineage.encode();
        Self {
            keys,
            ids,
            lens,
            lineage,
            located,
            fetched,
            reserved,
            committed,
            not_durable,
            checksums,
            sessions,
            none: ColumnBuf::new(),
        }
    }
}

const NAMESPACE: Namespace<'static> = Namespace { model: "m", compat_key: "tp0of1_pp0of1" };
/// All features of an earlier release.
const FEATURES_ONCE: [&str; 2] = [feature::CHECKSUM, feature::PREFETCH];
const EPOCH: Epoch = Epoch(0x0123_4567_89ab_cdef);

fn requests<'a>(parts: &'a Parts, lineages: &'a [Option<&'a [u8]>]) -> Vec<(&'a str, Request<'a>)> {
    let (keys, ids) = (parts.keys.as_column(), parts.ids.as_column());
    let hello = Hello {
        client_id: "c1",
        protocol_version: 2,
        prefers_shared_arena: true,
        features: Array::Slice(&[]),
    };
    let commit = Commit {
        id: 4,
        epoch: EPOCH,
        namespace: NAMESPACE,
        retention: Retention::Long,
        ttl_ms: Some(60_000),
        tickets: ids,
        keys,
        lens: parts.lens.as_column(),
        checksums: None,
        lineages: Some(Array::Slice(lineages)),
    };
    let bare = Commit { ttl_ms: None, lineages: None, ..commit };
    let summed = Commit { checksums: Some(parts.checksums.as_column()), ..bare };
    let none = parts.none.as_column();
    let over = Resume { id: 8, leases: none, tickets: none, sessions: parts.sessions.as_column() };
    let fetch = Fetch { id: 2, namespace: NAMESPACE, keys, prefix: false, deadline_ms: 250 };
    let reserve = Reserve { id: 3, retention: Retention::Short, lens: parts.lens.as_column() };
    vec![
        ("hello", Request::Hello(hello)),
        (
            "hello_features",
            Request::Hello(Hello { features: Array::Slice(&FEATURES_ONCE), ..hello }),
        ),
        (
            "hello_features_resume",
            Request::Hello(Hello { features: Array::Slice(&feature::ALL), ..hello }),
        ),
        ("locate", Request::Locate(Locate { id: 1, namespace: NAMESPACE, keys, prefix: true })),
        ("fetch", Request::Fetch(fetch)),
        ("prefetch", Request::Prefetch(Prefetch { namespace: NAMESPACE, keys, deadline_ms: 250 })),
        ("release", Request::Release(Release { epoch: EPOCH, leases: ids })),
        ("reserve", Request::Reserve(reserve)),
        ("commit", Request::Commit(commit)),
        ("commit_bare", Request::Commit(bare)),
        ("commit_checksums", Request::Commit(summed)),
        ("cancel", Request::Cancel(Cancel { id: 5, epoch: EPOCH, tickets: ids })),
        ("resume", Request::Resume(Resume { leases: ids, tickets: none, ..over })),
        ("resume_nothing", Request::Resume(over)),
        ("stats", Request::Stats(Stats { id: 7 })),
    ]
}

fn clears() -> Vec<(&'static str, Request<'static>)> {
    let clear = |scope| Request::Clear(Clear { id: 6, scope });
    vec![
        ("clear_everything", clear(ClearScope::Everything)),
        ("clear_model", clear(ClearScope::Model("m"))),
        ("clear_namespace", clear(ClearScope::Namespace(NAMESPACE))),
    ]
}

fn replies(parts: &Parts) -> Vec<(&str, Reply<'_>)> {
    let limits = Limits {
        keys_max: 4096,
        frame_bytes_max: 16 << 20,
        leases_max: 65_536,
        tickets_max: 4096,
        in_flight_bytes_max: 1 << 33,
        value_bytes_max: 1 << 30,
    };
    let ack = HelloAck {
        server_id: "kvd-00000000",
        protocol_version: 2,
        shared_arena: None,
        epoch: EPOCH,
        session: SessionId(9),
        features: Array::Slice(&[]),
        limits,
    };
    let offer = ArenaOffer { size_bytes: 8 << 30, slot_size_bytes: 0, server_pid: 4242 };
    let error = ErrorReply { id: Some(2), code: "stale_epoch", message: "epoch 1 is over" };
    let values = Pairs::Slice(&[("entries", 1), ("hits_total", 1 << 40)]);
    vec![
        ("hello_ack", Reply::HelloAck(ack)),
        (
            "hello_ack_features",
            Reply::HelloAck(HelloAck { features: Array::Slice(&FEATURES_ONCE), ..ack }),
        ),
        (
            "hello_ack_features_resume",
            Reply::HelloAck(HelloAck { features: Array::Slice(&feature::ALL), ..ack }),
        ),
        ("hello_ack_arena", Reply::HelloAck(HelloAck { shared_arena: Some(offer), ..ack })),
        ("located", Reply::Located(parts.located.reply(1))),
        ("fetched", Reply::Fetched(parts.fetched.reply(2))),
        ("reserved", Reply::Reserved(parts.reserved.reply(3))),
        ("committed", Reply::Committed(parts.committed.reply(4))),
        ("committed_not_durable", Reply::Committed(parts.not_durable.reply(4))),
        ("cancelled", Reply::Cancelled(Cancelled { id: 5, cancelled: 1 })),
        ("resumed", Reply::Resumed(Resumed { id: 8, rights: 2, sessions: 1 })),
        ("cleared", Reply::Cleared(Cleared { id: 6, rows: 3 })),
        ("stats_reply", Reply::Stats(StatsReply { id: 7, values })),
        ("error", Reply::Error(error)),
        ("error_without_id", Reply::Error(ErrorReply { id: None, ..error })),
    ]
}

#[test]
fn every_pinned_frame_both_ways() {
    let parts = Parts::new();
    let lineages = [Some(parts.lineage.as_slice()), None];
    let requests = [requests(&parts, &lineages), clears()].concat();
    let replies = replies(&parts);
    let goldens = support::read(include_str!("golden/v2.json"));
    assert_eq!(goldens.len(), requests.len() + replies.len());
    for golden in &goldens {
        let name = golden.name.as_str();
        let mut encoded = Vec::new();
        if golden.from_client {
            let (_, request) = requests.iter().find(|(known, _)| *known == name).unwrap();
            request.encode(&mut encoded);
            assert_eq!(Request::decode(golden.body()).as_ref(), Ok(request), "{name}");
        } else {
            let (_, reply) = replies.iter().find(|(known, _)| *known == name).unwrap();
            reply.encode(&mut encoded);
            assert_eq!(Reply::decode(golden.body()).as_ref(), Ok(reply), "{name}");
        }
        assert_eq!(support::to_hex(&encoded), support::to_hex(&golden.frame), "{name}");
    }
}
