//! One who knows the truth: what every cache holds now and will hold when it matters, how fast everything is, and who waits
//! for what. It takes the worker with the shortest time to the first token, as the router does; it does not look ahead.

use super::host::Loadable;
use super::request::{BLOCK_TOKENS, Request};
use super::world::Machines;

/// The worker with the shortest time to the first token.
#[must_use]
pub fn pick(request: &Request, machines: &Machines, now: f64, seed: u64) -> usize {
    let workers = machines.workers.len();
    let start = usize::try_from(seed % workers as u64).unwrap_or(0);
    let mut best = (f64::INFINITY, 0);
    let mut memo = Memo { host: usize::MAX, device_blocks: 0, loadable: Loadable::default() };
    for worker in (start..workers).chain(0..start) {
        let seconds = seconds(request, machines, worker, now, &mut memo);
        if seconds < best.0 {
            best = (seconds, worker);
        }
    }
    best.1
}

/// What the last worker's host had: siblings often ask the same.
struct Memo {
    host: usize,
    device_blocks: usize,
    loadable: Loadable,
}

fn seconds(
    request: &Request,
    machines: &Machines,
    number: usize,
    now: f64,
    memo: &mut Memo,
) -> f64 {
    let (worker, host) = (&machines.workers[number], machines.host_of(number));
    let names = request.prompt_names();
    let device_blocks = worker.prefix_to_come(names);
    if (memo.host, memo.device_blocks) != (host, device_blocks) {
        let loadable = machines.hosts[host].loadable(&names[device_blocks..]);
        *memo = Memo { host, device_blocks, loadable };
    }
    let own_blocks = request.device_blocks() - worker.device.held_among(&names[..device_blocks]);
    let begins = now + worker.busy_seconds(now).max(worker.room_seconds(own_blocks, now));
    let loaded = machines.hosts[host].loaded_at(memo.loadable, begins);
    let cached = (device_blocks + memo.loadable.blocks()) as f64 * f64::from(BLOCK_TOKENS);
    let prompt = f64::from(request.prompt_tokens);
    let uncached = (prompt - cached).max(1.0);
    loaded - now + worker.truth.prefill_seconds(prompt, uncached, worker.answers.count())
}
