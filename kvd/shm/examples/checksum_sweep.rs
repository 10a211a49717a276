//! Measures checksums of blocks in the arena: the source of the figures in `checksum/mod.rs`.
//!
//! `taskset -c 0 cargo run --release --example checksum_sweep -p kvd-shm`
//!
//! 1 MiB and 4 MiB at random places of a 1 GiB arena (cold) and at one place again and again (warm). *slice*: the
//! checksum alone, of the same bytes in memory of our own. *arena*: of arena bytes, through the small buffer.
//! *copy*: into the arena. *copy and sum*: in one
//! pass; *foreign*: the same, from memory that others may write. *copy, then sum*: in two. The source of the copies is warm.
//! Each figure is the median of nine rounds in GB/s; the ways take turns within a round.

use std::io::{self, Write};
use std::time::Instant;

use kvd_shm::arena::{Arena, ArenaConfig};
use kvd_shm::checksum::Checksum;
use kvd_shm::numa::NumaPolicy;

const ARENA_BYTES: usize = 1 << 30;
const ROUNDS: usize = 9;
const BYTES_PER_ROUND: usize = 256 << 20;
const WAYS: [&str; 6] = ["slice", "arena", "copy", "copy and sum", "foreign", "copy, then sum"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = ARENA_BYTES as u64;
    let numa = NumaPolicy::Interleave;
    let arena = Arena::create(ArenaConfig { bytes, hugetlb: false, numa, pin: false })?;
    arena.touch(0..bytes)?;
    let own: Vec<u8> = (0_u8..251).cycle().take(ARENA_BYTES).collect();
    arena.mapping().copy_in(0, &own);
    let mut out = io::stdout().lock();
    for size in [64 << 10, 1 << 20, 4 << 20] {
        for (name, stride) in [("warm", 0), ("cold", 7)] {
            write!(out, "{:5} KiB {name}:", size >> 10)?;
            for (way, median) in WAYS.iter().zip(measure(&arena, &own, size, stride)) {
                write!(out, "  {way} {median:.1}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

fn measure(arena: &Arena, own: &[u8], size: usize, stride: usize) -> Vec<f64> {
    let mapping = arena.mapping();
    let places = ARENA_BYTES / size;
    let mut rates = vec![Vec::new(); WAYS.len()];
    let mut next = 0;
    for _ in 0..ROUNDS {
        for (way, rates) in rates.iter_mut().enumerate() {
            let start = Instant::now();
            let mut all = 0;
            for _ in 0..BYTES_PER_ROUND / size {
                next = (next + stride) % places;
                let (at, offset) = (next * size, (next * size) as u64);
                let (block, warm) = (&own[at..at + size], &own[..size]);
                let mut checksum = Checksum::new();
                match way {
                    0 => checksum.update(block),
                    1 => mapping.sum(offset, size, &mut checksum),
                    2 => mapping.copy_in(offset, warm),
                    3 => mapping.copy_in_summed(offset, warm, &mut checksum),
                    4 => mapping.copy_in_foreign_summed(offset, warm.into(), &mut checksum),
                    _ => {
                        mapping.copy_in(offset, warm);
                        mapping.sum(offset, size, &mut checksum);
                    }
                }
                all ^= checksum.value();
            }
            let gigabytes = BYTES_PER_ROUND as f64 / 1e9;
            rates.push(gigabytes / start.elapsed().as_secs_f64());
            std::hint::black_box(all);
        }
    }
    rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
    rates.iter().map(|rates| rates[ROUNDS / 2]).collect()
}
