//! What an engine's command line says of it. Pure: the engine itself is asked afterwards, and knows better where it
//! answers.

use std::collections::BTreeMap;
use std::path::Path;

use router_core::record::{DisaggMode, Engine};
use serde_json::{Map, Value};

use crate::events::Publisher;

/// What was said. An empty command line says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CommandLine {
    pub(crate) engine: Option<Engine>,
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
    /// Whether it serves HTTPS.
    pub(crate) is_encrypted: bool,
    pub(crate) ranks: Ranks,
    pub(crate) events: Option<Publisher>,
    /// Requests that are decoded at once.
    pub(crate) max_decodes: Option<u32>,
    pub(crate) tokenizer: Option<String>,
    pub(crate) disagg_mode: DisaggMode,
}

/// How the ranks of data parallelism are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ranks {
    /// There is one, or the engine is to be asked.
    #[default]
    Unsaid,
    /// All behind one port; a header of the request chooses.
    Multiplexed { size: u32 },
    /// This server is one of `size`; others are elsewhere.
    One { rank: u32, size: u32 },
    /// One server a rank, on ports that follow each other.
    PortEach { first: u32, local: u32, size: u32 },
    /// Some of them behind one port, the others behind others': no header of ours could name them.
    Some,
}

impl CommandLine {
    /// Reads the words with which an engine is started.
    pub(crate) fn of(words: &[String]) -> Self {
        let engine = engine(words);
        let flags = Flags::of(words);
        let ranks = match engine {
            Some(Engine::Sglang) => match flags.number(&["dp-size", "data-parallel-size", "dp"]) {
                Some(size) if size > 1 => Ranks::Multiplexed { size },
                _ => Ranks::Unsaid,
            },
            _ => vllm_ranks(&flags),
        };
        Self {
            engine,
            host: flags.text(&["host"]).map(str::to_owned),
            port: flags.text(&["port"]).and_then(|port| port.parse().ok()),
            is_encrypted: flags.has("ssl-certfile"),
            ranks,
            events: flags.object("kv-events-config").map(|config| Publisher::of(&config)),
            max_decodes: flags.number(&["max-num-seqs", "max-running-requests"]),
            tokenizer: flags.text(&["tokenizer", "tokenizer-path"]).map(str::to_owned),
            disagg_mode: disagg_mode(&flags),
        }
    }

    /// How the engine is asked.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.is_encrypted { "https" } else { "http" }
    }

    /// The address that the engine listens on; nothing for all of them.
    pub(crate) fn host_or_default(&self) -> Option<String> {
        let is_sglang = self.engine == Some(Engine::Sglang);
        self.host.clone().or_else(|| is_sglang.then(|| "127.0.0.1".to_owned()))
    }

    /// The port that the engine serves on.
    pub(crate) fn port_or_default(&self) -> u16 {
        let default = if self.engine == Some(Engine::Sglang) { 30_000 } else { 8_000 };
        self.port.unwrap_or(default)
    }
}

/// The engine that the program, its script or its module belongs to.
fn engine(words: &[String]) -> Option<Engine> {
    let module = words.iter().position(|word| word == "-m").and_then(|at| words.get(at + 1));
    let names = words.iter().take_while(|word| !word.starts_with("--"));
    let names = names.filter_map(|word| Path::new(word).file_name()?.to_str());
    module.map(String::as_str).into_iter().chain(names).find_map(|name| {
        [("vllm", Engine::Vllm), ("sglang", Engine::Sglang), ("atom", Engine::Atom)]
            .into_iter()
            .find_map(|(word, engine)| name.starts_with(word).then_some(engine))
    })
}

fn vllm_ranks(flags: &Flags<'_>) -> Ranks {
    let size = flags.number(&["data-parallel-size", "dp"]).unwrap_or(1);
    let rank = flags.number(&["data-parallel-rank", "dpn"]);
    let first = flags.number(&["data-parallel-start-rank", "dpr"]);
    let local = flags.number(&["data-parallel-size-local", "dpl"]);
    let node = flags.number(&["node-rank"]).unwrap_or(0);
    if size < 2 {
        return Ranks::Unsaid;
    }
    if let Some(rank) = rank {
        return Ranks::One { rank, size };
    }
    let first_here = first.or_else(|| node.checked_mul(local?)).unwrap_or(0);
    if flags.has("data-parallel-multi-port-external-lb") {
        let local = local.unwrap_or(size);
        return Ranks::PortEach { first: first_here, local, size };
    }
    let is_part = flags.has("data-parallel-hybrid-lb") || first.is_some();
    match local {
        Some(1) if is_part => Ranks::One { rank: first_here, size },
        Some(local) if is_part && local < size => Ranks::Some,
        _ if flags.has("data-parallel-external-lb") => Ranks::One { rank: node, size },
        _ => Ranks::Multiplexed { size },
    }
}

fn disagg_mode(flags: &Flags<'_>) -> DisaggMode {
    let transfer = flags.object("kv-transfer-config");
    let role = transfer.as_ref().and_then(|config| config.get("kv_role")?.as_str());
    match role.or_else(|| flags.text(&["disaggregation-mode"])) {
        Some("kv_producer" | "prefill") => DisaggMode::Prefill,
        Some("kv_consumer" | "decode") => DisaggMode::Decode,
        _ => DisaggMode::Mixed,
    }
}

