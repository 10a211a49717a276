//! Workers nobody knows yet: nobody is sent into the queue of one that happened to answer first while its equals are idle,
//! and a slow one is found out.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use std::sync::Arc;

use proptest::prelude::*;
use router_core::account::{Placed, TargetLoad, Waiting};
use router_core::index::query::Held;
use router_core::policy::KvAware;
use router_core::score::ettft::Target;
use router_core::score::fit::{ModelFit, SpeedFit};
use router_core::score::{Request, Speed, Terms};

const WORKERS: usize = 8;
/// What all are believed to be, and what they are: the seed is far off.
const BELIEVED: Speed = Speed::of_tokens_per_second(8000.0);
const ALPHA: f64 = 1.0 / 24_000.0;
/// Requests come so that workers compute in about this part of the time.
const BUSY: f64 = 0.3;
const TOKENS: std::ops::Range<u32> = 500..3000;

struct Sent {
    end: f64,
    worker: usize,
    begun: f64,
    tokens: f64,
    terms: Terms,
    waiting: Waiting,
}

/// What became of requests.
struct Course {
    /// That each worker got, and what is believed of it at the end: what its times are of those of an equal.
    shares: [(u32, f64); WORKERS],
    /// Sent to a worker that had something to do while another one had nothing.
    in_vain: u32,
}

/// Requests to workers nobody knows. A worker computes one prompt after the other and
/// has nothing cached; `slower` says how many times as long it takes. `is_alone`: each is learnt by itself.
fn course(requests: u32, slower: [f64; WORKERS], is_alone: bool, seed: u64) -> Course {
    let mut draw = seed;
    let mut random = move |below: u32| {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(draw >> 33).unwrap() % below
    };
    let models = if is_alone { WORKERS } else { 1 };
    let mut models = vec![ModelFit::new(BELIEVED); models];
    let mut fits = vec![SpeedFit::default(); WORKERS];
    let mut loads = vec![TargetLoad::default(); WORKERS];
    let (mut free_at, mut counts, mut in_vain) = ([0.0_f64; WORKERS], [0; WORKERS], 0);
    let mut under_way: Vec<Sent> = Vec::new();
    let mut picker = KvAware::new();
    let mean_tokens = f64::from(TOKENS.start + TOKENS.end) / 2.0;
    let gap = mean_tokens * ALPHA / BUSY / WORKERS as f64;
    for number in 0..requests {
        let now = f64::from(number) * gap;
        under_way.sort_by(|one, other| other.end.total_cmp(&one.end));
        while under_way.last().is_some_and(|sent| sent.end <= now) {
            let Sent { end, worker, begun, tokens, terms, waiting } = under_way.pop().unwrap();
            let model = &mut models[if is_alone { worker } else { 0 }];
            fits[worker].observe(model, tokens, &terms, end - begun);
            let answering = loads[worker].first_byte(None, waiting, end);
            loads[worker].finish(answering);
        }
        let tokens = f64::from(TOKENS.start + random(TOKENS.end - TOKENS.start));
        let request = Request { prompt_tokens: tokens, images: 0 };
        let targets = (0..WORKERS).map(|worker| {
            let speed = fits[worker].speed(&models[if is_alone { worker } else { 0 }]);
            Target {
                held: Held { device_blocks: 0, device_credit: 1.0, runs: &[] },
                block_size: 16,
                way: None,
                speed,
                load: loads[worker].load(0, &speed, now),
                images_held: 0,
                is_last_of_session: false,
            }
        });
        let pick = picker.pick(&request, targets, u64::from(random(u32::MAX))).unwrap();
        let (worker, terms) = (pick.target, *pick.picked().unwrap());
        let is_idle = |free_at: &f64| *free_at <= now;
        in_vain += u32::from(!is_idle(&free_at[worker]) && free_at.iter().any(is_idle));
        let waiting = loads[worker].begin(Placed::new(&terms, Arc::default()), 0, None, now);
        // No two answers take the same time.
        let noise = 0.9 + f64::from(random(200)) / 1000.0;
        let end = free_at[worker].max(now) + tokens * ALPHA * slower[worker] * noise;
        (free_at[worker], counts[worker]) = (end, counts[worker] + 1);
        under_way.push(Sent { end, worker, begun: now, tokens, terms, waiting });
    }
    for Sent { worker, waiting, end, .. } in under_way {
        loads[worker].abandon(None, waiting, end);
    }
    let believed = |worker: usize| {
        let speed = fits[worker].speed(&models[if is_alone { worker } else { 0 }]);
        speed.gamma * speed.prefill_seconds(mean_tokens, mean_tokens) / (mean_tokens * ALPHA)
    };
    Course { shares: std::array::from_fn(|worker| (counts[worker], believed(worker))), in_vain }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn nobody_waits_for_one_while_its_equals_are_idle(seed in any::<u64>()) {
        let Course { shares, in_vain } = course(200, [1.0; WORKERS], false, seed);
        prop_assert!(in_vain <= 10, "{in_vain} {shares:?}");
    }

    #[test]
    fn one_that_is_slower_is_found_out(seed in any::<u64>()) {
        let mut slower = [1.0; WORKERS];
        slower[3] = 3.0;
        let Course { shares, .. } = course(1000, slower, false, seed);
        let (count, believed) = shares[3];
        let mean = 1000 / u32::try_from(WORKERS).unwrap();
        prop_assert!(count < mean / 3, "{shares:?}");
        prop_assert!((1.15..3.5).contains(&believed), "{shares:?}");
        for (worker, (_, believed)) in shares.iter().enumerate().filter(|(worker, _)| *worker != 3) {
            prop_assert!((0.8..1.25).contains(believed), "{worker}: {shares:?}");
        }
    }
}

/// What the first test would miss if workers were learnt one by one.
#[test]
fn learnt_one_by_one_they_flock_to_the_first_that_answers() {
    let in_vain = |is_alone| -> u32 {
        (0..32).map(|seed| course(200, [1.0; WORKERS], is_alone, seed).in_vain).sum()
    };
    let (together, alone) = (in_vain(false), in_vain(true));
    assert!(together * 4 < alone, "{together} {alone}");
}
