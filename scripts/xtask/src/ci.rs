//! `cargo xtask ci`: every check in order, cheapest first. Stops at the first red step and closes with a count.

use std::time::Instant;

use anyhow::bail;

use crate::{Context, TASKS};

/// The steps, by the names of [`TASKS`].
const STEPS: &[&str] = &[
    "tidy", "fmt", "lint", "units", "test", "loom", "crash", "e2e", "upgrade", "parts", "py",
    "wheel", "vllm",
];

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut timings = Vec::new();
    for (done, name) in STEPS.iter().enumerate() {
        println!("\n=== {name}");
        let begun = Instant::now();
        let outcome = step(context, name);
        timings.push(format!("{name} {:.0} s", begun.elapsed().as_secs_f64()));
        if let Err(trouble) = outcome {
            close(&timings, started, done, 1);
            bail!("{name} failed: {trouble:#}");
        }
    }
    close(&timings, started, STEPS.len(), 0);
    Ok(())
}

fn step(context: &Context, name: &str) -> anyhow::Result<()> {
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        bail!("no task is called {name}");
    };
    (task.run)(&Context { root: context.root.clone(), extra: Vec::new() })
}

fn close(timings: &[String], started: Instant, passed: usize, failed: usize) {
    println!("\n{} · in all {:.0} s", timings.join(" · "), started.elapsed().as_secs_f64());
    println!("ci: {passed} passed, {failed} failed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_a_task() {
        for name in STEPS {
            assert!(TASKS.iter().any(|task| task.name == *name), "{name}");
        }
    }
}
