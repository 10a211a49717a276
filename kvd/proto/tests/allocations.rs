//! The hot codecs allocate nothing once their buffers have grown.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use kvd_proto::block_key::Namespace;
use kvd_proto::column::{ColumnBuf, KEYS_MAX, KeyColumnBuf};
use kvd_proto::ids::{Epoch, LeaseId, TicketId};
use kvd_proto::lineage::Lineage;
use kvd_proto::pack::Array;
use kvd_proto::retention::Retention;
use kvd_proto::tier::Tier;
use kvd_proto::v1;
use kvd_proto::v2;

const NAMESPACE: Namespace<'static> = Namespace { model: "m", compat_key: "tp0of1_pp0of1" };

/// Allocations while every hot message is encoded into `out` and decoded again.
struct Traffic {
    keys: KeyColumnBuf,
    numbers: ColumnBuf<u64>,
    lineage: Vec<u8>,
    located: v2::locate::LocatedRows,
    fetched: v2::fetch::FetchedRows,
    reserved: v2::reserve::ReservedRows,
    committed: v2::commit::CommittedRows,
}

impl Traffic {
    fn new() -> Self {
        let lineage = Lineage { engine_hashes: vec![vec![7; 32]; 16], ..Lineage::default() };
        Self {
            keys: KeyColumnBuf::new(),
            numbers: ColumnBuf::new(),
            lineage: lineage.encode(),
            located: v2::locate::LocatedRows::default(),
            fetched: v2::fetch::FetchedRows::default(),
            reserved: v2::reserve::ReservedRows::default(),
            committed: v2::commit::CommittedRows::default(),
        }
    }

    fn fill(&mut self) {
        self.keys.clear();
        self.numbers.clear();
        self.located.clear();
        self.fetched.clear();
        self.reserved.clear();
        self.committed.clear();
        for number in 0..KEYS_MAX as u64 {
            self.keys.push(&number.to_le_bytes()).unwrap();
            self.numbers.push(number);
            let (tier, offset, len_bytes) = (Tier::Host, number, 4096);
            self.located.push(v2::locate::LocatedRow::Present { tier, len_bytes, load_us: 0 });
            let lease = LeaseId(number);
            self.fetched.push(v2::fetch::FetchedRow::Hit { lease, offset, len_bytes });
            let ticket = TicketId(number);
            self.reserved.push(v2::reserve::ReservedRow::Granted { ticket, offset });
            self.committed.push(Ok(()));
        }
    }

    fn requests(&self, out: &mut Vec<u8>) {
        let (keys, numbers, id) = (self.keys.as_column(), self.numbers.as_column(), 1);
        let (namespace, retention, epoch) = (NAMESPACE, Retention::Long, Epoch(1));
        let lineages = [Some(self.lineage.as_slice()); KEYS_MAX];
        for request in [
            v2::Request::Locate(v2::locate::Locate { id, namespace, keys, prefix: true }),
            v2::Request::Fetch(v2::fetch::Fetch {
                id,
                namespace,
                keys,
                prefix: true,
                deadline_ms: 5,
            }),
            v2::Request::Prefetch(v2::prefetch::Prefetch { namespace, keys, deadline_ms: 5 }),
            v2::Request::Release(v2::release::Release { epoch, leases: numbers }),
            v2::Request::Reserve(v2::reserve::Reserve { id, retention, lens: numbers }),
            v2::Request::Commit(v2::commit::Commit {
                id,
                epoch,
                namespace,
                retention,
                ttl_ms: None,
                tickets: numbers,
                keys,
                lens: numbers,
                checksums: Some(numbers),
                lineages: Some(Array::Slice(&lineages)),
            }),
        ] {
            out.clear();
            request.encode(out);
            let Ok(decoded) = v2::Request::decode(&out[4..]) else { panic!("refused") };
            assert!(decoded == request);
        }
        let get = v1::Request::Get(v1::get::Get { key: b"12345678", namespace });
        out.clear();
        get.encode(out);
        assert_eq!(v1::Request::decode(&out[4..]), Ok(get));
    }

    fn replies(&self, out: &mut Vec<u8>) {
        for reply in [
            v2::Reply::Located(self.located.reply(1)),
            v2::Reply::Fetched(self.fetched.reply(1)),
            v2::Reply::Reserved(self.reserved.reply(1)),
            v2::Reply::Committed(self.committed.reply(1)),
        ] {
            out.clear();
            reply.encode(out);
            let Ok(decoded) = v2::Reply::decode(&out[4..]) else { panic!("refused") };
            assert!(decoded == reply);
        }
    }
}

#[test]
fn hot_messages_allocate_nothing_once_buffers_have_grown() {
    let (mut traffic, mut out) = (Traffic::new(), Vec::new());
    let mut round = || {
        allocation_counter::measure(|| {
            traffic.fill();
            traffic.requests(&mut out);
            traffic.replies(&mut out);
        })
    };
    assert!(round().count_total > 0, "the first round grows the buffers, and is seen");
    assert_eq!(round().count_total, 0);
}
