//! `events`: what the daemon publishes, or whether it is what the daemon holds.

mod feed;
mod fold;
mod show;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use kvd_proto::events::{Batch, Event, SnapshotItem, SnapshotReader};

use self::feed::{Feed, Heard};
use self::fold::Fold;
use crate::admin::Admin;
use crate::exit::codes;
use crate::sockets::Sockets;
use crate::text;

/// How long a message is waited for before it is looked at the clock again.
const LOOK: Duration = Duration::from_millis(200);
/// What the daemon has published arrives within this time, or is lost.
const ARRIVAL: Duration = Duration::from_secs(10);
/// How long to listen before looking again whether both are the same: more than messages wait for company.
const SETTLE: Duration = Duration::from_millis(200);

/// Print what the daemon publishes, or check that it is what the daemon holds
#[derive(Debug, Args)]
#[command(after_help = codes!(
    "0 printed, or what was told is what is held, 1 no daemon, no events, or a difference"
))]
pub(crate) struct Events {
    /// Fold snapshot, live messages and replays, and compare them with the daemon's sums and with a second snapshot
    #[arg(long)]
    check: bool,
    /// Print one JSON object a line; with --check, one in all
    #[arg(long)]
    json: bool,
    /// How long to listen; by default 12s with --check, else until interrupted
    #[arg(long = "for", value_name = "TIME", value_parser = text::span)]
    length: Option<Duration>,
    /// File (mode 0600) with a line `client PUBLIC SECRET`, where the daemon asks for a key
    #[arg(long, value_name = "PATH")]
    curve_file: Option<PathBuf>,
}

pub(crate) fn run(sockets: &Sockets, events: &Events) -> Result<ExitCode> {
    let admin = sockets.admin()?;
    let mut feed = Feed::open(&admin, events.curve_file.as_deref())?;
    if events.check {
        let until = Instant::now() + events.length.unwrap_or(Duration::from_secs(12));
        return check(&admin, &mut feed, until, events.json);
    }
    let until = events.length.map(|length| Instant::now() + length);
    print(&mut feed, until, events.json)
}

fn print(feed: &mut Feed, until: Option<Instant>, json: bool) -> Result<ExitCode> {
    let mut out = io::stdout();
    while until.is_none_or(|until| Instant::now() < until) {
        match feed.next(LOOK)? {
            Heard::Nothing => {}
            Heard::Lost => writeln!(io::stderr(), "messages are missing, and no longer kept")?,
            Heard::Message { seq, payload } => {
                for event in Batch::decode(&payload)?.events() {
                    writeln!(out, "{}", show::line(seq, &event, json))?;
                }
                out.flush()?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What a check has found.
#[derive(Debug, Default, serde::Serialize)]
struct Findings {
    messages: u64,
    replayed: u64,
    /// Times that only a snapshot helped.
    begun_anew: u64,
    /// Sums of the daemon that were compared, and those that differ.
    digests: u64,
    digests_differ: u64,
    /// Rows that are told, and rows of the second snapshot.
    rows: u64,
    rows_held: u64,
    /// What differs, at most some of it.
    differences: Vec<String>,
}

fn check(admin: &Admin, feed: &mut Feed, until: Instant, json: bool) -> Result<ExitCode> {
    let mut findings = Findings::default();
    let mut told = snapshot(admin, feed)?;
    while Instant::now() < until {
        hear(admin, feed, &mut told, None, LOOK, &mut findings)?;
    }
    // Both end at the same message: what is told, and what is held with what was told since.
    let mut held = snapshot(admin, feed)?;
    let target = feed::places(admin)?.seq;
    let deadline = Instant::now() + ARRIVAL;
    // What was decided before the snapshot may not be published yet: it comes to both.
    loop {
        let settled = Instant::now() + SETTLE;
        while (told.seq < target || Instant::now() < settled) && Instant::now() < deadline {
            hear(admin, feed, &mut told, Some(&mut held), LOOK, &mut findings)?;
        }
        findings.differences = told.differences(&held);
        if findings.differences.is_empty() || Instant::now() >= deadline {
            break;
        }
    }
    findings.replayed = feed.replayed;
    findings.rows = told.len();
    findings.rows_held = held.len();
    if told.seq < target {
        findings.differences.push(format!("message {target} did not arrive"));
    }
    let is_right = findings.differences.is_empty() && findings.digests_differ == 0;
    if json {
        text::print_json(&serde_json::to_value(&findings)?)?;
    } else {
        let mut out = io::stdout();
        for difference in &findings.differences {
            writeln!(out, "{difference}")?;
        }
        let Findings { messages, replayed, begun_anew, digests, digests_differ, rows, .. } =
            findings;
        writeln!(
            out,
            "{}: {rows} rows after {messages} messages, {replayed} of them replayed; begun anew \
             {begun_anew} times; {digests} sums compared, {digests_differ} differ",
            if is_right { "equal" } else { "different" }
        )?;
    }
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn hear(
    admin: &Admin,
    feed: &mut Feed,
    told: &mut Fold,
    held: Option<&mut Fold>,
    patience: Duration,
    findings: &mut Findings,
) -> Result<()> {
    match feed.next(patience)? {
        Heard::Nothing => {}
        Heard::Lost => {
            findings.begun_anew += 1;
            *told = snapshot(admin, feed)?;
            if let Some(held) = held {
                *held = snapshot(admin, feed)?;
            }
        }
        Heard::Message { seq, payload } => {
            findings.messages += 1;
            let batch = Batch::decode(&payload)?;
            let mut folds = vec![told];
            folds.extend(held);
            for fold in folds.into_iter().filter(|fold| fold.seq < seq) {
                for event in batch.events() {
                    if let Event::Digest(digest) = &event {
                        findings.digests += 1;
                        findings.digests_differ += u64::from(!fold.agrees(digest));
                    }
                    fold.apply(&event);
                }
                fold.seq = seq;
            }
        }
    }
    Ok(())
}

/// Everything that the daemon holds; the feed goes on behind it.
fn snapshot(admin: &Admin, feed: &mut Feed) -> Result<Fold> {
    let (mut fold, mut count, mut is_whole) = (Fold::default(), 0, false);
    let mut reader = SnapshotReader::new();
    admin.stream("/v1/events/snapshot", |piece| {
        reader.push(piece);
        while let Some(item) = reader.next_item()? {
            match item {
                SnapshotItem::Header { epoch, seq, .. } => {
                    feed.go_on_from(epoch, seq);
                    fold.seq = seq;
                }
                SnapshotItem::Row(stored) => {
                    count += 1;
                    fold.apply(&Event::Stored(stored));
                }
                SnapshotItem::Skipped => count += 1,
                SnapshotItem::End { count: rows } => is_whole = rows == count,
            }
        }
        Ok(())
    })?;
    is_whole.then_some(fold).context("the snapshot broke off")
}
