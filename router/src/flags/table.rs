//! Every option of the router, one row each. The order within a group is that of `--help`;
//! `docs/router.md` repeats this table and a test compares the two.

pub(super) use super::etcd_options::*;
use super::option::{Group, Idle, Kind, Opt};

/// A day: nobody waits longer.
const DAY_S: f64 = 86_400.0;
const NO_NATS: &str =
    "requests go to workers by HTTP and their events come by ZMQ; NATS is not used";
const NO_PAIRS: &str = "prefill and decode workers are not paired by this version";
const NO_KUBERNETES: &str = "workers are not looked up in Kubernetes by this version";
const NO_OWN_KWARGS: &str = "workers are not asked for their own template variables";

/// A row that all others are spelled as a difference to.
pub(super) const ROW: Opt = Opt {
    name: "",
    environment: None,
    flag: true,
    kind: Kind::Text,
    default: "",
    group: Group::Accepted,
    help: "",
    idle: None,
};

const fn idle(reason: &'static str) -> Option<Idle> {
    Some(Idle { reason, unless: &[] })
}

pub(super) static HOST: Opt = Opt {
    name: "host",
    default: "0.0.0.0",
    group: Group::Listening,
    help: "Address or name to listen on.",
    ..ROW
};
pub(super) static PORT: Opt = Opt {
    name: "port",
    kind: Kind::Port,
    default: "8000",
    group: Group::Listening,
    help: "TCP port to listen on; 0 takes a free one, which the log names.",
    ..ROW
};
pub(super) static MAX_BODY_BYTES: Opt = Opt {
    name: "max-body-bytes",
    environment: Some("INFERA_ROUTER_MAX_BODY_BYTES"),
    kind: Kind::Count { min: 1, max: 1 << 32 },
    default: "67108864",
    group: Group::Listening,
    help: "Largest request body; a larger one is answered with 413.",
    ..ROW
};
pub(super) static DISCOVERY_BACKEND: Opt = Opt {
    name: "discovery-backend",
    kind: Kind::Word(&["etcd", "kubernetes"]),
    default: "etcd",
    group: Group::Discovery,
    help: "Where workers register. kubernetes is refused by this version.",
    ..ROW
};
pub(super) static ETCD_PREFIX: Opt = Opt {
    name: "etcd-prefix",
    default: "/infera/workers/",
    group: Group::Discovery,
    help: "Prefix of the workers' keys.",
    ..ROW
};
pub(super) static WORKER: Opt = Opt {
    name: "worker",
    environment: Some("INFERA_ROUTER_WORKER"),
    kind: Kind::Texts,
    group: Group::Discovery,
    help: "A worker as http://HOST:PORT, or http://HOST:PORT=MODEL if it is to get requests for that model only; https as well. May be repeated (in the variable: separated by commas); with it nothing is looked up elsewhere.",
    ..ROW
};
pub(super) static WORKER_CA_FILE: Opt = Opt {
    name: "worker-ca-file",
    environment: Some("INFERA_ROUTER_WORKER_CA_FILE"),
    group: Group::Discovery,
    help: "File of certificates (PEM) that those of workers at https URLs have to come from, in place of those that the system trusts.",
    ..ROW
};
pub(super) static ROUTER_POLICY: Opt = Opt {
    name: "router-policy",
    kind: Kind::Word(&["round-robin", "least-load", "kv-aware"]),
    default: "round-robin",
    group: Group::Routing,
    help: "round-robin takes workers in turn, least-load the one with the fewest requests in flight. kv-aware takes the one that is expected to answer first, by what workers and their hosts have cached.",
    ..ROW
};
pub(super) static KVD_SOCKET_PATH: Opt = Opt {
    name: "kvd-socket-path",
    environment: Some("INFERA_ROUTER_KVD_SOCKET_PATH"),
    group: Group::Routing,
    help: "Socket of the daemon on the router's own host, which is told what /v1/cache/prewarm asks for.",
    ..ROW
};
pub(super) static SCORE: Opt = Opt {
    name: "score",
    environment: Some("INFERA_ROUTER_SCORE"),
    kind: Kind::Word(&["ettft", "reference"]),
    default: "ettft",
    group: Group::Cache,
    help: "ettft compares expected times to the first token, with tiers, queues and measured speeds; reference compares blocks to compute and blocks under way.",
    ..ROW
};
pub(super) static SCORE_SESSION_BONUS: Opt = Opt {
    name: "score-session-bonus",
    environment: Some("INFERA_ROUTER_SCORE_SESSION_BONUS"),
    kind: Kind::Switch,
    default: "false",
    group: Group::Cache,
    help: "Whether ettft favours, by a tenth and at most 50 ms, the worker that had the last request with the same prompt_cache_key.",
    ..ROW
};
pub(super) static VLLM_HASH_SEED: Opt = Opt {
    name: "vllm-hash-seed",
    environment: Some("INFERA_ROUTER_VLLM_HASH_SEED"),
    group: Group::Cache,
    help: "What vLLM's names of blocks begin with, for daemons that only tell these or the keys made of them: PYTHONHASHSEED of the engines, or vllm-none-hash where 0.30 or later runs without. Needs --prefix-caching-hash-algo sha256_cbor there. Without it such blocks give no credit.",
    ..ROW
};
pub(super) static KV_TOKENIZER_PATH: Opt = Opt {
    name: "kv-tokenizer-path",
    group: Group::Cache,
    help: "Folder of the model, or its tokenizer.json, for all models that --kv-tokenizer does not name. Without one workers are chosen by load.",
    ..ROW
};
pub(super) static KV_TOKENIZER: Opt = Opt {
    name: "kv-tokenizer",
    environment: Some("INFERA_ROUTER_KV_TOKENIZER"),
    kind: Kind::Texts,
    group: Group::Cache,
    help: "MODEL=PATH: the same for one model. May be repeated.",
    ..ROW
};
pub(super) static KV_DEFAULT_CHAT_TEMPLATE_KWARGS: Opt = Opt {
    name: "kv-default-chat-template-kwargs",
    environment: Some("INFERA_KV_DEFAULT_CHAT_TEMPLATE_KWARGS"),
    group: Group::Cache,
    help: "Variables of chat templates that workers set by default, as a JSON object.",
    ..ROW
};
pub(super) static KV_CHAT_ENCODING: Opt = Opt {
    name: "kv-chat-encoding",
    environment: Some("INFERA_KV_CHAT_ENCODING"),
    flag: false,
    kind: Kind::Word(&["dsv4"]),
    group: Group::Cache,
    help: "Set if engines encode chats in their own code, without a template; chats then go by load.",
    ..ROW
};
pub(super) static KV_OVERLAP_WEIGHT: Opt = Opt {
    name: "kv-overlap-weight",
    kind: Kind::Factor,
    default: "1.0",
    group: Group::Cache,
    help: "Weight of a block to compute against one under way, for --score reference.",
    ..ROW
};
pub(super) static KVD_PREFIX: Opt = Opt {
    name: "kvd-prefix",
    environment: Some("INFERA_ROUTER_KVD_PREFIX"),
    default: "/infera/kvd/",
    group: Group::Cache,
    help: "Prefix of the keys of the hosts' daemons in etcd.",
    ..ROW
};
pub(super) static KVD_CURVE_FILE: Opt = Opt {
    name: "kvd-curve-file",
    environment: Some("INFERA_ROUTER_KVD_CURVE_FILE"),
    group: Group::Cache,
    help: "File with a line `client PUBLIC SECRET`, keys in Z85: the router's key for daemons whose sockets take CURVE. Only its owner may read it.",
    ..ROW
};
pub(super) static KVD_TOKEN_FILE: Opt = Opt {
    name: "kvd-token-file",
    environment: Some("INFERA_ROUTER_KVD_TOKEN_FILE"),
    group: Group::Cache,
    help: "File with the token for snapshots of daemons. Only its owner may read it.",
    ..ROW
};
pub(super) static PREFILL_TOK_S: Opt = Opt {
    name: "prefill-tok-s",
    environment: Some("INFERA_ROUTER_PREFILL_TOK_S"),
    kind: Kind::Factor,
    default: "8000",
    group: Group::Cache,
    help: "Tokens a second that a worker is held to compute until its answers tell.",
    ..ROW
};
pub(super) static KV_BYTES_PER_TOKEN: Opt = Opt {
    name: "kv-bytes-per-token",
    environment: Some("INFERA_ROUTER_KV_BYTES_PER_TOKEN"),
    kind: Kind::Count { min: 0, max: 1 << 40 },
    default: "0",
    group: Group::Cache,
    help: "Bytes of one token's blocks over all ranks, where the daemon does not say; 0: not known.",
    ..ROW
};
pub(super) static TIER_BW: Opt = Opt {
    name: "tier-bw",
    environment: Some("INFERA_ROUTER_TIER_BW"),
    default: "25,6,3,25,25",
    group: Group::Cache,
    help: "GB/s out of host memory, disk and pool, from host to device, and between hosts, where the daemon has not measured them.",
    ..ROW
};
pub(super) static INDEX_MAX_BYTES: Opt = Opt {
    name: "index-max-bytes",
    environment: Some("INFERA_ROUTER_INDEX_MAX_BYTES"),
    kind: Kind::Count { min: 1 << 20, max: 1 << 44 },
    default: "2147483648",
    group: Group::Cache,
    help: "Memory for what is known of caches; lower tiers make room first.",
    ..ROW
};
pub(super) static ENABLE_ADMIN: Opt = Opt {
    name: "enable-admin",
    environment: Some("INFERA_ROUTER_ENABLE_ADMIN"),
    kind: Kind::Switch,
    default: "false",
    group: Group::Cache,
    help: "Whether POST /v1/admin/explain says what a request would cost on each worker.",
    ..ROW
};
pub(super) static DROP_HEADER: Opt = Opt {
    name: "drop-header",
    environment: Some("INFERA_ROUTER_DROP_HEADER"),
    kind: Kind::Texts,
    group: Group::Routing,
    help: "A header of clients that workers are not to see. May be repeated.",
    ..ROW
};
pub(super) static DEFAULT_RETENTION: Opt = Opt {
    name: "default-retention",
    environment: Some("INFERA_ROUTER_DEFAULT_RETENTION"),
    flag: false,
    kind: Kind::Word(&["long", "short", "none"]),
    default: "long",
    group: Group::Routing,
    help: "How long workers are to keep the blocks of a request that says nothing about it.",
    ..ROW
};
pub(super) static REQUEST_MAX_RETRIES: Opt = Opt {
    name: "request-max-retries",
    kind: Kind::Count { min: 0, max: 16 },
    default: "1",
    group: Group::Faults,
    help: "Further workers that are tried while nothing has reached the client.",
    ..ROW
};
pub(super) static BREAKER_FAILURE_THRESHOLD: Opt = Opt {
    name: "breaker-failure-threshold",
    kind: Kind::Count { min: 0, max: 1_000_000 },
    default: "3",
    group: Group::Faults,
    help: "Faults in a row after which a worker is left alone for a while; 0: never.",
    ..ROW
};
pub(super) static BREAKER_COOLDOWN_S: Opt = Opt {
    name: "breaker-cooldown-s",
    kind: Kind::Seconds { max: DAY_S },
    default: "5",
    group: Group::Faults,
    help: "How long at first. It doubles with each probe that fails.",
    ..ROW
};
pub(super) static BREAKER_MAX_COOLDOWN_S: Opt = Opt {
    name: "breaker-max-cooldown-s",
    kind: Kind::Seconds { max: DAY_S },
    default: "60",
    group: Group::Faults,
    help: "How long at most.",
    ..ROW
};
pub(super) static HTTP_REQ_IDLE_TIMEOUT_S: Opt = Opt {
    name: "http-req-idle-timeout-s",
    environment: Some("INFERA_HTTP_REQ_IDLE_TIMEOUT"),
    kind: Kind::Seconds { max: DAY_S },
    default: "0",
    group: Group::Faults,
    help: "A worker that sends nothing of its answer for this long is given up; 0: never.",
    ..ROW
};
pub(super) static STREAM_ADMISSION_WARN_S: Opt = Opt {
    name: "stream-admission-warn-s",
    environment: Some("INFERA_STREAM_ADMISSION_WARN"),
    kind: Kind::Seconds { max: DAY_S },
    default: "240",
    group: Group::Faults,
    help: "An answer without a first byte after this long is reported in the log; 0: never.",
    ..ROW
};
pub(super) static STREAM_STALL_WARN_S: Opt = Opt {
    name: "stream-stall-warn-s",
    environment: Some("INFERA_STREAM_STALL_WARN"),
    kind: Kind::Seconds { max: DAY_S },
    default: "60",
    group: Group::Faults,
    help: "An answer that has begun and is silent for this long is reported in the log; 0: never.",
    ..ROW
};
pub(super) static SHUTDOWN_DELAY_S: Opt = Opt {
    name: "shutdown-delay-s",
    environment: Some("INFERA_ROUTER_SHUTDOWN_DELAY_S"),
    kind: Kind::Seconds { max: DAY_S },
    default: "5",
    group: Group::Ending,
    help: "After SIGTERM /ready fails at once; requests are accepted for this long, so that load balancers notice.",
    ..ROW
};
pub(super) static DRAIN_TIMEOUT_S: Opt = Opt {
    name: "drain-timeout-s",
    environment: Some("INFERA_ROUTER_DRAIN_TIMEOUT_S"),
    kind: Kind::Seconds { max: DAY_S },
    default: "30",
    group: Group::Ending,
    help: "Answers in flight may take this long after that; the rest is ended with an error event.",
    ..ROW
};

