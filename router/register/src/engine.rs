//! Asking an engine what it is: whether it is well, what it serves, how much it has to do.

use std::collections::BTreeMap;
use std::path::Path;

use router_core::record::{CANARY, DisaggMode, Engine};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::answers::{self, ServerInfo};
use crate::command_line::{CommandLine, Ranks};
use crate::http::{Failed, Http};
use crate::record::{Events, Facts, Tokenizer};

/// What the operator says, which wins over whatever is found out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) engine: Option<Engine>,
    pub(crate) model: Option<String>,
    pub(crate) block_size: Option<u32>,
    pub(crate) events_endpoint: Option<String>,
}

/// An engine that may answer.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) http: Http,
    /// `http`, or `https`.
    pub(crate) scheme: &'static str,
    /// Where it is reached from here.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) command_line: CommandLine,
    pub(crate) given: Given,
}

/// Why it is not known what it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unknown {
    #[error("{path}: {reason}")]
    Silent { path: &'static str, reason: Failed },
    #[error("/v1/models names no model; name it with --model-name")]
    Nameless,
    #[error("what engine this is can't be told; name it with --engine")]
    Stranger,
}

/// Names of what waits and of what is computed, in `/metrics`.
const IN_FLIGHT: [&str; 4] = [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
];

impl Asked {
    pub(crate) fn url(&self, port: u16, path: &str) -> String {
        format!("{}://{}:{port}{path}", self.scheme, self.host)
    }

    /// The ports of all its servers.
    fn ports(&self) -> Vec<u16> {
        let count = match self.command_line.ranks {
            Ranks::PortEach { local, .. } => local,
            _ => 1,
        };
        (self.port..=u16::MAX).take(usize::try_from(count).unwrap_or(1)).collect()
    }

    /// Whether all its servers are well.
    pub(crate) async fn health(&self) -> Result<(), Failed> {
        for port in self.ports() {
            self.http.get(&self.url(port, "/health")).await?;
        }
        Ok(())
    }

    /// What it is.
    pub(crate) async fn facts(&self) -> Result<Facts, Unknown> {
        let url = |path: &str| self.url(self.port, path);
        let models = self.http.json(&url("/v1/models")).await;
        let models = models.map_err(|reason| Unknown::Silent { path: "/v1/models", reason })?;
        let model = answers::model(&models);
        let name = self.given.model.clone().or_else(|| Some(model.as_ref()?.name.clone()));
        let name = name.ok_or(Unknown::Nameless)?;
        let metrics = self.http.text(&url("/metrics")).await.unwrap_or_default();
        let said = self.given.engine.or(self.command_line.engine);
        let info = match said {
            Some(Engine::Vllm | Engine::Atom) => None,
            Some(Engine::Sglang) | None => self.server_info().await,
        };
        let engine = said.or_else(|| match &info {
            Some(_) => Some(Engine::Sglang),
            None => metrics.contains("\nvllm:").then_some(Engine::Vllm),
        });
        let engine = engine.ok_or(Unknown::Stranger)?;
        let info = info.unwrap_or_default();
        let found = match engine {
            Engine::Vllm => answers::vllm_block_size(&metrics),
            Engine::Sglang => info.block_size,
            Engine::Atom => None,
        };
        let said = &self.command_line;
        let root = model.and_then(|model| model.root);
        let tokenizer = said.tokenizer.clone().or_else(|| info.tokenizer.clone());
        let tokenizer = tokenizer.or_else(|| root.clone());
        Ok(Facts {
            engine,
            model_root: root,
            tokenizer: self.tokenizer(tokenizer.as_deref().unwrap_or(&name), &name).await,
            model: name,
            scheme: self.scheme,
            port: self.port,
            ranks: if said.ranks == Ranks::Unsaid { info.ranks } else { said.ranks },
            block_size: self.given.block_size.or(found),
            events: self.events(engine, &info).await,
            max_decodes: said.max_decodes.or(info.max_decodes),
            disagg_mode: match said.disagg_mode {
                DisaggMode::Mixed => info.disagg_mode,
                half => half,
            },
        })
    }

    /// What SGLang tells; older releases have another path.
    async fn server_info(&self) -> Option<ServerInfo> {
        for path in ["/server_info", "/get_server_info"] {
            if let Ok(answer) = self.http.json(&self.url(self.port, path)).await {
                return ServerInfo::of(&answer);
            }
        }
        None
    }

    async fn events(&self, engine: Engine, info: &ServerInfo) -> Events {
        if let Some(endpoint) = &self.given.events_endpoint {
            return Events::Given(endpoint.clone());
        }
        let configured = self.command_line.events.as_ref().filter(|publisher| publisher.is_on);
        // One that connects to somebody else would be told like one that listens.
        let listens = configured
            .is_none_or(|publisher| publisher.place().is_ok() || publisher.endpoint == "tcp://*:0");
        if engine == Engine::Vllm && listens {
            let mut told = BTreeMap::new();
            for port in self.ports() {
                if let Ok(answer) = self.http.json(&self.url(port, "/kv_event_sources")).await {
                    told.extend(answers::vllm_publishers(&answer));
                }
            }
            told.retain(|_, publisher| publisher.is_on);
            if !told.is_empty() {
                return Events::Told(told);
            }
        }
        let publisher = info.publisher.as_ref().filter(|publisher| publisher.is_on);
        publisher.or(configured).cloned().map_or(Events::Off, Events::Configured)
    }

    /// How its tokenizer cuts the text that every tokenizer is compared by; nothing if it does not tell.
    async fn tokenizer(&self, folder: &str, model: &str) -> Option<Tokenizer> {
        let body = json!({"model": model, "prompt": CANARY, "add_special_tokens": false});
        let answer = self.http.post(&self.url(self.port, "/tokenize"), &body).await.ok()?;
        let canary = answers::tokens(&answer)?;
        Some(Tokenizer { name: folder.to_owned(), digest: digest(Path::new(folder)), canary })
    }

    /// Requests that it has not finished; nothing if it does not tell.
    pub(crate) async fn in_flight(&self) -> Option<f64> {
        let mut sum = 0.0;
        for port in self.ports() {
            sum += self.in_flight_at(port).await?;
        }
        Some(sum)
    }

    async fn in_flight_at(&self, port: u16) -> Option<f64> {
        let metrics = self.http.text(&self.url(port, "/metrics")).await.unwrap_or_default();
        if let Some(sum) = answers::sum_of(&metrics, &IN_FLIGHT) {
            return Some(sum);
        }
        let loads = self.http.json(&self.url(port, "/v1/loads?include=core")).await.ok()?;
        answers::sglang_load(&loads)
    }
}

/// The first 16 hexadecimal digits of the SHA-256 of a folder's `tokenizer.json`, if it can be read.
fn digest(folder: &Path) -> Option<String> {
    let bytes = std::fs::read(folder.join("tokenizer.json")).ok()?;
    let digest = Sha256::digest(bytes);
    Some(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}
