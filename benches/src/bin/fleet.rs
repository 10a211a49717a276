//! `fleet`: a simulated fleet behind the real router's decisions. See [`kvd_benches::fleet`].

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use comfy_table::{Table, presets};
use kvd_benches::bar::Bar;
use kvd_benches::fleet::outcome::Figures;
use kvd_benches::fleet::router::Policy;
use kvd_benches::fleet::scene::{SCENES, Scene};
use kvd_benches::machine;

/// Simulates fleets of workers, and compares how requests are placed.
///
/// The last lines are `BAR <id> <value> <bound> ok|short`. Exit codes: 0 if every bar is met, else 1; 2 for bad usage.
#[derive(Debug, Parser)]
#[command(name = "fleet", version)]
struct Arguments {
    /// Only scenes whose name contains this text.
    #[arg(long, default_value = "")]
    scene: String,
    /// The shared trace: a JSON object a line.
    #[arg(long, default_value = "tests/traces/conversation_1500.jsonl")]
    trace: PathBuf,
    /// Times as many requests a second as the scenes have.
    #[arg(long, default_value_t = 1.0)]
    load: f64,
    /// Seeds, counted from 1; figures are means over them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: u32,
    /// Only these policies; without all of them there are no bars.
    #[arg(long, value_delimiter = ',')]
    policies: Vec<Policy>,
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nowhere is left to complain to if standard error is closed.
            drop(writeln!(std::io::stderr(), "fleet: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", machine::line())?;
    let mut bars = Vec::new();
    let chosen = SCENES.iter().filter(|scene| scene.name.contains(&arguments.scene));
    for scene in chosen.map(|scene| scene.under(arguments.load)) {
        let mut rows = Vec::new();
        for policy in Policy::ALL {
            if !arguments.policies.is_empty() && !arguments.policies.contains(&policy) {
                continue;
            }
            let begun = Instant::now();
            rows.push((policy, mean_over_seeds(&scene, policy, arguments)?));
            let seconds = begun.elapsed().as_secs_f64();
            drop(writeln!(std::io::stderr(), "{} {policy:?}: {seconds:.1} s", scene.name));
        }
        writeln!(out, "{}\n{}", scene.name, table(&rows))?;
        bars.extend(bars_of(&scene, &rows));
    }
    for bar in &bars {
        writeln!(out, "{bar}")?;
    }
    Ok(bars.iter().all(Bar::is_met))
}

fn mean_over_seeds(
    scene: &Scene,
    policy: Policy,
    arguments: &Arguments,
) -> anyhow::Result<Figures> {
    let mut sum = Figures::default();
    for seed in 1..=arguments.seeds {
        sum = sum.plus(&scene.run(policy, &arguments.trace, u64::from(seed))?);
    }
    Ok(sum.over(f64::from(arguments.seeds)))
}

fn table(rows: &[(Policy, Figures)]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "policy",
        "requests",
        "TTFT mean",
        "p50",
        "p99",
        "good",
        "goodput/s",
        "device",
        "L2",
        "L3",
    ]);
    for (policy, figures) in rows {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let [device, l2, l3] = figures.tiers.map(percent);
        table.add_row([
            format!("{policy:?}"),
            format!("{:.0}", figures.requests),
            format!("{:.3} s", figures.mean),
            format!("{:.3} s", figures.median),
            format!("{:.3} s", figures.p99),
            percent(figures.good_share),
            format!("{:.2}", figures.goodput),
            device,
            l2,
            l3,
        ]);
    }
    table
}

/// The score against the best of what it is compared with, and against the one who knows.
fn bars_of(scene: &Scene, rows: &[(Policy, Figures)]) -> Vec<Bar> {
    let of = |policy| rows.iter().find(|(other, _)| *other == policy).map(|(_, figures)| figures);
    let others = [Policy::RoundRobin, Policy::LeastLoad, Policy::Reference].map(of);
    let (Some(ettft), Some(oracle), [Some(turns), Some(load), Some(reference)]) =
        (of(Policy::Ettft), of(Policy::Oracle), others)
    else {
        return Vec::new();
    };
    let name = scene.name;
    let best = |figure: fn(&Figures) -> f64| figure(turns).min(figure(load)).min(figure(reference));
    let mean = |figures: &Figures| figures.mean;
    let p99 = |figures: &Figures| figures.p99;
    vec![
        Bar::at_most(format!("fleet-{name}-mean-of-best"), ettft.mean / best(mean), 0.8),
        Bar::at_most(format!("fleet-{name}-p99-of-best"), ettft.p99 / best(p99), 0.8),
        Bar::at_most(format!("fleet-{name}-mean-of-oracle"), ettft.mean / oracle.mean, 1.15),
        Bar::at_most(format!("fleet-{name}-p99-of-oracle"), ettft.p99 / oracle.p99, 1.15),
    ]
}
