//! The score: a case worked out by hand, laws that hold for any fleet, and the cut against trying every chunk.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use kvd_proto::events::CacheTier;
use proptest::collection::vec;
use proptest::prelude::*;
use router_core::index::Run;
use router_core::index::query::Held;
use router_core::policy::KvAware;
use router_core::score::ettft::Target;
use router_core::score::reference::{Asked, Cost, Known};
use router_core::score::segments::{Pricing, Segments};
use router_core::score::{Link, Load, Request, Speed, Terms, Way};

const BLOCK: u32 = 16;
const K: u32 = 1024;

fn run(start: u32, end: u32, tier: CacheTier, chunk_blocks: u32) -> Run {
    Run { start, end, tier, credit: 1.0, chunk_blocks, chunk_bytes: 0 }
}

fn held(device_blocks: u32, runs: &[Run]) -> Held<'_> {
    Held { device_blocks, device_credit: 1.0, runs }
}

fn target<'a>(held: Held<'a>, way: &'a Way, speed: Speed, load: Load) -> Target<'a> {
    Target {
        held,
        block_size: BLOCK,
        way: Some(way),
        speed,
        load,
        images_held: 0,
        is_last_of_session: false,
    }
}

fn prompt(tokens: u32) -> Request {
    Request { prompt_tokens: f64::from(tokens), images: 0 }
}

/// 32 B parameters in bf16 on one GPU, an idle host.
fn worked_way() -> Way {
    Way {
        bytes_per_token: Some(262_144.0),
        tiers: [Link::of(50.0, 0.0), Link::of(7.0, 0.0), Link::of(20.0, 0.0)],
        device: Link::of(50.0, 0.0),
        is_pipelined: true,
        ..Way::default()
    }
}

fn worked_speed() -> Speed {
    Speed::of_tokens_per_second(7540.0)
}

fn tokens_as_blocks(tokens: u32) -> u32 {
    tokens / BLOCK
}

/// What a target holds: tokens and tier, tokens queued there; then the expected terms and costs.
type Row = ((u32, CacheTier), f64, [f64; 4], f64, f64);

const ROWS: [Row; 5] = [
    ((8 * K, CacheTier::Device), 0.0, [0.0, 0.0, 3.26, 3.26], 1536.0, 1536.0),
    ((24 * K, CacheTier::L2), 0.0, [0.0, 0.13, 1.09, 1.22], 2048.0, 896.0),
    ((30 * K, CacheTier::L3), 0.0, [0.0, 1.15, 0.27, 1.42], 2048.0, 1568.0),
    ((28 * K, CacheTier::Device), 20_000.0, [2.65, 0.0, 0.54, 3.20], 1506.0, 1506.0),
    ((28 * K, CacheTier::L4), 0.0, [0.0, 0.38, 0.54, 0.92], 2048.0, 1152.0),
];

fn terms_of_row(((tokens, tier), queued_tokens, ..): &Row, way: &Way) -> Terms {
    let blocks = tokens_as_blocks(*tokens);
    let runs = [run(0, blocks, *tier, BLOCK)];
    let is_device = *tier == CacheTier::Device;
    let held = if is_device { held(blocks, &[]) } else { held(0, &runs) };
    let load = Load { queued_tokens: *queued_tokens, ..Load::default() };
    Terms::of(&prompt(32 * K), &target(held, way, worked_speed(), load))
}

#[test]
fn the_worked_case_comes_out_as_by_hand() {
    let way = worked_way();
    for row in &ROWS {
        let terms = terms_of_row(row, &way);
        let found =
            [terms.queue_seconds, terms.load_seconds, terms.prefill_seconds, terms.ettft_seconds];
        for (found, expected) in found.into_iter().zip(row.2) {
            assert!((found - expected).abs() < 0.0051, "{terms:?} {expected}");
        }
    }
    let three_ahead = Way {
        tiers: way
            .tiers
            .map(|link| Link { queued_bytes: 3.0 * 30.0 * f64::from(K) * 262_144.0, ..link }),
        ..way
    };
    let third = terms_of_row(&ROWS[2], &three_ahead);
    assert!((third.ettft_seconds - 4.87).abs() < 0.005, "{third:?}");
}

