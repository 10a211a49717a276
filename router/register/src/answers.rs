//! What the answers of engines say. Pure: bytes in, facts out; whatever is not understood is not said.

use std::collections::BTreeMap;

use router_core::record::DisaggMode;
use serde_json::Value;

use crate::command_line::Ranks;
use crate::events::Publisher;

/// A model that an engine serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) name: String,
    /// Where it was loaded from.
    pub(crate) root: Option<String>,
}

/// The model itself among those of `/v1/models`: adapters name the one they belong to, aliases come later.
pub(crate) fn model(answer: &Value) -> Option<Model> {
    let models = answer.get("data")?.as_array()?;
    let model = models.iter().find(|model| model.get("parent").is_none_or(Value::is_null))?;
    let text = |name: &str| Some(model.get(name)?.as_str()?.to_owned());
    Some(Model { name: text("id")?, root: text("root") })
}

/// The block size in vLLM's `/metrics`.
pub(crate) fn vllm_block_size(metrics: &str) -> Option<u32> {
    let line = metrics.lines().find(|line| line.starts_with("vllm:cache_config_info{"))?;
    // Not the end of another label's name.
    let at = ["{block_size=\"", ",block_size=\""].iter().find_map(|label| {
        let at = line.find(label)?;
        Some(at + label.len())
    })?;
    let (size, _) = line[at..].split_once('"')?;
    size.parse().ok().filter(|size| *size > 0)
}

/// The sum of the samples of these names, over all labels; nothing if there are none.
pub(crate) fn sum_of(metrics: &str, names: &[&str]) -> Option<f64> {
    let values = metrics.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let name = series.split('{').next()?;
        names.contains(&name).then(|| value.parse::<f64>().ok())?
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

/// The publishers of each rank that vLLM tells at `/kv_event_sources`.
pub(crate) fn vllm_publishers(answer: &Value) -> BTreeMap<u32, Publisher> {
    let ranks = answer.as_object().into_iter().flatten();
    ranks
        .filter_map(|(rank, config)| {
            let mut publisher = Publisher::of(config.as_object()?);
            // What an engine tells after its start is where it listens, with the address it got for `tcp://*:0`.
            publisher.binds = Some(true);
            Some((rank.parse().ok()?, publisher))
        })
        .collect()
}

/// What SGLang tells of itself at `/server_info`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerInfo {
    pub(crate) block_size: Option<u32>,
    pub(crate) ranks: Ranks,
    pub(crate) max_decodes: Option<u32>,
    pub(crate) tokenizer: Option<String>,
    pub(crate) disagg_mode: DisaggMode,
    pub(crate) publisher: Option<Publisher>,
}

impl ServerInfo {
    /// Reads it; nothing if this is another engine's answer.
    pub(crate) fn of(answer: &Value) -> Option<Self> {
        let number = |of: &Value, name: &str| {
            u32::try_from(of.get(name)?.as_u64()?).ok().filter(|number| *number > 0)
        };
        let text = |name: &str| answer.get(name)?.as_str();
        let page = number(answer, "page_size")?;
        let events = answer.get("kv_events").filter(|events| events.is_object());
        let configured = || serde_json::from_str(text("kv_events_config")?).ok();
        let described = events.and_then(described);
        Some(Self {
            block_size: events.and_then(|events| number(events, "block_size")).or(Some(page)),
            ranks: match number(answer, "dp_size") {
                Some(size) if size > 1 => Ranks::Multiplexed { size },
                _ => Ranks::Unsaid,
            },
            // What it was given; else what it found that it has room for.
            max_decodes: number(answer, "max_running_requests").or_else(|| {
                let first = answer.get("internal_states")?.get(0)?;
                number(first, "effective_max_running_requests_per_dp")
            }),
            tokenizer: text("tokenizer_path").or_else(|| text("model_path")).map(str::to_owned),
            disagg_mode: match text("disaggregation_mode") {
                Some("prefill") => DisaggMode::Prefill,
                Some("decode") => DisaggMode::Decode,
                _ => DisaggMode::Mixed,
            },
            publisher: described.or_else(|| configured().as_ref().map(Publisher::of)),
        })
    }
}

/// The publisher as newer releases describe it.
fn described(events: &Value) -> Option<Publisher> {
    let host = events.get("endpoint_host")?.as_str()?;
    let port = |name: &str| events.get(name)?.as_u64();
    Some(Publisher {
        is_on: true,
        endpoint: format!("tcp://{host}:{}", port("endpoint_port_base")?),
        replay: port("replay_endpoint_port_base").map(|port| format!("tcp://{host}:{port}")),
        topic: events.get("topic").and_then(Value::as_str).unwrap_or_default().to_owned(),
        binds: Some(true),
    })
}

/// Requests that SGLang has not finished, at `/v1/loads`.
pub(crate) fn sglang_load(answer: &Value) -> Option<f64> {
    let ranks = answer.get("loads")?.as_array()?;
    let number = |rank: &Value, name: &str| rank.get(name)?.as_f64();
    ranks.iter().try_fold(0.0, |sum, rank| {
        Some(sum + number(rank, "num_running_reqs")? + number(rank, "num_waiting_reqs")?)
    })
}