/// Flags by their names without dashes in front; `_` and `-` are the same. The last one of a name counts.
struct Flags<'a>(BTreeMap<String, Option<&'a str>>);

impl<'a> Flags<'a> {
    fn of(words: &'a [String]) -> Self {
        let mut flags = BTreeMap::new();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix('-').filter(|flag| !flag.is_empty()) else {
                continue;
            };
            let flag = flag.trim_start_matches('-');
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, words.next_if(|next| !next.starts_with("--")).map(String::as_str)),
            };
            // Only the flag's own name, not the keys that may follow it after dots.
            let own = name.find('.').unwrap_or(name.len());
            let name = format!("{}{}", name[..own].replace('_', "-"), &name[own..]);
            flags.insert(name, value);
        }
        Self(flags)
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn text(&self, names: &[&str]) -> Option<&'a str> {
        names.iter().find_map(|name| *self.0.get(*name)?)
    }

    fn number(&self, names: &[&str]) -> Option<u32> {
        self.text(names)?.parse().ok()
    }

    /// A flag that takes JSON, or key by key: `--name.key value`.
    fn object(&self, name: &str) -> Option<Map<String, Value>> {
        let whole = self.text(&[name]).and_then(|text| serde_json::from_str(text).ok());
        let mut object: Map<String, Value> = whole.unwrap_or_default();
        for (key, value) in &self.0 {
            let Some(key) = key.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            let value = value.unwrap_or("true");
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            object.insert(key.replace('-', "_"), value);
        }
        (!object.is_empty()).then_some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> CommandLine {
        CommandLine::of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_engine_is_told_by_program_script_or_module() {
        for (line, engine, port) in [
            ("python -m vllm.entrypoints.openai.api_server --model m", Some(Engine::Vllm), 8000),
            ("/opt/sglang/bin/vllm serve m --port 9", Some(Engine::Vllm), 9),
            ("python3 -m sglang.launch_server --port=7", Some(Engine::Sglang), 7),
            ("python -m sglang.launch_server", Some(Engine::Sglang), 30_000),
            ("python -m atom.entrypoints.openai_server", Some(Engine::Atom), 8000),
            ("./serve.sh --served-model-name vllm", None, 8000),
        ] {
            let said = read(line);
            assert_eq!((said.engine, said.port_or_default()), (engine, port), "{line}");
        }
        assert_eq!(CommandLine::of(&[]), CommandLine::default());
    }

    #[test]
    fn events_are_read_as_json_and_key_by_key() {
        let json = read(
            r#"vllm serve m --kv-events-config {"enable_kv_cache_events":true,"endpoint":"tcp://*:1","topic":"kv-events"}"#,
        );
        let keys = read(
            "vllm serve m --kv_events_config.enable_kv_cache_events --kv-events-config.endpoint tcp://*:1 --kv-events-config.topic=kv-events",
        );
        assert!(json.events.is_some());
        assert_eq!(json.events, keys.events);
        assert_eq!(read("vllm serve m").events, None);
    }

    #[test]
    fn ranks_are_told_from_each_other() {
        for (line, ranks) in [
            ("vllm serve m", Ranks::Unsaid),
            ("vllm serve m -dp 1 -dpn 0", Ranks::Unsaid),
            ("vllm serve m -dp 4", Ranks::Multiplexed { size: 4 }),
            ("vllm serve m --data_parallel_size=4 -dpl 4", Ranks::Multiplexed { size: 4 }),
            ("vllm serve m -dp 4 -dpn 3", Ranks::One { rank: 3, size: 4 }),
            ("vllm serve m -dp 4 -dpl 1 -dpr 2", Ranks::One { rank: 2, size: 4 }),
            ("vllm serve m -dp 4 -dpl 2 -dpr 2", Ranks::Some),
            (
                "vllm serve m -dp 8 -dpl 4 --node-rank 1 --data-parallel-multi-port-external-lb",
                Ranks::PortEach { first: 4, local: 4, size: 8 },
            ),
            (
                "vllm serve m -dp 2 --node-rank 1 --data-parallel-external-lb",
                Ranks::One { rank: 1, size: 2 },
            ),
            ("python -m sglang.launch_server --dp 2", Ranks::Multiplexed { size: 2 }),
            ("python -m sglang.launch_server --dp-size 1", Ranks::Unsaid),
        ] {
            assert_eq!(read(line).ranks, ranks, "{line}");
        }
    }

    #[test]
    fn one_half_of_a_pair_is_told() {
        for (line, mode) in [
            (r#"vllm serve m --kv-transfer-config {"kv_role":"kv_producer"}"#, DisaggMode::Prefill),
            (r#"vllm serve m --kv-transfer-config {"kv_role":"kv_both"}"#, DisaggMode::Mixed),
            ("python -m sglang.launch_server --disaggregation-mode decode", DisaggMode::Decode),
        ] {
            assert_eq!(read(line).disagg_mode, mode, "{line}");
        }
    }

    #[test]
    fn values_may_be_negative_and_flags_may_have_none() {
        let said = read(
            "vllm serve m --seed -1 --enforce-eager --max-num-seqs 4 --tokenizer /t --host ::",
        );
        assert_eq!(said.max_decodes, Some(4));
        assert_eq!(said.tokenizer.as_deref(), Some("/t"));
        assert_eq!(said.host.as_deref(), Some("::"));
    }
}