#[test]
fn the_worked_case_is_picked_for_its_pool_and_by_the_reference_for_its_device() {
    let runs: Vec<[Run; 1]> = ROWS
        .iter()
        .map(|((tokens, tier), ..)| [run(0, tokens_as_blocks(*tokens), *tier, BLOCK)])
        .collect();
    let way = worked_way();
    let targets = ROWS.iter().zip(&runs).map(|(((tokens, tier), queued_tokens, ..), runs)| {
        let is_device = *tier == CacheTier::Device;
        let held = if is_device { held(tokens_as_blocks(*tokens), &[]) } else { held(0, runs) };
        let load = Load { queued_tokens: *queued_tokens, ..Load::default() };
        target(held, &way, worked_speed(), load)
    });
    let mut picker = KvAware::new();
    let pick = picker.pick(&prompt(32 * K), targets, 1).unwrap();
    assert_eq!((pick.target, pick.order()), (4, vec![4, 1, 2, 3, 0]));
    assert_eq!(pick.as_good().collect::<Vec<_>>(), [4]);

    let asked = Asked { blocks: 2048, weight: 1.0, ..Asked::default() };
    let known = |row: &Row| {
        let is_device = row.0.1 == CacheTier::Device;
        let hits = if is_device { f64::from(tokens_as_blocks(row.0.0)) } else { 0.0 };
        Known { hits, images_held: 0, load: row.1 / f64::from(BLOCK) }
    };
    for row in &ROWS {
        assert!((Cost::of(&asked, &known(row)).cost - row.3).abs() < 0.5, "{row:?}");
    }
    let pick = picker.pick_as_reference(&asked, ROWS.iter().map(known), 1).unwrap();
    assert_eq!(pick.target, 3);
}

/// With idle links and no attention a cached token saves a fixed part of a computed one: fixed weights are special cases.
#[test]
fn a_fixed_weight_is_a_bandwidth() {
    let speed = worked_speed();
    let least = 262_144.0 / speed.alpha;
    for ((tokens, tier), _, _, _, expected) in ROWS {
        let weight = match tier {
            CacheTier::Device => 1.0,
            CacheTier::L2 => 0.75,
            CacheTier::L3 => 0.25,
            CacheTier::L4 => 0.5,
        };
        let link = Link::of(least / (1.0 - weight) / 1e9, 0.0);
        let way = Way { tiers: [link; 3], device: Link::of(1e9, 0.0), ..worked_way() };
        let row = ((tokens, tier), 0.0, [0.0; 4], 0.0, 0.0);
        let blocks = terms_of_row(&row, &way).ettft_seconds / speed.alpha / f64::from(BLOCK);
        let queue = if tokens == 28 * K && tier == CacheTier::Device { 1250.0 } else { 0.0 };
        assert!((blocks + queue - expected).abs() < 0.1, "{tier:?} {blocks} {expected}");
    }
}

#[test]
fn equal_siblings_share_evenly_and_the_one_with_less_to_do_gets_more() {
    let way = worked_way();
    let mut counts = [0_u32; 4];
    let runs = [run(0, 512, CacheTier::L2, BLOCK)];
    for seed in 0..8000 {
        let siblings = [100.0, 100.0, 300.0, 90_000.0].map(|queued_tokens| {
            let load = Load { queued_tokens, ..Load::default() };
            target(held(0, &runs), &way, worked_speed(), load)
        });
        let mut picker = KvAware::new();
        let pick = picker.pick(&prompt(32 * K), siblings.into_iter(), seed).unwrap();
        counts[pick.target] += 1;
    }
    let [first, second, third, last] = counts;
    assert!(first.abs_diff(second) < 400 && last == 0, "{counts:?}");
    assert!(third > 800 && third * 2 < first, "{counts:?}");
}