/// What the launcher may send and this version does not act on.
static ACCEPTED: [Opt; 15] = [
    Opt {
        name: "request-transport",
        kind: Kind::Word(&["nats", "http"]),
        default: "nats",
        help: "How requests travel to workers.",
        idle: Some(Idle { reason: NO_NATS, unless: &["http"] }),
        ..ROW
    },
    Opt {
        name: "kv-event-transport",
        kind: Kind::Word(&["nats", "zmq"]),
        default: "nats",
        help: "How cache events travel.",
        idle: Some(Idle { reason: NO_NATS, unless: &["zmq"] }),
        ..ROW
    },
    Opt {
        name: "nats-server",
        environment: Some("NATS_SERVER"),
        default: "nats://127.0.0.1:4222",
        help: "URL of NATS.",
        idle: idle(NO_NATS),
        ..ROW
    },
    Opt {
        name: "nats-req-idle-timeout-s",
        environment: Some("INFERA_NATS_REQ_IDLE_TIMEOUT"),
        kind: Kind::Seconds { max: DAY_S },
        default: "900",
        help: "As --http-req-idle-timeout-s, over NATS.",
        idle: idle(NO_NATS),
        ..ROW
    },
    Opt {
        name: "nats-req-max-duration-s",
        environment: Some("INFERA_NATS_REQ_MAX_DURATION"),
        kind: Kind::Seconds { max: DAY_S },
        default: "0",
        help: "Longest answer over NATS.",
        idle: idle(NO_NATS),
        ..ROW
    },
    Opt {
        name: "nats-req-max-pending",
        environment: Some("INFERA_NATS_REQ_MAX_PENDING"),
        kind: Kind::Count { min: 0, max: u64::MAX },
        default: "0",
        help: "Requests that may wait for a worker in NATS.",
        idle: idle(NO_NATS),
        ..ROW
    },
    Opt {
        name: "k8s-label-selector",
        environment: Some("INFERA_K8S_LABEL_SELECTOR"),
        help: "Which pods are workers.",
        idle: idle(NO_KUBERNETES),
        ..ROW
    },
    Opt { name: "k8s-namespace", help: "In which namespace.", idle: idle(NO_KUBERNETES), ..ROW },
    Opt {
        name: "kv-prefill-overlap-weight",
        kind: Kind::Factor,
        help: "The same for prefill workers.",
        idle: idle(NO_PAIRS),
        ..ROW
    },
    Opt {
        name: "kv-decode-overlap-weight",
        kind: Kind::Factor,
        help: "The same for decode workers.",
        idle: idle(NO_PAIRS),
        ..ROW
    },
    Opt {
        name: "kv-per-worker-template-kwargs",
        environment: Some("INFERA_KV_PER_WORKER_TEMPLATE_KWARGS"),
        kind: Kind::Switch,
        default: "true",
        help: "Whether workers' own defaults of them are asked for.",
        idle: Some(Idle { reason: NO_OWN_KWARGS, unless: &["true", "false"] }),
        ..ROW
    },
    Opt {
        name: "session-affinity",
        kind: Kind::Word(&["off", "prefill", "both"]),
        default: "off",
        help: "Whether sessions stay with a worker.",
        idle: Some(Idle { reason: "sessions are not pinned by this version", unless: &["off"] }),
        ..ROW
    },
    Opt {
        name: "session-affinity-ttl-seconds",
        kind: Kind::Count { min: 1, max: 86_400 },
        default: "3600",
        help: "How long an idle session is remembered.",
        idle: idle("sessions are not pinned by this version"),
        ..ROW
    },
    Opt {
        name: "pd-prefill-guard-release",
        environment: Some("INFERA_PD_PREFILL_GUARD_RELEASE"),
        kind: Kind::Word(&["decode", "completion"]),
        default: "decode",
        help: "When a prefill counts as done.",
        idle: idle(NO_PAIRS),
        ..ROW
    },
    Opt {
        name: "pd-prefill-drain-timeout-s",
        environment: Some("INFERA_PD_PREFILL_DRAIN_TIMEOUT"),
        kind: Kind::Seconds { max: DAY_S },
        default: "300",
        help: "How long a prefill may take to be consumed.",
        idle: idle(NO_PAIRS),
        ..ROW
    },
];