/// The token ids in the answer of `/tokenize`.
pub(crate) fn tokens(answer: &Value) -> Option<Vec<u32>> {
    let tokens = answer.get("tokens")?.as_array()?;
    tokens.iter().map(|token| u32::try_from(token.as_u64()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const METRICS: &str = "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n\
        vllm:cache_config_info{mamba_block_size=\"7\",block_size=\"32\",engine=\"0\",user_specified_block_size=\"True\"} 1.0\n\
        vllm:num_requests_running{engine=\"0\",model_name=\"a b\"} 2.0\n\
        vllm:num_requests_running{engine=\"1\",model_name=\"a b\"} 1.0\n\
        vllm:num_requests_waiting{engine=\"0\"} 3.0\n\
        vllm:num_requests_waiting_by_reason{engine=\"0\"} 100.0\n";

    #[test]
    fn the_model_is_told_from_its_adapters() {
        let answer = json!({"data": [
            {"id": "sql", "root": "/lora", "parent": "base"}, {"id": "base", "root": "/m", "parent": null},
            {"id": "alias", "root": "/m"}]});
        let wanted = Model { name: "base".into(), root: Some("/m".into()) };
        assert_eq!(model(&answer), Some(wanted));
        for nothing in [json!({"data": []}), json!({}), json!([]), json!({"data": [{"id": 7}]})] {
            assert_eq!(model(&nothing), None);
        }
    }

    #[test]
    fn metrics_are_read_by_whole_names() {
        assert_eq!(vllm_block_size(METRICS), Some(32));
        assert_eq!(vllm_block_size("vllm:cache_config_info{mamba_block_size=\"7\"} 1"), None);
        assert_eq!(vllm_block_size("vllm:cache_config_info{block_size=\"None\"} 1"), None);
        let names = ["vllm:num_requests_running", "vllm:num_requests_waiting"];
        assert_eq!(sum_of(METRICS, &names), Some(6.0));
        assert_eq!(sum_of(METRICS, &["sglang:num_running_reqs"]), None);
    }

    #[test]
    fn vllm_tells_where_each_rank_publishes() {
        let answer = json!({
            "1": {"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://10.0.0.1:4242"},
            "0": {"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557",
                  "replay_endpoint": "tcp://*:5558", "topic": "kv-events"}, "x": 7});
        let publishers = vllm_publishers(&answer);
        assert_eq!(publishers.len(), 2);
        assert_eq!(publishers[&1].place().unwrap().endpoint("h"), "tcp://10.0.0.1:4242");
        assert_eq!(publishers[&0].replay.as_deref(), Some("tcp://*:5558"));
        assert!(vllm_publishers(&json!({"detail": "Not Found"})).is_empty());
    }

    #[test]
    fn sglang_tells_most_of_it_itself() {
        let mut answer = json!({
            "page_size": 64, "dp_size": 2, "max_running_requests": 48, "tokenizer_path": "/t", "disaggregation_mode": "null",
            "kv_events_config": "{\"publisher\": \"zmq\", \"endpoint\": \"tcp://*:1\"}",
            "kv_events": {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5557, "topic": "kv-events",
                          "block_size": 128, "dp_size": 2, "replay_endpoint_port_base": 5570}});
        let info = ServerInfo::of(&answer).unwrap();
        assert_eq!((info.block_size, info.max_decodes), (Some(128), Some(48)));
        assert_eq!(info.ranks, Ranks::Multiplexed { size: 2 });
        let publisher = info.publisher.unwrap();
        assert_eq!(publisher.place().unwrap().endpoint("h"), "tcp://h:5557");
        assert_eq!(publisher.replay.as_deref(), Some("tcp://*:5570"));
        // An older release.
        answer["kv_events"] = Value::Null;
        answer["disaggregation_mode"] = json!("prefill");
        let info = ServerInfo::of(&answer).unwrap();
        assert_eq!(info.block_size, Some(64));
        assert_eq!(info.publisher.unwrap().endpoint, "tcp://*:1");
        assert_eq!(info.disagg_mode, DisaggMode::Prefill);
        answer["max_running_requests"] = Value::Null;
        answer["internal_states"] = json!([{"effective_max_running_requests_per_dp": 7}]);
        assert_eq!(ServerInfo::of(&answer).unwrap().max_decodes, Some(7));
        assert_eq!(ServerInfo::of(&json!({"vllm_config": "…"})), None);
    }

    #[test]
    fn loads_and_tokens_are_all_or_nothing() {
        let loads = json!({"loads": [{"num_running_reqs": 1, "num_waiting_reqs": 2}, {"num_running_reqs": 3, "num_waiting_reqs": 0}]});
        assert_eq!(sglang_load(&loads), Some(6.0));
        assert_eq!(sglang_load(&json!({"loads": [{"num_running_reqs": 1}]})), None);
        assert_eq!(tokens(&json!({"tokens": [1, 2]})), Some(vec![1, 2]));
        assert_eq!(tokens(&json!({"tokens": [1, -2]})), None);
        assert_eq!(tokens(&json!({"tokens": [[1]]})), None);
    }
}