#[test]
fn with_nothing_but_a_pool_or_nothing_at_all_load_decides() {
    let way = worked_way();
    let runs = [run(0, 512, CacheTier::L4, BLOCK)];
    for (request, runs) in [(prompt(32 * K), &runs[..]), (prompt(0), &[])] {
        for seed in 0..50 {
            let targets = [9000.0, 2000.0, 7000.0].map(|queued_tokens| {
                let load = Load { queued_tokens, ..Load::default() };
                target(held(0, runs), &way, worked_speed(), load)
            });
            let mut picker = KvAware::new();
            assert_eq!(picker.pick(&request, targets.into_iter(), seed).unwrap().target, 1);
        }
    }
    assert!(KvAware::new().pick(&prompt(1), core::iter::empty(), 0).is_none());
}

#[test]
fn without_a_host_or_a_size_of_tokens_lower_tiers_are_worth_nothing() {
    let runs = [run(0, 1024, CacheTier::L2, BLOCK)];
    let way = Way { bytes_per_token: None, ..worked_way() };
    let unknown = target(held(0, &runs), &way, worked_speed(), Load::default());
    let nowhere = Target { way: None, ..unknown };
    let with_size = [Run { chunk_bytes: 1 << 26, ..runs[0] }];
    let told = Target { held: held(0, &with_size), ..unknown };
    let terms = |target| Terms::of(&prompt(32 * K), &target);
    assert_eq!(terms(unknown), terms(nowhere));
    assert!((terms(unknown).uncached_tokens - f64::from(32 * K)).abs() < 1e-9);
    assert!((terms(told).l2_tokens - f64::from(16 * K)).abs() < 1e-9);
}

#[test]
fn half_a_doubt_is_half_of_what_it_would_be_without() {
    let way = Way { is_cost_gated: true, ..worked_way() };
    let runs = [run(0, 256, CacheTier::L2, BLOCK)];
    let terms = |device_blocks, device_credit| {
        let held = Held { device_blocks, device_credit, runs: &runs };
        Terms::of(&prompt(8 * K), &target(held, &way, worked_speed(), Load::default()))
    };
    let [sure, doubted, nothing] = [(512, 1.0), (512, 0.5), (0, 1.0)].map(|(d, c)| terms(d, c));
    let middle = f64::midpoint(sure.ettft_seconds, nothing.ettft_seconds);
    assert!((doubted.ettft_seconds - middle).abs() < 1e-9);
    assert!(nothing.l2_tokens > 0.0, "a doubted device still has its host behind it");
}

#[test]
fn a_read_ahead_takes_the_queue_off_the_disk() {
    let runs = [run(0, 1920, CacheTier::L3, BLOCK)];
    let load = Load { queued_tokens: 3770.0, ..Load::default() };
    let of = |prefetches| {
        let way = Way { prefetches, ..worked_way() };
        Terms::of(&prompt(32 * K), &target(held(0, &runs), &way, worked_speed(), load))
    };
    let (without, with) = (of(false), of(true));
    assert!((without.load_seconds - with.load_seconds - 0.5).abs() < 1e-6, "{with:?}");
    assert!(with.is_prefetch_worth);
}

#[test]
fn a_decode_pick_counts_moving_and_load_and_no_residency() {
    let way = worked_way();
    let speed = worked_speed();
    let busy = Load { decodes: 40.0, decodes_max: 64.0, memory_used: 0.95, ..Load::default() };
    let targets = [
        target(held(512, &[]), &way, speed, busy),
        target(held(0, &[]), &way, speed, Load { memory_used: 0.0, ..busy }),
    ];
    let mut picker = KvAware::new();
    let pick = picker.pick_decode(&prompt(32 * K), targets.into_iter(), 0).unwrap();
    assert_eq!(pick.target, 1);
    let terms = pick.picked().unwrap();
    let moving = 32.0 * f64::from(K) * 262_144.0 / 25e9;
    assert!((terms.ettft_seconds - moving).abs() < 1e-9 && terms.uncached_tokens == 0.0);
    assert!((terms.score - moving - 0.04).abs() < 1e-9);
}

// --- laws -----------------------------------------------------------------------------------------------------------

const BLOCKS_MAX: u32 = 200;

