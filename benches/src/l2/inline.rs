//! Bar: values that go through the socket, in both directions, against a bare transfer of the same bytes between two
//! warm buffers.

use std::time::Instant;

use anyhow::{Context as _, bail};
use kvd_client::Retention;
use kvd_proto::pack::Metadata;
use kvd_proto::v1::get::Get;
use kvd_proto::v1::set::Set;
use kvd_proto::v1::{Reply, Request};

use super::Effort;
use crate::affinity;
use crate::bar::Bar;
use crate::content::Content;
use crate::daemon::Daemon;
use crate::floor::transfer::Transfer;
use crate::keys::{self, NAMESPACE};
use crate::percentile;
use crate::reference::Reference;
use crate::report::Report;

const BOUND: f64 = 0.8;

/// Small values are sent so often in a row that a sample has as many bytes. Samples are short and
/// many, because a virtual machine's cores come closer and drift apart from one second to the next.
const BYTES_PER_SAMPLE: usize = 16 << 20;

/// Sizes with their names.
const SIZES: [(&str, usize); 2] = [("1m", 1 << 20), ("128m", 128 << 20)];

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let cores = affinity::cores()?;
    let last = *cores.last().context("a core")?;
    let server = affinity::pin(cores[0])?;
    let daemon = Daemon::start(&["--max-bytes", "1G"])?;
    let mut floor = Transfer::start()?;
    drop(server);
    let _client = affinity::pin(last)?;
    let mut reference = Reference::connect(&daemon.socket(), false)?;
    for (name, len) in SIZES {
        let repeats = (BYTES_PER_SAMPLE / len).max(1);
        measure(effort, (name, len, repeats), &mut reference, &mut floor, report)?;
    }
    Ok(())
}

fn measure(
    effort: Effort,
    (name, len, repeats): (&str, usize, usize),
    reference: &mut Reference,
    floor: &mut Transfer,
    report: &mut Report,
) -> anyhow::Result<()> {
    let key = keys::key(len as u64);
    let mut value = vec![0; len];
    Content::of(&key).fill(&mut value);
    let set = encoded(&key, &value);
    let [mut sets, mut gets] = [Speeds::default(), Speeds::default()];
    // The first pair warms both sides up.
    for pair in 0..=effort.of(5, 2) * effort.pairs() {
        let given = seconds(repeats, || floor.give(&set))?;
        let ours = seconds(repeats, || store(reference, &set))?;
        let taken = seconds(repeats, || floor.take(&mut value))?;
        let got = seconds(repeats, || fetch(reference, &key, len))?;
        if pair > 0 {
            sets.add(ours, given);
            gets.add(got, taken);
        }
    }
    let Reply::Get(found) =
        reference.ask(&Request::Get(Get { key: &key, namespace: NAMESPACE }))?
    else {
        bail!("a get was not answered inline");
    };
    if Content::of(&key).first_difference(found.value.unwrap_or_default()).is_some() {
        bail!("other bytes came back than were stored");
    }
    for (what, speeds) in [("set", &sets), ("get", &gets)] {
        let [ours, bare] = speeds.texts(len * repeats);
        report.compare(format!("inline {what}, {name}"), ours, bare, speeds.ratio());
        report.bar(Bar::at_least(format!("l2.inline.{what}.{name}"), speeds.ratio(), BOUND));
    }
    Ok(())
}

fn seconds(repeats: usize, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    for _ in 0..repeats {
        call()?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// A whole set frame, made before anything is timed.
fn encoded(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let set = Set {
        key,
        value,
        retention: Retention::Short,
        namespace: NAMESPACE,
        metadata: Metadata::EMPTY,
        ttl_seconds: None,
    };
    set.encode(&mut frame);
    frame
}

fn store(reference: &mut Reference, set: &[u8]) -> anyhow::Result<()> {
    reference.send(set)?;
    match reference.receive()? {
        Reply::SetAck(ack) if ack.accepted => Ok(()),
        other => bail!("a set was answered with {other:?}"),
    }
}

fn fetch(reference: &mut Reference, key: &[u8], len: usize) -> anyhow::Result<()> {
    match reference.ask(&Request::Get(Get { key, namespace: NAMESPACE }))? {
        Reply::Get(found) if found.value.is_some_and(|value| value.len() == len) => Ok(()),
        Reply::Get(found) => bail!("a get found {:?} bytes", found.value.map(<[u8]>::len)),
        _ => bail!("a get was not answered inline"),
    }
}

/// Seconds of ours and of the floor for the same bytes, pair by pair.
#[derive(Clone, Debug, Default)]
struct Speeds {
    ours: Vec<f64>,
    floor: Vec<f64>,
}

impl Speeds {
    fn add(&mut self, ours: f64, floor: f64) {
        self.ours.push(ours);
        self.floor.push(floor);
    }

    fn ratio(&self) -> f64 {
        let pairs = self.ours.iter().zip(&self.floor);
        percentile::median(&mut pairs.map(|(ours, floor)| floor / ours).collect::<Vec<_>>())
    }

    fn texts(&self, bytes: usize) -> [String; 2] {
        [&self.ours, &self.floor].map(|side| {
            format!("{:.2} GB/s", bytes as f64 / percentile::median(&mut side.clone()) / 1e9)
        })
    }
}
