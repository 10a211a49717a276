//! What workers say of themselves when asked: once a second, whatever else they do. Who does not answer is judged by
//! what the router itself has sent there.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use router_core::account::Polled;
use router_tls::{Connector, Trust};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::fleet::{self, Worker};
use crate::phase::{self, Phase};

const EVERY: Duration = Duration::from_secs(1);
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_millis(900);
/// Workers that are asked at once.
const AT_ONCE_MAX: usize = 64;
/// Longest answer that is looked at.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The ways in which engines spell one figure.
type Names = &'static [&'static str];
const WAITING: Names = &["vllm:num_requests_waiting", "sglang:num_queue_reqs"];
const RUNNING: Names = &["vllm:num_requests_running", "sglang:num_running_reqs"];
const MEMORY_USED: Names =
    &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"];
/// Labels that name a rank.
const RANKS: [&str; 2] = ["engine=\"", "dp_rank=\""];

type ToWorkers = Client<Connector, Empty<Bytes>>;

/// Asks all workers until the process is closing.
pub async fn run(fleet: fleet::Shared, trust: Trust, mut phase: phase::Current) {
    let connector = trust.connector(HttpConnector::new(), PATIENCE);
    let client: ToWorkers = Client::builder(TokioExecutor::new()).build(connector);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = phase::reached(&mut phase, Phase::Closing) => return,
        }
        let workers: Vec<_> = fleet.load().workers().cloned().collect();
        let client = &client;
        let polls = iter(workers).for_each_concurrent(AT_ONCE_MAX, |worker| async move {
            let text = timeout(PATIENCE, ask(client, &worker)).await.ok().flatten();
            let ranks = worker.record.ranks();
            for rank in ranks.clone().unwrap_or(0..1) {
                let rank = ranks.is_some().then_some(rank);
                let polled = text.as_deref().and_then(|text| read(text, rank));
                worker.life.account(rank).set_polled(polled);
            }
        });
        tokio::select! {
            () = polls => {}
            () = phase::reached(&mut phase, Phase::Closing) => return,
        }
    }
}

async fn ask(client: &ToWorkers, worker: &Worker) -> Option<String> {
    let url = format!("{}/metrics", worker.record.url.trim_end_matches('/'));
    let answer = client.request(Request::get(url).body(Empty::new()).ok()?).await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    let (mut body, mut text) = (answer.into_body(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.ok()?.into_data() {
            text.extend_from_slice(&data);
        }
        if text.len() > ANSWER_BYTES_MAX {
            return None;
        }
    }
    String::from_utf8(text.into()).ok()
}

/// What the text says of a rank, or of all there are. Nothing if it does not say how many requests wait.
fn read(text: &str, rank: Option<u32>) -> Option<Polled> {
    let waiting = samples(text, WAITING, rank).reduce(|one, other| one + other)?;
    let running: f64 = samples(text, RUNNING, rank).sum();
    let memory_used = samples(text, MEMORY_USED, rank).fold(0.0, f64::max).clamp(0.0, 1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    let count = |value: f64| value as u32;
    Some(Polled { waiting: count(waiting), running: count(running), memory_used })
}

fn samples<'t>(text: &'t str, names: Names, rank: Option<u32>) -> impl Iterator<Item = f64> + 't {
    text.lines().filter_map(move |line| {
        let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once('}')?,
            None => ("", rest.strip_prefix(' ')?),
        };
        let is_meant = rank.is_none_or(|rank| rank_of(labels) == Some(rank));
        let value = value.split_ascii_whitespace().next().filter(|_| is_meant)?;
        value.parse().ok().filter(|value: &f64| value.is_finite())
    })
}

fn rank_of(labels: &str) -> Option<u32> {
    RANKS.iter().find_map(|label| labels.split_once(label)?.1.split('"').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VLLM: &str = "# HELP vllm:num_requests_waiting x\n\
        vllm:num_requests_waiting{engine=\"0\",model_name=\"a}b\"} 3.0\n\
        vllm:num_requests_waiting{engine=\"1\",model_name=\"m\"} 4.0\n\
        vllm:num_requests_waiting_by_reason{engine=\"1\"} 9.0\n\
        vllm:num_requests_running{engine=\"0\"} 5.0\n\
        vllm:num_requests_running{engine=\"1\"} 6.0 1700000000\n\
        vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n\
        vllm:kv_cache_usage_perc{engine=\"1\"} 0.75\n";

    #[test]
    fn ranks_are_told_apart_and_added_up() {
        let of = |rank| {
            let Polled { waiting, running, memory_used } = read(VLLM, rank).unwrap();
            (waiting, running, memory_used)
        };
        assert_eq!(of(Some(0)), (3, 5, 0.25));
        assert_eq!(of(Some(1)), (4, 6, 0.75));
        assert_eq!(of(None), (7, 11, 0.75));
        assert_eq!(read(VLLM, Some(2)), None);
    }

    #[test]
    fn sglang_spells_it_otherwise_and_nonsense_says_nothing() {
        let text = "sglang:num_queue_reqs{tp_rank=\"0\"} 2\nsglang:num_running_reqs 1\nsglang:token_usage NaN\n";
        let polled = read(text, None).unwrap();
        assert_eq!((polled.waiting, polled.running, polled.memory_used), (2, 1, 0.0));
        for text in ["", "vllm:num_requests_waiting", "vllm:num_requests_waiting{ 3", "x 1"] {
            assert_eq!(read(text, None), None, "{text}");
        }
    }
}
