//! What copies between the arena and a process's own memory cost, by size, as the client library makes them.

#![expect(clippy::expect_used, reason = "a bench without an arena has nothing to measure")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kvd_benches::floor::copy::{PrivateArena, Way};
use kvd_benches::keys;
use kvd_shm::copy::Method;

const ARENA_BYTES: usize = 512 << 20;
const SIZES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 4 << 20];

fn copies(criterion: &mut Criterion) {
    let arena = PrivateArena::new(ARENA_BYTES as u64).expect("memory for an arena");
    for (direction, reads) in [("out of the arena", true), ("into the arena", false)] {
        let mut group = criterion.benchmark_group(direction);
        for len in SIZES {
            // Places in an order that no cache and no prefetcher guesses.
            let mut places = keys::shuffled(ARENA_BYTES / len, len as u64).into_iter().cycle();
            let mut place = || (places.next().unwrap_or(0) * len) as u64;
            let mut buffer = vec![1; len];
            group.throughput(Throughput::Bytes(len as u64));
            let name = BenchmarkId::from_parameter(format!("{} KiB", len >> 10));
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    if reads {
                        arena.copy_out(
                            Way::Library(Method::to_copy_out(len)),
                            place(),
                            &mut buffer,
                        );
                    } else {
                        arena.copy_in(Way::Library(Method::to_copy_in(len)), place(), &buffer);
                    }
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, copies);
criterion_main!(benches);