/// A link that is about as fast as computing, `even` gigabytes a second: there the cut is not obvious.
fn any_link(even: f64) -> impl Strategy<Value = Link> {
    let queue = prop_oneof![Just(0.0), 0.0..1.0_f64];
    (-3.0..3.0_f64, 0.0..5.0_f64, queue).prop_map(move |(doublings, latency, queue_seconds)| {
        let link = Link::of(even * doublings.exp2(), latency);
        Link { queued_bytes: queue_seconds * link.bytes_per_second, ..link }
    })
}

fn any_speed() -> impl Strategy<Value = Speed> {
    (1000.0..40_000.0_f64, prop_oneof![Just(0.0), 0.0..3e-9_f64])
        .prop_map(|(tokens, beta)| Speed { beta, ..Speed::of_tokens_per_second(tokens) })
}

fn any_world() -> impl Strategy<Value = (Speed, Way)> {
    (any_speed(), 1e4..4e5_f64).prop_flat_map(|(speed, size)| {
        let link = || any_link(size / speed.alpha / 1e9);
        ((link(), link(), link(), link()), any::<[bool; 3]>()).prop_map(
            move |(links, [is_pipelined, overlaps, prefetches])| {
                let way = Way {
                    bytes_per_token: Some(size),
                    tiers: [links.0, links.1, links.2],
                    device: links.3,
                    is_pipelined,
                    overlaps,
                    is_cost_gated: true,
                    prefetches,
                    ..Way::default()
                };
                (speed, way)
            },
        )
    })
}

/// The tier of each block, as the index would tell it: runs of whole chunks, now and then a gap.
fn any_runs() -> impl Strategy<Value = Vec<Run>> {
    let tiers = prop_oneof![
        3 => Just(Some(CacheTier::L2)),
        3 => Just(Some(CacheTier::L3)),
        2 => Just(Some(CacheTier::L4)),
        1 => Just(None),
    ];
    (vec((tiers, 1_u32..12), 0..6), prop_oneof![Just(1_u32), Just(4), Just(16)]).prop_map(
        |(pieces, chunk)| {
            let mut at = 0;
            let mut runs = Vec::new();
            for (tier, chunks) in pieces {
                let end = at + chunks * chunk;
                if end > BLOCKS_MAX {
                    break;
                }
                if let Some(tier) = tier {
                    runs.push(run(at, end, tier, chunk));
                }
                at = end;
            }
            runs
        },
    )
}

