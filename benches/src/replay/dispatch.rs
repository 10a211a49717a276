//! The parent: starts the engines, hands out requests in order, shows how it goes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;
use std::time::Instant;

use anyhow::{Context as _, bail};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use kvd_client::{Client, Options};

use super::outcome::Outcome;
use super::summary::Summary;
use super::trace;
use crate::figures::{self, Figures};

/// What to replay, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The trace.
    pub trace: PathBuf,
    /// How many engine processes take part.
    pub engines: usize,
}

/// An engine's process and its two pipes.
#[derive(Debug)]
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// What the threads share that each talk to one engine.
#[derive(Debug)]
struct Replay<'a> {
    plan: &'a Plan,
    requests: usize,
    next: AtomicUsize,
    summary: Mutex<Summary>,
    bar: ProgressBar,
}

/// Replays the whole trace.
///
/// # Errors
/// If the trace cannot be read, or an engine cannot be started or dies, or the daemon does not answer. Wrong bytes and
/// unanswered requests are not errors but part of the summary.
pub fn run(plan: &Plan) -> anyhow::Result<Summary> {
    let requests = trace::load(&plan.trace)?.len();
    let before = warm_up(plan)?;
    let replay = Replay {
        plan,
        requests,
        next: AtomicUsize::new(0),
        summary: Mutex::new(Summary::new(plan.engines, requests)),
        bar: progress(requests)?,
    };
    let begun = Instant::now();
    replay.run()?;
    let took = begun.elapsed();
    replay.bar.finish_and_clear();
    let mut summary = replay.summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    let after = Figures::read(&Client::new(Options::new(&plan.socket, "replay")));
    summary.finish(took, &before, after);
    Ok(summary)
}

impl Replay<'_> {
    /// Runs all engines at once; the first failure is told once all have ended.
    fn run(&self) -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let start = |index: usize| {
                let thread = Builder::new().name(format!("engine-{index}"));
                thread.spawn_scoped(scope, move || self.drive(index))
            };
            let threads: Vec<_> = (0..self.plan.engines).map(start).collect();
            let ended: Vec<anyhow::Result<()>> = threads
                .into_iter()
                .map(|thread| thread?.join().unwrap_or_else(|_panic| bail!("a thread panicked")))
                .collect();
            ended.into_iter().collect()
        })
    }

    /// Gives one engine requests until there are none.
    fn drive(&self, index: usize) -> anyhow::Result<()> {
        let mut engine = Process::start(self.plan, index)?;
        loop {
            let request = self.next.fetch_add(1, Ordering::Relaxed);
            if request >= self.requests {
                return engine.end();
            }
            let outcome = engine
                .ask(request)
                .with_context(|| format!("engine {index}, request {request}"))?;
            let mut summary = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
            summary.add(request, outcome);
            self.bar.set_message(message(&summary));
            self.bar.inc(1);
        }
    }
}

/// Waits for the arena, and shows how far it is.
fn warm_up(plan: &Plan) -> anyhow::Result<Figures> {
    let style = "{elapsed:>4} {bar:32} {bytes}/{total_bytes} of the arena are ready";
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(style)?);
    let show = |figures: Option<&Figures>| {
        if let Some(figures) = figures {
            bar.set_length(figures.arena_bytes());
            bar.set_position(figures.ready_bytes());
        }
        true
    };
    let figures = figures::wait_until_ready(&plan.socket, show)?;
    bar.finish_and_clear();
    Ok(figures)
}

fn progress(requests: usize) -> anyhow::Result<ProgressBar> {
    let style = ProgressStyle::with_template("{elapsed:>4} {bar:32} {pos}/{len} requests  {msg}")?;
    Ok(ProgressBar::new(requests as u64).with_style(style))
}

fn message(summary: &Summary) -> String {
    let served = HumanBytes(summary.served_bytes());
    format!("{:.1} % of blocks hit, {served} served", 100.0 * summary.block_hit_rate())
}

impl Process {
    fn start(plan: &Plan, index: usize) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut child = command(&program, plan, index).spawn().context("starting an engine")?;
        let input = child.stdin.take().context("an engine's input")?;
        let output = child.stdout.take().context("an engine's output")?;
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    fn ask(&mut self, request: usize) -> anyhow::Result<Outcome> {
        writeln!(self.input, "{request}").context("handing out a request")?;
        let mut line = String::new();
        if self.output.read_line(&mut line).context("reading an outcome")? == 0 {
            bail!("ended early: {}", self.child.wait().context("waiting for it")?);
        }
        serde_json::from_str(&line).context("understanding an outcome")
    }

    /// Closes its input, at which it ends.
    fn end(self) -> anyhow::Result<()> {
        let Self { mut child, input, .. } = self;
        drop(input);
        let status = child.wait().context("waiting for an engine")?;
        if !status.success() {
            bail!("an engine ended with {status}");
        }
        Ok(())
    }
}

fn command(program: &Path, plan: &Plan, index: usize) -> Command {
    let mut command = Command::new(program);
    command.arg("--socket").arg(&plan.socket).arg("--trace").arg(&plan.trace);
    command.arg("engine").arg(index.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}
