//! Every option of the router, one row each. The order within a group is that of `--help`;
//! `docs/router.md` repeats this table and a test compares the two.

use super::option::{Group, Idle, Kind, Opt};

/// A day: nobody waits longer.
const DAY_S: f64 = 86_400.0;
const NO_NATS: &str =
    "requests go to workers by HTTP and their events come by ZMQ; NATS is not used";
const NO_PAIRS: &str = "prefill and decode workers are not paired by this version";
const NO_KUBERNETES: &str = "workers are not looked up in Kubernetes by this version";
const LOAD_ONLY: &str = "this version chooses by load, not by what workers have cached";

/// A row that all others are spelled as a difference to.
const ROW: Opt = Opt {
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
pub(super) static ETCD_ENDPOINT: Opt = Opt {
    name: "etcd-endpoint",
    default: "127.0.0.1:2379",
    group: Group::Discovery,
    help: "HOST, HOST:PORT or URL of etcd.",
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
    help: "A worker as http://HOST:PORT, or http://HOST:PORT=MODEL if it is to get requests for that model only. May be repeated; with it nothing is looked up elsewhere.",
    ..ROW
};
pub(super) static ROUTER_POLICY: Opt = Opt {
    name: "router-policy",
    kind: Kind::Word(&["round-robin", "least-load", "kv-aware"]),
    default: "round-robin",
    group: Group::Routing,
    help: "round-robin takes workers in turn, least-load the one with the fewest requests in flight. kv-aware is accepted and works as least-load in this version.",
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
static ACCEPTED: [Opt; 19] = [
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
        name: "kv-tokenizer-path",
        help: "Folder or file of the tokenizer.",
        idle: idle(LOAD_ONLY),
        ..ROW
    },
    Opt {
        name: "kv-overlap-weight",
        kind: Kind::Factor,
        default: "1.0",
        help: "Weight of cached blocks.",
        idle: idle(LOAD_ONLY),
        ..ROW
    },
    Opt {
        name: "kv-prefill-overlap-weight",
        kind: Kind::Factor,
        help: "The same for prefill workers.",
        idle: idle(LOAD_ONLY),
        ..ROW
    },
    Opt {
        name: "kv-decode-overlap-weight",
        kind: Kind::Factor,
        help: "The same for decode workers.",
        idle: idle(LOAD_ONLY),
        ..ROW
    },
    Opt {
        name: "kv-default-chat-template-kwargs",
        environment: Some("INFERA_KV_DEFAULT_CHAT_TEMPLATE_KWARGS"),
        help: "Variables of chat templates, as JSON.",
        idle: idle(LOAD_ONLY),
        ..ROW
    },
    Opt {
        name: "kv-per-worker-template-kwargs",
        environment: Some("INFERA_KV_PER_WORKER_TEMPLATE_KWARGS"),
        kind: Kind::Switch,
        default: "true",
        help: "Whether workers' own defaults of them are asked for.",
        idle: idle(LOAD_ONLY),
        ..ROW
    },
    Opt {
        name: "kv-chat-encoding",
        environment: Some("INFERA_KV_CHAT_ENCODING"),
        flag: false,
        help: "Encoder of models without a chat template.",
        idle: idle(LOAD_ONLY),
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
static EFFECTIVE: [&Opt; 19] = [
    &HOST,
    &PORT,
    &MAX_BODY_BYTES,
    &DISCOVERY_BACKEND,
    &ETCD_ENDPOINT,
    &ETCD_PREFIX,
    &WORKER,
    &ROUTER_POLICY,
    &DROP_HEADER,
    &DEFAULT_RETENTION,
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
