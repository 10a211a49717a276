//! The clients: so many streams at once, each followed by the next on the same connection.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::answer::Answer;
use super::event::{self, EVENT_BYTES, now_ns};
use super::worker;
use crate::{percentile, role};

/// What a client says while its load goes on: from here on events count.
pub const BEGUN: &str = "begun";
/// From here on they don't.
pub const OVER: &str = "over";
/// Until all streams have begun, and caches and connections are warm.
const WARM_UP: Duration = Duration::from_millis(500);
const READ_BYTES: usize = 16 << 10;

/// A load.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Load {
    /// Where to ask.
    pub address: SocketAddr,
    /// Streams at once.
    pub streams: u32,
    /// Events in each.
    pub events: u32,
    /// How far apart, in microseconds.
    pub interval_us: u32,
    /// How long it is measured.
    pub window_ms: u32,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Events that came while it was measured.
    pub events: u64,
    /// Streams that came to their end, ever.
    pub whole: u64,
    /// Streams that did not, or in which a byte was altered.
    pub spoiled: u64,
    /// From the worker's write to the client's read, in microseconds: p50 and p99.
    pub delay_us: [f64; 2],
    /// How much later than after its predecessor's an event came than it was written, in microseconds: p99.
    pub stretch_us: f64,
}

#[derive(Debug, Default)]
struct Tally {
    whole: u64,
    spoiled: u64,
    delays_us: Vec<f64>,
    stretches_us: Vec<f64>,
}

/// What the streams share.
#[derive(Debug)]
struct Course {
    load: Load,
    /// The time that is measured, in nanoseconds of [`now_ns`].
    window: std::ops::Range<u64>,
    tally: Mutex<Tally>,
}

/// The bytes of a request. Those with another `number` have nothing of their prompts in common.
#[must_use]
pub fn request(number: usize, body_bytes: usize, events: u32, interval_us: u32) -> Vec<u8> {
    let (before, after) =
        (r#"{"model":"m","stream":true,"messages":[{"role":"user","content":""#, r#""}]}"#);
    let text = format!("{number:08} {}", "lorem ipsum ".repeat(body_bytes / 12 + 1));
    let text = &text[..body_bytes.saturating_sub(before.len() + after.len())];
    let body = format!("{before}{text}{after}");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nuser-agent: kvd-bench\r\n\
         accept: */*\r\nauthorization: Bearer none\r\ncontent-type: application/json\r\n\
         {}: {events}\r\n{}: {interval_us}\r\ncontent-length: {}\r\n\r\n",
        worker::EVENTS,
        worker::INTERVAL_US,
        body.len(),
    );
    (head + &body).into_bytes()
}

impl Load {
    /// The arguments of its role.
    #[must_use]
    pub fn words(self) -> Vec<String> {
        let numbers = [self.streams, self.events, self.interval_us, self.window_ms];
        let numbers = numbers.iter().map(u32::to_string);
        [self.address.to_string()].into_iter().chain(numbers).collect()
    }

    /// How long one stream takes, at its pace.
    fn stream(self) -> Duration {
        Duration::from_micros(u64::from(self.interval_us) * u64::from(self.events))
    }

    /// Puts the load on, and tells when it is measured and what came of it.
    ///
    /// # Errors
    /// A connection fails.
    pub fn put(self) -> anyhow::Result<()> {
        role::say(role::READY)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(self.run())?;
        role::say(&serde_json::to_string(&outcome)?)
    }

    async fn run(self) -> anyhow::Result<Outcome> {
        let warm_up = WARM_UP + self.stream();
        let measured = Duration::from_millis(self.window_ms.into());
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let start = now_ns() + nanoseconds(warm_up);
        let window = start..start + nanoseconds(measured);
        let course = Arc::new(Course { load: self, window, tally: Mutex::default() });
        let mut streams = JoinSet::new();
        for number in 0..self.streams {
            streams.spawn(streams_of(Arc::clone(&course), number));
        }
        sleep(warm_up).await;
        role::say(BEGUN)?;
        sleep(measured).await;
        role::say(OVER)?;
        while let Some(ended) = streams.join_next().await {
            if let Err(error) = ended? {
                course.tally.lock().unwrap_or_else(PoisonError::into_inner).spoiled += 1;
                drop(writeln!(std::io::stderr(), "a stream failed: {error:#}"));
            }
        }
        let mut tally = course.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let Tally { whole, spoiled, delays_us, stretches_us } = &mut *tally;
        Ok(Outcome {
            events: delays_us.len() as u64,
            whole: *whole,
            spoiled: *spoiled,
            delay_us: [0.5, 0.99].map(|share| percentile::of(delays_us, share)),
            stretch_us: percentile::of(stretches_us, 0.99),
        })
    }
}

/// One stream after the other until the time is over; the first ones are spread over the length of a stream.
async fn streams_of(course: Arc<Course>, number: u32) -> anyhow::Result<()> {
    let load = course.load;
    sleep(load.stream() * number / load.streams).await;
    let mut connection = TcpStream::connect(load.address).await.context("connecting")?;
    connection.set_nodelay(true)?;
    let request = request(0, 1 << 10, load.events, load.interval_us);
    let (mut answer, mut buffer) = (Answer::default(), vec![0; READ_BYTES]);
    while now_ns() < course.window.end {
        connection.write_all(&request).await.context("asking")?;
        answer.clear();
        let mut last = None;
        let mut seen = 0;
        while !answer.is_over() {
            let count = connection.read(&mut buffer).await.context("reading an answer")?;
            ensure!(count > 0, "an answer broke off");
            let now = now_ns();
            answer.take(&buffer[..count])?;
            let events = answer.body()[seen..].chunks_exact(EVENT_BYTES);
            let left = load.events as usize - seen / EVENT_BYTES;
            for event in events.take(left) {
                seen += EVENT_BYTES;
                let stamp = event::stamp(event).context("another event was expected")?;
                course.note(now, stamp, last.replace((now, stamp)));
            }
        }
        let is_whole = event::is_whole(answer.body(), load.events as usize);
        let mut tally = course.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.whole += u64::from(is_whole);
        tally.spoiled += u64::from(!is_whole);
    }
    Ok(())
}

impl Course {
    /// An event that was written at `stamp` has come; `last`: the same of the one before it.
    fn note(&self, now: u64, stamp: u64, last: Option<(u64, u64)>) {
        if !self.window.contains(&now) {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "less than a minute")]
        let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.delays_us.push(us(now.saturating_sub(stamp)));
        if let Some((last_now, last_stamp)) = last {
            let stretch = us(now - last_now) - us(stamp.saturating_sub(last_stamp));
            tally.stretches_us.push(stretch);
        }
    }
}
