//! What a batch of 64 keys costs to write and to read, without a socket: a protocol-2 fetch and its answer.

#![expect(clippy::expect_used, reason = "a bench that cannot encode has nothing to measure")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use kvd_benches::keys::{self, NAMESPACE};
use kvd_proto::column::KeyColumnBuf;
use kvd_proto::frame::PREFIX_BYTES;
use kvd_proto::ids::LeaseId;
use kvd_proto::v2::fetch::{Fetch, FetchedRow, FetchedRows};
use kvd_proto::v2::{Reply, Request};

const KEYS: u64 = 64;

fn codec(criterion: &mut Criterion) {
    let mut column = KeyColumnBuf::new();
    let mut rows = FetchedRows::default();
    for number in 0..KEYS {
        column.push(&keys::key(number)).expect("a key of 32 bytes");
        rows.push(FetchedRow::Hit {
            lease: LeaseId(number),
            offset: number << 20,
            len_bytes: 4096,
        });
    }
    let fetch = Fetch {
        id: 1,
        namespace: NAMESPACE,
        keys: column.as_column(),
        prefix: false,
        deadline_ms: 1000,
    };
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    fetch.encode(&mut request);
    rows.reply(1).encode(&mut reply);

    let mut group = criterion.benchmark_group("codec, 64 keys");
    let mut out = Vec::new();
    group.bench_function("fetch: encode", |bencher| {
        bencher.iter(|| {
            out.clear();
            black_box(&fetch).encode(&mut out);
        });
    });
    group.bench_function("fetch: decode", |bencher| {
        bencher.iter(|| {
            let Ok(Request::Fetch(fetch)) = Request::decode(black_box(&request[PREFIX_BYTES..]))
            else {
                return 0;
            };
            fetch.keys.iter().map(<[u8]>::len).sum::<usize>()
        });
    });
    group.bench_function("fetched: encode", |bencher| {
        bencher.iter(|| {
            out.clear();
            black_box(&rows).reply(1).encode(&mut out);
        });
    });
    group.bench_function("fetched: decode", |bencher| {
        bencher.iter(|| {
            let Ok(Reply::Fetched(fetched)) = Reply::decode(black_box(&reply[PREFIX_BYTES..]))
            else {
                return 0;
            };
            fetched.rows().filter(|row| matches!(row, FetchedRow::Hit { .. })).count()
        });
    });
    group.finish();
}

criterion_group!(benches, codec);
criterion_main!(benches);
