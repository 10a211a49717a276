//! Bar: what a call costs through the socket with a million rows, against ten thousand.

use anyhow::{Context as _, bail};
use kvd_client::Retention;
use kvd_proto::pack::{Array, Metadata};
use kvd_proto::v1::exists::Exists;
use kvd_proto::v1::set::Set;
use kvd_proto::v1::stats::Stats;
use kvd_proto::v1::{Reply, Request};

use super::Effort;
use super::crowd::{BLOCK_BYTES, Crowd};
use super::round_trip::{self, Pairs};
use crate::bar::Bar;
use crate::content::Content;
use crate::keys::{self, NAMESPACE};
use crate::report::Report;

const BOUND: f64 = 1.5;
/// Keys of the larger question; its figure is shown, not judged: rows that no cache holds cost more, whoever looks.
const MANY_KEYS: u64 = 64;
/// Of so many rows one is asked for.
const SPARSE: u64 = 10;

/// A call, made so many times in a row; tells how long each took.
type Call = fn(&mut Crowd, usize) -> anyhow::Result<Vec<f64>>;

pub(super) fn run(
    effort: Effort,
    few: &mut Crowd,
    many: &mut Crowd,
    report: &mut Report,
) -> anyhow::Result<()> {
    let calls = effort.of(5_000, 1_000);
    let named: [(&str, Call, bool); 5] = [
        ("stats", stats, true),
        ("evict", evict, true),
        // Behind evictions, because a row that was reported present is not evicted for a while.
        ("exists", |crowd, calls| exists(crowd, calls, 1), true),
        ("exists of 64", |crowd, calls| exists(crowd, calls, MANY_KEYS), false),
        ("stats, protocol 2", modern_stats, false),
    ];
    for (name, call, counts) in named {
        let mut pairs = Pairs::default();
        for _ in 0..effort.pairs() {
            let small = call(few, calls)?;
            pairs.add(call(many, calls)?, small);
        }
        let [large, small] = pairs.texts();
        report.compare(
            format!("{name}, 1 M rows against 10 k: p50 / p99"),
            large,
            small,
            pairs.ratios()[0],
        );
        if counts {
            report.bar(Bar::at_most(format!("l2.growth.{name}"), pairs.ratios()[0], BOUND));
        }
    }
    Ok(())
}

fn stats(crowd: &mut Crowd, calls: usize) -> anyhow::Result<Vec<f64>> {
    let rows = crowd.rows;
    round_trip::sample(calls, |_| match crowd.reference.ask(&Request::Stats(Stats))? {
        Reply::Stats(stats) if stats.entries <= rows => Ok(()),
        other => bail!("stats were answered with {other:?}"),
    })
}

fn modern_stats(crowd: &mut Crowd, calls: usize) -> anyhow::Result<Vec<f64>> {
    round_trip::sample(calls, |_| Ok(crowd.client.stats().map(drop)?))
}

/// Asks for keys all over the store. Only every tenth is ever asked for: no more than a quarter of
/// the arena may be promised at a time.
fn exists(crowd: &mut Crowd, calls: usize, count: u64) -> anyhow::Result<Vec<f64>> {
    let random = Content::of(&crowd.next.to_le_bytes());
    let oldest = crowd.next - crowd.rows;
    let number = |index: u64| {
        #[expect(clippy::cast_possible_truncation, reason = "an index of a few thousand")]
        let word = random.word(index as usize);
        (oldest + word % crowd.rows).next_multiple_of(SPARSE)
    };
    let asked: Vec<keys::Key> =
        (0..calls as u64 * count).map(|index| keys::key(number(index))).collect();
    let asked: Vec<&[u8]> = asked.iter().map(|key| key.as_slice()).collect();
    let per_call = usize::try_from(count)?;
    let mut present = 0;
    let took = round_trip::sample(calls, |index| {
        let keys = Array::Slice(&asked[index * per_call..][..per_call]);
        match crowd.reference.ask(&Request::Exists(Exists { keys, namespace: NAMESPACE }))? {
            Reply::Exists(answer) => {
                present += answer.present.iter().filter(|present| *present).count()
            }
            other => bail!("exists was answered with {other:?}"),
        }
        Ok(())
    })?;
    if present * 10 < asked.len() * 9 {
        bail!("only {present} of {} rows were there", asked.len());
    }
    Ok(took)
}

/// Stores new blocks in a full arena: each has to evict another.
fn evict(crowd: &mut Crowd, calls: usize) -> anyhow::Result<Vec<f64>> {
    let before = crowd.daemon.figures()?.get("evictions_total");
    let bytes = [7; BLOCK_BYTES];
    let first = crowd.next;
    crowd.next += calls as u64;
    let took = round_trip::sample(calls, |index| {
        let key = keys::key(first + index as u64);
        let set = Set {
            key: &key,
            value: &bytes,
            retention: Retention::Short,
            namespace: NAMESPACE,
            metadata: Metadata::EMPTY,
            ttl_seconds: None,
        };
        match crowd.reference.ask(&Request::Set(set))? {
            Reply::SetAck(ack) if ack.accepted => Ok(()),
            other => bail!("a set was answered with {other:?}"),
        }
    })?;
    let evicted =
        crowd.daemon.figures().context("counting evictions")?.get("evictions_total") - before;
    if evicted * 2 < calls as u64 {
        bail!("{calls} sets evicted only {evicted} rows");
    }
    Ok(took)
}