/// The least price over every boundary of a chunk, block by block.
fn naive_seconds(pricing: &Pricing<'_>, held: &Held<'_>) -> f64 {
    let way = pricing.way.unwrap();
    let mut segments = Segments::none(pricing.prompt);
    segments.device_tokens = f64::from(held.device_blocks * BLOCK).min(pricing.prompt);
    let seconds = |segments: &Segments| {
        let loaded: f64 = segments.tiers.iter().map(|portion| portion.tokens).sum();
        let uncached_tokens = (pricing.prompt - segments.device_tokens - loaded).max(1.0);
        let segments = Segments { uncached_tokens, ..*segments };
        let load = pricing.load_seconds(&segments);
        pricing.combined(load, pricing.prefill_seconds(&segments))
    };
    let mut least = seconds(&segments);
    for run in held.below() {
        let place = run.tier as usize - CacheTier::L2 as usize;
        let first = run.start / run.chunk_blocks;
        for chunk in first..run.end / run.chunk_blocks {
            let start = run.start.max(chunk * run.chunk_blocks);
            let tokens = f64::from(((chunk + 1) * run.chunk_blocks - start) * BLOCK);
            segments.tiers[place].tokens += tokens;
            segments.tiers[place].bytes +=
                f64::from(run.chunk_blocks * BLOCK) * way.bytes_per_token.unwrap();
            least = least.min(seconds(&segments));
        }
    }
    least
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Looking only where the price may bend finds what trying every chunk finds.
    #[test]
    fn the_cut_is_the_cheapest_of_all(
        (speed, way) in any_world(), runs in any_runs(), device in 0_u32..100,
        queue_seconds in prop_oneof![Just(0.0), 0.0..3.0_f64],
    ) {
        let held = held(device, &runs);
        let prompt = f64::from(BLOCKS_MAX * BLOCK + 7);
        let block_size = f64::from(BLOCK);
        let pricing = Pricing { prompt, block_size, speed: &speed, way: Some(&way), queue_seconds };
        let segments = pricing.segments(&held);
        let load = pricing.load_seconds(&segments);
        let found = pricing.combined(load, pricing.prefill_seconds(&segments));
        let naive = naive_seconds(&pricing, &held);
        prop_assert!((found - naive).abs() < 1e-9 * naive.max(1.0), "{found} {naive} {segments:?}");
    }

    /// Blocks count once, and all of the prompt comes from somewhere.
    #[test]
    fn tokens_add_up(
        (_, way) in any_world(), runs in any_runs(), device in 0_u32..100, gated in any::<bool>(),
        tokens in 1_u32..4000,
    ) {
        let way = Way { is_cost_gated: gated, ..way };
        let runs: Vec<Run> = runs.into_iter().filter(|run| run.end * BLOCK <= tokens).collect();
        let held = held(device.min(tokens / BLOCK), &runs);
        let terms = Terms::of(&prompt(tokens), &target(held, &way, Speed::default(), Load::default()));
        let cached = terms.device_tokens + terms.l2_tokens + terms.l3_tokens + terms.l4_tokens;
        let uncached = (f64::from(tokens) - cached).max(1.0);
        prop_assert!((terms.uncached_tokens - uncached).abs() < 1e-9, "{terms:?}");
    }

    /// More on the device, longer or nearer runs, faster links: never worse.
    #[test]
    fn more_never_looks_worse(
        (speed, way) in any_world(), runs in any_runs(), device in 0_u32..100,
        more in 0_u32..60, which in 0_usize..4, faster in 1.0..5.0_f64, queued in 0.0..20_000.0_f64,
    ) {
        let load = Load { queued_tokens: queued, ..Load::default() };
        let seconds = |held: Held<'_>, way: &Way| {
            Terms::of(&prompt(BLOCKS_MAX * BLOCK), &target(held, way, speed, load)).ettft_seconds
        };
        let before = seconds(held(device, &runs), &way);
        prop_assert!(seconds(held(device + more, &runs), &way) <= before + 1e-9);

        let mut faster_way = way;
        match which {
            3 => faster_way.device.bytes_per_second *= faster,
            place => faster_way.tiers[place].bytes_per_second *= faster,
        }
        prop_assert!(seconds(held(device, &runs), &faster_way) <= before + 1e-9);

        let mut longer = runs.clone();
        let chunk = runs.first().map_or(1, |run| run.chunk_blocks);
        let at = runs.last().map_or(0, |run| run.end);
        if at + chunk * 2 <= BLOCKS_MAX {
            longer.push(run(at, at + chunk * 2, [CacheTier::L2, CacheTier::L3, CacheTier::L4][which % 3], chunk));
        }
        prop_assert!(seconds(held(device, &longer), &way) <= before + 1e-9);
    }

    /// Without lower tiers and with nothing else to tell them apart, targets stand in the order of the reference.
    #[test]
    fn without_lower_tiers_the_order_is_the_references(
        targets in vec((0_u32..120, 0_u32..300), 2..20),
    ) {
        let way = worked_way();
        let speed = worked_speed();
        let asked = Asked { blocks: 128, weight: 1.0, ..Asked::default() };
        let both: Vec<(f64, f64)> = targets.iter().map(|(hits, queued)| {
            let queued_tokens = f64::from(queued * BLOCK);
            let load = Load { queued_tokens, ..Load::default() };
            let terms = Terms::of(&prompt(128 * BLOCK), &target(held(*hits, &[]), &way, speed, load));
            let known = Known { hits: f64::from(*hits), images_held: 0, load: f64::from(*queued) };
            (terms.ettft_seconds / speed.alpha / f64::from(BLOCK), Cost::of(&asked, &known).cost)
        }).collect();
        for (ours, reference) in both {
            prop_assert!((ours - reference).abs() < 1e-6, "{ours} {reference}");
        }
    }
}
