//! Time to the first token of one request after the other: at the worker itself, through nginx, through the router, in
//! turn. What a proxy adds is the difference.

use super::door::{Door, Stage, first_token};
use super::load;
use crate::affinity::pin;
use crate::bar::Bar;
use crate::percentile;
use crate::report::Report;
use crate::suite::Effort;

/// Prompts, and what to call them.
const PROMPTS: [(usize, &str); 2] = [(1 << 10, "1k"), (100 << 10, "100k")];
const WARM_UP: usize = 20;
/// What the router may add at the median.
const ADDED_MS: f64 = 1.0;

/// Measures.
///
/// # Errors
/// Something is missing, or an answer is wrong.
pub fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let stage = Stage::set(&["--router-policy", "round-robin"])?;
    let _pinned = pin(stage.cores.clients)?;
    for (bytes, name) in PROMPTS {
        let request = load::request(bytes, 1, 0);
        let mut connections = stage.doors.each_ref().map(Door::connect);
        let mut times = [const { Vec::new() }; 3];
        for round in 0..effort.of(2_000, 400) + WARM_UP {
            for (connection, times) in connections.iter_mut().zip(&mut times) {
                let took = first_token(connection, &request)?;
                if round >= WARM_UP {
                    times.push(took.as_secs_f64() * 1e3);
                }
            }
        }
        let [direct, nginx, router] =
            times.map(|mut times| [0.5, 0.99].map(|share| percentile::of(&mut times, share)));
        let added = |door: [f64; 2]| [door[0] - direct[0], door[1] - direct[1]];
        let text = |[median, late]: [f64; 2]| format!("{median:.3} / {late:.3} ms");
        report.note(format!("first token of {name}, direct, p50 / p99"), text(direct));
        report.compare(
            format!("added to the first token of {name} (nginx), p50 / p99"),
            text(added(router)),
            text(added(nginx)),
            added(router)[0] / added(nginx)[0],
        );
        let id = format!("router-first-token-{name}-added-p50-ms");
        report.bar(Bar::at_most(id, added(router)[0], ADDED_MS));
    }
    Ok(())
}
