//! Measures every way to copy, by size and direction: the source of the figures in `copy/mod.rs`.
//!
//! `cargo run --release --example copy_sweep -p kvd-shm [-- arena MiB]`
//!
//! *in*: one buffer, copied to random places of an arena that no cache holds. *out*: the reverse.
//! All bytes are random (zeroes copy faster). `memcpy` is the language's own copy. Each figure is
//! the median of nine rounds in GB/s; the methods take turns within a round. Pin it to one core
//! (`taskset -c 0`) and keep the other quiet.

#![expect(unsafe_code, reason = "the language's own copy, for comparison, needs an address")]

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use kvd_shm::arena::{Arena, ArenaConfig};
use kvd_shm::copy::Method;
use kvd_shm::mapping::Mapping;
use kvd_shm::numa::NumaPolicy;

const LINE: usize = 64;
const ROUNDS: usize = 9;
const BYTES_PER_ROUND: usize = 128 << 20;
const SIZES: [usize; 9] =
    [4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

#[derive(Clone, Copy)]
enum Direction {
    In,
    Out,
}

/// A small generator of bytes and places; quality does not matter.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fill(&mut self, buffer: &mut [u8]) {
        for word in buffer.chunks_exact_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mebibytes = std::env::args().nth(1).map_or(Ok(2048), |text| text.parse::<u64>())?;
    let bytes = mebibytes.max(512) << 20;
    let numa = NumaPolicy::Interleave;
    let arena = Arena::create(ArenaConfig { bytes, hugetlb: false, numa, pin: false })?;
    let start = Instant::now();
    arena.touch(0..bytes)?;
    let touch = start.elapsed().as_secs_f64() / (bytes as f64 / f64::from(1 << 30));
    let mut random = Random(88_172_645_463_325_252);
    let mut allocated = vec![1; SIZES[SIZES.len() - 1] + LINE];
    // As aligned as the buffers of engines are.
    let skip = allocated.as_ptr().align_offset(LINE);
    let buffer = &mut allocated[skip..skip + SIZES[SIZES.len() - 1]];
    for offset in (0..bytes).step_by(1 << 20) {
        let piece = &mut buffer[..1 << 20];
        random.fill(piece);
        arena.mapping().copy_in(offset, piece);
    }
    random.fill(buffer);
    let mut out = io::stdout().lock();
    let kind = arena.page_kind().as_str();
    writeln!(out, "arena {} MiB on {kind} pages, touched in {touch:.3} s/GiB; GB/s:", bytes >> 20)?;
    let methods: Vec<_> = Method::ALL.into_iter().filter(|method| method.is_available()).collect();
    for (name, direction) in [("in", Direction::In), ("out", Direction::Out)] {
        for size in SIZES {
            write!(out, "{name:3} {:6} KiB  memcpy", size >> 10)?;
            let mut ways = vec![None];
            ways.extend(methods.iter().copied().map(Some));
            let medians = measure(arena.mapping(), buffer, size, direction, &ways);
            for (way, median) in ways.iter().zip(medians) {
                match way {
                    None => write!(out, " {median:5.1}")?,
                    Some(method) => write!(out, "  {method:?} {median:5.1}")?,
                }
            }
            let chosen = match direction {
                Direction::In => Method::to_copy_in(size),
                Direction::Out => Method::to_copy_out(size),
            };
            writeln!(out, "  chosen {chosen:?}")?;
        }
    }
    Ok(())
}

fn measure(
    mapping: &Arc<Mapping>,
    buffer: &mut [u8],
    size: usize,
    direction: Direction,
    ways: &[Option<Method>],
) -> Vec<f64> {
    let mut random = Random(42);
    let places = mapping.bytes() / size as u64;
    let copies = BYTES_PER_ROUND / size;
    let mut rates = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for (way, rates) in ways.iter().zip(&mut rates) {
            let offsets: Vec<_> =
                (0..copies).map(|_| random.next() % places * size as u64).collect();
            let start = Instant::now();
            for offset in offsets {
                one_copy(mapping, &mut buffer[..size], offset, direction, *way);
            }
            let gigabytes = (copies * size) as f64 / 1e9;
            rates.push(gigabytes / start.elapsed().as_secs_f64());
        }
    }
    for rates in &mut rates {
        rates.sort_by(f64::total_cmp);
    }
    rates.iter().map(|rates| rates[ROUNDS / 2]).collect()
}

fn one_copy(
    mapping: &Arc<Mapping>,
    buffer: &mut [u8],
    offset: u64,
    direction: Direction,
    way: Option<Method>,
) {
    match (direction, way) {
        (Direction::In, Some(method)) => mapping.copy_in_by(method, offset, buffer),
        (Direction::Out, Some(method)) => mapping.copy_out_by(method, offset, buffer),
        (Direction::In, None) => {
            let to = address(mapping, offset, buffer.len()).cast_mut();
            // SAFETY: `slice` has checked the range, and this process alone has the arena.
            unsafe { to.copy_from_nonoverlapping(buffer.as_ptr(), buffer.len()) }
        }
        (Direction::Out, None) => {
            let from = address(mapping, offset, buffer.len());
            // SAFETY: `slice` has checked the range, and this process alone has the arena.
            unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(from, buffer.len()) }
        }
    }
}

fn address(mapping: &Arc<Mapping>, offset: u64, len: usize) -> *const u8 {
    mapping.slice(offset, len).as_ptr()
}