/// What this version acts on.
static EFFECTIVE: [&Opt; 43] = [
    &HOST,
    &PORT,
    &MAX_BODY_BYTES,
    &DISCOVERY_BACKEND,
    &ETCD_ENDPOINT,
    &ETCD_CA_FILE,
    &ETCD_CERT_FILE,
    &ETCD_KEY_FILE,
    &ETCD_USER,
    &ETCD_PASSWORD_FILE,
    &ETCD_PASSWORD,
    &ETCD_PREFIX,
    &WORKER,
    &WORKER_CA_FILE,
    &ROUTER_POLICY,
    &DROP_HEADER,
    &DEFAULT_RETENTION,
    &KVD_SOCKET_PATH,
    &SCORE,
    &SCORE_SESSION_BONUS,
    &VLLM_HASH_SEED,
    &KV_TOKENIZER_PATH,
    &KV_TOKENIZER,
    &KV_DEFAULT_CHAT_TEMPLATE_KWARGS,
    &KV_CHAT_ENCODING,
    &KV_OVERLAP_WEIGHT,
    &KVD_PREFIX,
    &KVD_CURVE_FILE,
    &KVD_TOKEN_FILE,
    &PREFILL_TOK_S,
    &KV_BYTES_PER_TOKEN,
    &TIER_BW,
    &INDEX_MAX_BYTES,
    &ENABLE_ADMIN,
    &REQUEST_MAX_RETRIES,
    &BREAKER_FAILURE_THRESHOLD,
    &BREAKER_COOLDOWN_S,
    &BREAKER_MAX_COOLDOWN_S,
    &HTTP_REQ_IDLE_TIMEOUT_S,
    &STREAM_ADMISSION_WARN_S,
    &STREAM_STALL_WARN_S,
    &SHUTDOWN_DELAY_S,
    &DRAIN_TIMEOUT_S,
];

/// All options, in the order of `--help` within each group.
pub(super) fn all() -> impl Iterator<Item = &'static Opt> {
    EFFECTIVE.into_iter().chain(&ACCEPTED)
}
