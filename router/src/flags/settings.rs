//! From texts to [`Settings`]: everything that can be wrong with a command line is found here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderName;
use kvd_etcd::{Access, Password, Said as SaidOfEtcd};
use router_core::score::{Speed, Way};
use router_tls::Trust;

use super::given::{Given, Said};
use super::option::{Group, Opt, Value};
use super::table::*;
use super::{
    CacheSettings, Discovery, FixedWorker, Patience, Policy, Score, Settings, SimplePolicy, Wrong,
};
use crate::breaker;
use crate::retention::Retention;

pub(super) fn check(given: Given) -> Result<Settings, Wrong> {
    let mut checked = Checked::new(given);
    match (checked.settings(), checked.problems.as_slice()) {
        (Some(settings), []) => Ok(settings),
        (_, problems) => Err(Wrong(format!("{}\n--help lists all flags", problems.join("\n")))),
    }
}

/// The values, and the mistakes met so far.
struct Checked {
    given: Given,
    values: BTreeMap<&'static str, Value>,
    problems: Vec<String>,
}

/// A getter and the kind of its option disagree: a mistake in this file or in the table.
fn mismatch(option: &Opt, value: &Value) -> ! {
    unreachable!("--{} does not hold a {value:?}", option.name)
}

impl Checked {
    fn new(given: Given) -> Self {
        let mut problems = Vec::new();
        let value = |option: &'static Opt| {
            let default = || option.kind.parse(option.default).unwrap_or(Value::Absent);
            let Some(Said { text, source }) = given.get(option.name) else { return default() };
            option.kind.parse(text).unwrap_or_else(|| {
                let allowed = option.kind.allowed();
                problems.push(format!("{source}: {text:?} is not allowed; expected {allowed}"));
                default()
            })
        };
        let values = all().map(|option| option.name).zip(all().map(value)).collect();
        Self { given, values, problems }
    }

    /// Nothing only if a problem was noted.
    fn settings(&mut self) -> Option<Settings> {
        let (discovery, trust) = (self.discovery(), self.trust());
        Some(Settings {
            listen: (self.text(&HOST), self.port(&PORT)),
            body_bytes_max: usize::try_from(self.count(&MAX_BODY_BYTES)).unwrap_or(usize::MAX),
            remarks: self.remarks(),
            policy: match self.text(&ROUTER_POLICY).as_str() {
                "round-robin" => Policy::Simple(SimplePolicy::RoundRobin),
                "least-load" => Policy::Simple(SimplePolicy::LeastLoad),
                _ => Policy::KvAware(Box::new(self.cache())),
            },
            is_admin_enabled: self.switch(&ENABLE_ADMIN),
            kvd_socket: self.optional(&KVD_SOCKET_PATH).map(PathBuf::from),
            drop_headers: self.drop_headers(),
            default_retention: Retention::named(&self.text(&DEFAULT_RETENTION))
                .unwrap_or(Retention::Long),
            retries_max: u32::try_from(self.count(&REQUEST_MAX_RETRIES)).unwrap_or(u32::MAX),
            breaker: self.breaker(),
            patience: Patience {
                idle: self.time_or_never(&HTTP_REQ_IDLE_TIMEOUT_S),
                admission_warn: self.time_or_never(&STREAM_ADMISSION_WARN_S),
                stall_warn: self.time_or_never(&STREAM_STALL_WARN_S),
            },
            shutdown_delay: self.time(&SHUTDOWN_DELAY_S),
            drain_timeout: self.time(&DRAIN_TIMEOUT_S),
            // Last: all mistakes have been looked for by then.
            discovery: discovery?,
            trust: trust?,
        })
    }

    fn value(&self, option: &Opt) -> &Value {
        &self.values[option.name]
    }

    fn text(&self, option: &Opt) -> String {
        match self.value(option) {
            Value::Text(text) => text.clone(),
            other => mismatch(option, other),
        }
    }

    fn texts(&self, option: &Opt) -> Vec<String> {
        match self.value(option) {
            Value::Texts(texts) => texts.clone(),
            Value::Absent => Vec::new(),
            other => mismatch(option, other),
        }
    }

    fn port(&self, option: &Opt) -> u16 {
        match self.value(option) {
            Value::Port(port) => *port,
            other => mismatch(option, other),
        }
    }

    fn count(&self, option: &Opt) -> u64 {
        match self.value(option) {
            Value::Count(count) => *count,
            other => mismatch(option, other),
        }
    }

    fn time(&self, option: &Opt) -> Duration {
        match self.value(option) {
            Value::Seconds(time) => *time,
            other => mismatch(option, other),
        }
    }

    fn time_or_never(&self, option: &Opt) -> Option<Duration> {
        Some(self.time(option)).filter(|time| !time.is_zero())
    }

    fn optional(&self, option: &Opt) -> Option<String> {
        match self.value(option) {
            Value::Text(text) => Some(text.clone()),
            Value::Absent => None,
            other => mismatch(option, other),
        }
    }

    fn factor(&self, option: &Opt) -> f64 {
        match self.value(option) {
            Value::Factor(factor) => *factor,
            other => mismatch(option, other),
        }
    }

    fn switch(&self, option: &Opt) -> bool {
        match self.value(option) {
            Value::Switch(is_on) => *is_on,
            other => mismatch(option, other),
        }
    }

    /// Notes a mistake in what was said of `option`.
    fn problem(&mut self, option: &Opt, message: &str) {
        let source = self.given.get(option.name).map(|said| said.source.to_string());
        let source = source.unwrap_or_else(|| format!("--{}", option.name));
        self.problems.push(format!("{source}: {message}"));
    }

    fn breaker(&mut self) -> breaker::Limits {
        let cooldown = self.time(&BREAKER_COOLDOWN_S);
        let cooldown_max = self.time(&BREAKER_MAX_COOLDOWN_S);
        if cooldown_max < cooldown {
            self.problem(&BREAKER_MAX_COOLDOWN_S, "less than --breaker-cooldown-s");
        }
        let threshold = self.count(&BREAKER_FAILURE_THRESHOLD);
        breaker::Limits {
            faults_max: u32::try_from(threshold).unwrap_or(u32::MAX),
            cooldown,
            cooldown_max,
        }
    }

    fn cache(&mut self) -> CacheSettings {
        let mut kvd_prefix = self.text(&KVD_PREFIX);
        if !kvd_prefix.ends_with('/') {
            kvd_prefix.push('/');
        }
        let bytes_per_token = self.count(&KV_BYTES_PER_TOKEN);
        CacheSettings {
            score: match self.text(&SCORE).as_str() {
                "reference" => Score::Reference,
                _ => Score::Ettft,
            },
            has_session_bonus: self.switch(&SCORE_SESSION_BONUS),
            vllm_hash_seed: self.optional(&VLLM_HASH_SEED),
            tokenizers: self.tokenizers(),
            template_kwargs: self.template_kwargs(),
            has_native_encoder: self.optional(&KV_CHAT_ENCODING).is_some(),
            overlap_weight: self.factor(&KV_OVERLAP_WEIGHT),
            kvd_prefix,
            kvd_keys: self.optional(&KVD_CURVE_FILE).map(PathBuf::from),
            kvd_token: self.optional(&KVD_TOKEN_FILE).map(PathBuf::from),
            speed: Speed::of_tokens_per_second(self.factor(&PREFILL_TOK_S)),
            way: Way {
                bytes_per_token: (bytes_per_token > 0).then_some(bytes_per_token as f64),
                ..self.way()
            },
            index_bytes_max: self.count(&INDEX_MAX_BYTES),
        }
    }

    fn way(&mut self) -> Way {
        let mut way = Way::default();
        let text = self.text(&TIER_BW);
        let speeds: Vec<f64> = text.split(',').filter_map(|one| one.trim().parse().ok()).collect();
        let is_speed = |speed: &f64| speed.is_finite() && *speed > 0.0;
        let [l2, l3, l4] = &mut way.tiers;
        let links = [l2, l3, l4, &mut way.device, &mut way.network];
        if speeds.len() != links.len() || !speeds.iter().all(is_speed) {
            let message =
                format!("{text:?} is not allowed; expected five speeds above 0, like 25,6,3,25,25");
            self.problem(&TIER_BW, &message);
            return way;
        }
        for (link, speed) in links.into_iter().zip(speeds) {
            link.bytes_per_second = speed * 1e9;
        }
        way
    }

    fn tokenizers(&mut self) -> (Option<PathBuf>, BTreeMap<String, PathBuf>) {
        let mut by_model = BTreeMap::new();
        for text in self.texts(&KV_TOKENIZER) {
            match text.split_once('=') {
                Some((model, path)) if !model.is_empty() && !path.is_empty() => {
                    by_model.insert(model.to_owned(), PathBuf::from(path));
                }
                _ => {
                    let message = format!("{text:?} is not allowed; expected MODEL=PATH");
                    self.problem(&KV_TOKENIZER, &message);
                }
            }
        }
        (self.optional(&KV_TOKENIZER_PATH).map(PathBuf::from), by_model)
    }

    fn template_kwargs(&mut self) -> router_tokens::Map {
        let Some(text) = self.optional(&KV_DEFAULT_CHAT_TEMPLATE_KWARGS) else {
            return router_tokens::Map::default();
        };
        if let Ok(router_tokens::Json::Map(kwargs)) = router_tokens::Json::parse(text.as_bytes()) {
            return kwargs;
        }
        self.problem(&KV_DEFAULT_CHAT_TEMPLATE_KWARGS, "this is no JSON object");
        router_tokens::Map::default()
    }

    fn drop_headers(&mut self) -> Vec<HeaderName> {
        let mut names = Vec::new();
        for text in self.texts(&DROP_HEADER) {
            match text.trim().parse() {
                Ok(name) => names.push(name),
                Err(_invalid) => {
                    self.problem(&DROP_HEADER, &format!("{text:?} is no name of a header"));
                }
            }
        }
        names
    }

    fn discovery(&mut self) -> Option<Discovery> {
        let workers = self.texts(&WORKER);
        if !workers.is_empty() {
            return Some(Discovery::Fixed(self.fixed_workers(&workers)));
        }
        if self.text(&DISCOVERY_BACKEND) == "kubernetes" {
            let message = "kubernetes is not supported by this version; use etcd, or name workers \
                           with --worker";
            self.problem(&DISCOVERY_BACKEND, message);
        }
        let access = self.etcd();
        let mut prefix = self.text(&ETCD_PREFIX);
        if !prefix.ends_with('/') {
            prefix.push('/');
        }
        Some(Discovery::Etcd { access: access?, prefix })
    }

    fn etcd(&mut self) -> Option<Access> {
        let path = |option| self.optional(option).map(PathBuf::from);
        let said = SaidOfEtcd {
            endpoints: self.text(&ETCD_ENDPOINT).split(',').map(str::to_owned).collect(),
            ca_file: path(&ETCD_CA_FILE),
            cert_file: path(&ETCD_CERT_FILE),
            key_file: path(&ETCD_KEY_FILE),
            user: self.optional(&ETCD_USER),
            password_file: path(&ETCD_PASSWORD_FILE),
            password: self.optional(&ETCD_PASSWORD).and_then(Password::new),
        };
        let access = Access::of(said);
        for wrong in access.as_ref().err().into_iter().flatten() {
            if let Some(option) = all().find(|option| option.name == wrong.option) {
                self.problem(option, &wrong.message);
            }
        }
        access.ok()
    }

    fn trust(&mut self) -> Option<Trust> {
        let ca_file = self.optional(&WORKER_CA_FILE).map(PathBuf::from);
        let trust = Trust::read(ca_file.as_deref());
        trust.map_err(|error| self.problem(&WORKER_CA_FILE, &error.to_string())).ok()
    }

    fn fixed_workers(&mut self, texts: &[String]) -> Vec<FixedWorker> {
        let mut workers: Vec<FixedWorker> = Vec::new();
        for text in texts {
            let (url, model) = text.split_once('=').unwrap_or((text, ""));
            let url = url.trim().trim_end_matches('/');
            if !is_worker_url(url) {
                let message = format!(
                    "{text:?} is not allowed; expected http://HOST:PORT[=MODEL], or https, and a \
                     --worker for each"
                );
                self.problem(&WORKER, &message);
            } else if workers.iter().any(|worker| worker.url == url) {
                self.problem(&WORKER, &format!("{url} is named twice"));
            } else {
                workers.push(FixedWorker { url: url.to_owned(), model: model.to_owned() });
            }
        }
        workers
    }

    /// What was said in vain, in a line for each reason.
    fn remarks(&self) -> Vec<String> {
        let mut in_vain: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut note = |reason, said: &Said| {
            in_vain.entry(reason).or_default().push(said.source.to_string());
        };
        for option in all() {
            let (Some(idle), Some(said)) = (option.idle, self.given.get(option.name)) else {
                continue;
            };
            if !idle.unless.contains(&said.text.as_str()) {
                note(idle.reason, said);
            }
        }
        if self.text(&ROUTER_POLICY) != "kv-aware" {
            let of_cache = all().filter(|option| option.group == Group::Cache);
            for said in of_cache.filter_map(|option| self.given.get(option.name)) {
                note("only kv-aware looks at caches", said);
            }
        }
        if !self.texts(&WORKER).is_empty() {
            let of_etcd = |option: &&Opt| option.flag && option.name.starts_with("etcd-");
            for option in all().filter(of_etcd).chain([&DISCOVERY_BACKEND]) {
                if let Some(said) = self.given.get(option.name) {
                    note("--worker names all workers", said);
                }
            }
        }
        let line = |(reason, names): (&str, Vec<String>)| {
            format!("{reason}; accepted without effect: {}", names.join(", "))
        };
        let mut lines: Vec<String> = in_vain.into_iter().map(line).collect();
        let is_blind =
            self.optional(&KV_TOKENIZER_PATH).is_none() && self.texts(&KV_TOKENIZER).is_empty();
        if self.text(&ROUTER_POLICY) == "kv-aware" && is_blind {
            lines.push(
                "kv-aware without --kv-tokenizer-path or --kv-tokenizer: prompts can't be compared \
                 with what is cached, and workers are chosen by load"
                    .to_owned(),
            );
        }
        lines
    }
}

/// Whether this is `http://HOST` or `https://HOST` with or without a port, and nothing more.
fn is_worker_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    matches!(uri.scheme_str(), Some("http" | "https"))
        && uri.host().is_some_and(|host| !host.is_empty())
        && uri.path() == "/"
        && uri.query().is_none()
}
