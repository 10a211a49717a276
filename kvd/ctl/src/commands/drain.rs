//! `drain`: what only memory holds is written to disk, ahead of a planned restart.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::admin::Admin;
use crate::exit::codes;
use crate::sockets::Sockets;
use crate::text;

/// Write what only memory holds to disk, so that a restart finds it
///
/// Blocks of class long and short are written, the most valuable first, and made durable. Engines go on working
/// meanwhile; what they store after the drain has begun is not waited for. Interrupting kvdctl does not end the drain.
///
/// Before a restart: `kvdctl drain && systemctl restart infera-kvd`.
#[derive(Debug, Args)]
#[command(after_help = codes!("0 every block was written, 1 not every one"))]
pub(crate) struct Drain {
    /// Give up after this time: 60s, 2m, …
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = text::span)]
    deadline: Duration,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// Between two questions how far it is.
const PAUSE: Duration = Duration::from_millis(200);
/// How long after its deadline the daemon may take to say that it gave up.
const GRACE: Duration = Duration::from_secs(10);

/// How far the daemon is.
#[derive(Debug, Deserialize, Serialize)]
struct Progress {
    state: State,
    /// Bytes that there were to write.
    total_bytes: u64,
    left_bytes: u64,
    left_blocks: u64,
    /// Blocks that no device took.
    failed_blocks: u64,
    /// Blocks that the devices had no room for.
    no_room_blocks: u64,
    /// Whether what was written is on stable storage.
    durable: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    None,
    Running,
    Done,
    GaveUp,
}

pub(crate) fn run(sockets: &Sockets, drain: &Drain) -> Result<ExitCode> {
    let admin = sockets.admin()?;
    let began = Instant::now();
    let deadline_ms = drain.deadline.as_millis().to_string();
    let first = admin.post("/v1/drain", &[("deadline_ms", &deadline_ms)])?;
    let last = follow(&admin, first, began + drain.deadline + GRACE)?;
    if drain.json {
        text::print_json(&last)?;
    } else {
        writeln!(io::stdout(), "{}", in_words(&last, drain.deadline, began.elapsed()))?;
    }
    Ok(if last.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks until it is over.
fn follow(admin: &Admin, first: Progress, until: Instant) -> Result<Progress> {
    let style = ProgressStyle::with_template(
        "drain    {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    )?;
    let bar = ProgressBar::new(first.total_bytes).with_style(style);
    let mut progress = first;
    while progress.state == State::Running {
        if Instant::now() > until {
            bail!("the daemon neither ended the drain nor gave it up by its deadline");
        }
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.total_bytes.saturating_sub(progress.left_bytes));
        admin.pause(PAUSE);
        progress = admin.get("/v1/drain", &[])?;
    }
    bar.finish_and_clear();
    Ok(progress)
}

impl Progress {
    fn is_complete(&self) -> bool {
        self.state == State::Done
            && self.durable
            && self.left_blocks == 0
            && self.failed_blocks == 0
            && self.no_room_blocks == 0
    }
}

fn in_words(progress: &Progress, deadline: Duration, took: Duration) -> String {
    let written = progress.total_bytes.saturating_sub(progress.left_bytes);
    let (written, total) = (text::bytes(written), text::bytes(progress.total_bytes));
    if progress.is_complete() {
        return format!("all written: {written} in {}", shown(took));
    }
    let mut words = match progress.state {
        State::GaveUp if took >= deadline => {
            format!("given up after the deadline of {}", shown(deadline))
        }
        State::GaveUp => {
            format!(
                "given up after {}: no device works, or another drain ran out of time",
                shown(took)
            )
        }
        State::None => "the daemon started anew meanwhile".to_owned(),
        State::Done | State::Running => format!("ended after {}", shown(took)),
    };
    words += &format!("; {written} of {total} written");
    if progress.left_blocks > 0 {
        let (blocks, bytes) = (text::count(progress.left_blocks), text::bytes(progress.left_bytes));
        words += &format!(", {blocks} blocks ({bytes}) left");
    }
    if progress.failed_blocks > 0 {
        words += &format!(", {} blocks taken by no device", text::count(progress.failed_blocks));
    }
    if progress.no_room_blocks > 0 {
        let blocks = text::count(progress.no_room_blocks);
        words += &format!(", {blocks} cold blocks left out for lack of room");
    }
    if !progress.durable {
        words += ", not confirmed to be on stable storage";
    }
    words
}

fn shown(took: Duration) -> String {
    text::millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(text: &str) -> Progress {
        serde_json::from_str(text).expect("a progress")
    }

    #[test]
    fn only_everything_durable_is_complete() {
        let whole = r#"{"state": "done", "total_bytes": 1048576, "left_bytes": 0,
            "left_blocks": 0, "failed_blocks": 0, "no_room_blocks": 0, "durable": true}"#;
        let (deadline, took) = (Duration::from_millis(1), Duration::from_millis(1500));
        assert!(progress(whole).is_complete());
        assert_eq!(in_words(&progress(whole), deadline, took), "all written: 1.00 MiB in 1500ms");
        for (from, to) in [
            ("done", "gave_up"),
            ("\"failed_blocks\": 0", "\"failed_blocks\": 2"),
            ("\"left_blocks\": 0", "\"left_blocks\": 3"),
            ("\"no_room_blocks\": 0", "\"no_room_blocks\": 4"),
            ("true", "false"),
        ] {
            let part = progress(&whole.replace(from, to));
            assert!(!part.is_complete(), "{part:?}");
            assert!(!in_words(&part, deadline, took).contains("all written"), "{part:?}");
        }
    }

    #[test]
    fn who_gave_up_says_why_and_what_is_left() {
        let gave_up = r#"{"state": "gave_up", "total_bytes": 1048576, "left_bytes": 262144,
            "left_blocks": 3, "failed_blocks": 0, "no_room_blocks": 0, "durable": false}"#;
        let (short, long) = (Duration::from_millis(1), Duration::from_millis(203));
        assert_eq!(
            in_words(&progress(gave_up), short, long),
            "given up after the deadline of 1ms; 768.00 KiB of 1.00 MiB written, 3 blocks (256.00 KiB) left, \
             not confirmed to be on stable storage"
        );
        let said = in_words(&progress(gave_up), long, short);
        assert!(
            said.starts_with(
                "given up after 1ms: no device works, or another drain ran out of time; 768"
            ),
            "{said}"
        );
    }
}
