//! What the device gives to `fio`: `io_uring`, past the page cache, buffers in registered pages of 2 MiB, blocks and depth
//! as the caller says, in files that are there and written already.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::huge_pages::HugePages;
use crate::patience::{self, PATIENCE};

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Reads, in order.
    Read,
    /// Writes, in order.
    Write,
    /// Reads and writes in turn, anywhere.
    Mixed,
}

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What is done.
    pub pattern: Pattern,
    /// Bytes of each operation.
    pub block_bytes: u64,
    /// Operations in flight, for each job.
    pub depth: u32,
}

/// One job's part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The file.
    pub file: PathBuf,
    /// Where its part begins.
    pub offset_bytes: u64,
    /// Its length; it is gone over again and again.
    pub len_bytes: u64,
}

/// The least that is moved by each job: enough for a time that is counted in milliseconds.
const MOVED_BYTES: u64 = 1 << 30;
/// What a load moves before it counts as one.
const UNDER_WAY_BYTES: u64 = 256 << 20;
/// Longest run of a load.
const LOAD_SECONDS: u32 = 600;

/// Runs one job for each part at once and tells the bytes a second of all together.
///
/// # Errors
/// If fio is missing or fails, or the huge pages cannot be had.
pub fn speed(shape: Shape, parts: &[Part]) -> anyhow::Result<f64> {
    let _pages = reserve(shape, parts.len())?;
    let mut command = command(shape, parts);
    command.arg("--output-format=json");
    let output = command.output().context("starting fio")?;
    if !output.status.success() {
        bail!("fio ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Outcome::parse(&output.stdout)?.bytes_per_second()
}

/// A device under load, until this is dropped.
#[derive(Debug)]
#[must_use = "the load ends when this is dropped"]
pub struct Load {
    child: Child,
    _pages: HugePages,
}

impl Load {
    /// Starts one job, and waits until it is under way.
    ///
    /// # Errors
    /// If fio is missing or does not get under way, or the huge pages cannot be had.
    pub fn start(shape: Shape, part: &Part) -> anyhow::Result<Self> {
        let pages = reserve(shape, 1)?;
        let mut command = command(shape, std::slice::from_ref(part));
        command.args(["--time_based", &format!("--runtime={LOAD_SECONDS}")]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let load = Self { child: child.context("starting fio")?, _pages: pages };
        let begun = Instant::now();
        while load.moved_bytes()? < UNDER_WAY_BYTES {
            if begun.elapsed() > PATIENCE {
                bail!("fio has not moved {UNDER_WAY_BYTES} bytes in {PATIENCE:?}");
            }
            patience::pause(Duration::from_millis(1));
        }
        Ok(load)
    }

    fn moved_bytes(&self) -> anyhow::Result<u64> {
        let path = format!("/proc/{}/io", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let counts = text.lines().filter_map(|line| {
            line.strip_prefix("read_bytes: ").or(line.strip_prefix("write_bytes: "))
        });
        counts.map(|count| count.parse::<u64>().context("a count of bytes")).sum()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Both fail if it has ended, and there is nothing left to do then.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn reserve(shape: Shape, jobs: usize) -> anyhow::Result<HugePages> {
    let each = shape.block_bytes * u64::from(shape.depth) + 2 * super::huge_pages::PAGE_BYTES;
    HugePages::reserve(each * jobs as u64)
}

fn command(shape: Shape, parts: &[Part]) -> Command {
    let pattern = match shape.pattern {
        Pattern::Read => "read",
        Pattern::Write => "write",
        Pattern::Mixed => "randrw",
    };
    let mut command = Command::new("fio");
    // Jobs are threads, so that killing fio ends them all.
    command.args(["--thread", "--ioengine=io_uring", "--fixedbufs=1", "--direct=1"]);
    command.args(["--mem=mmaphuge", "--allow_file_create=0", "--refill_buffers=0"]);
    command.arg(format!("--rw={pattern}"));
    command.arg(format!("--bs={}", shape.block_bytes));
    command.arg(format!("--iodepth={}", shape.depth));
    for (index, part) in parts.iter().enumerate() {
        command.arg(format!("--name=job{index}"));
        command.arg(format!("--filename={}", escaped(&part.file)));
        command.arg(format!("--offset={}", part.offset_bytes));
        command.arg(format!("--size={}", part.len_bytes));
        command.arg(format!("--io_size={}", MOVED_BYTES.max(part.len_bytes)));
    }
    command
}

/// A colon separates file names.
fn escaped(file: &Path) -> String {
    file.display().to_string().replace(':', "\\:")
}

/// What fio tells, as far as it is wanted.
#[derive(Debug, Deserialize)]
struct Outcome {
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    error: i64,
    read: Side,
    write: Side,
}

#[derive(Debug, Deserialize)]
struct Side {
    io_bytes: u64,
    /// Milliseconds.
    runtime: u64,
}

impl Outcome {
    /// Older versions say things before and after the object.
    fn parse(output: &[u8]) -> anyhow::Result<Self> {
        let begin = output.iter().position(|byte| *byte == b'{').context("fio told nothing")?;
        let mut values = serde_json::Deserializer::from_slice(&output[begin..]).into_iter();
        values.next().context("fio told nothing")?.context("understanding fio")
    }

    /// All bytes by the time of the job that took longest.
    fn bytes_per_second(&self) -> anyhow::Result<f64> {
        let (mut bytes, mut longest_ms) = (0, 0);
        for job in &self.jobs {
            if job.error != 0 {
                bail!("a job of fio failed with error {}", job.error);
            }
            bytes += job.read.io_bytes + job.write.io_bytes;
            longest_ms = longest_ms.max(job.read.runtime).max(job.write.runtime);
        }
        if longest_ms == 0 {
            bail!("fio moved {bytes} bytes in no time");
        }
        Ok(bytes as f64 * 1e3 / longest_ms as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_jobs_count_and_the_slowest_ends_the_run() {
        let told = br#"note: both
            {"fio version": "3", "jobs": [
              {"error": 0, "read": {"io_bytes": 3000, "runtime": 1000}, "write": {"io_bytes": 0, "runtime": 0}},
              {"error": 0, "read": {"io_bytes": 0, "runtime": 0}, "write": {"io_bytes": 1000, "runtime": 2000}}]}
            trailing words"#;
        let speed = Outcome::parse(told).unwrap().bytes_per_second().unwrap();
        assert!((speed - 2000.0).abs() < 1e-9, "{speed}");
    }

    #[test]
    fn a_failed_job_is_no_speed() {
        let told = br#"{"jobs": [{"error": 5, "read": {"io_bytes": 1, "runtime": 1}, "write": {"io_bytes": 0, "runtime": 0}}]}"#;
        assert!(Outcome::parse(told).unwrap().bytes_per_second().is_err());
        assert!(Outcome::parse(b"nothing").is_err());
        assert!(Outcome { jobs: Vec::new() }.bytes_per_second().is_err());
    }
}
