//! What command lines and environments come to.

use std::path::Path;

use super::*;

fn load_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Settings, String> {
    let arguments = std::iter::once("infera-router").chain(arguments.iter().copied());
    let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    match load(arguments.map(OsString::from), variables) {
        Ok(Invocation::Serve(settings)) => Ok(*settings),
        Ok(Invocation::Print(text)) => panic!("it prints {text}"),
        Err(wrong) => Err(wrong.to_string()),
    }
}

fn access(host: &str) -> Access {
    let endpoints = vec![format!("http://{host}:2379")];
    Access::of(kvd_etcd::Said { endpoints, ..kvd_etcd::Said::default() }).unwrap()
}

/// What the launcher sends, in its order.
const LAUNCHER: &[&str] = &[
    "--host",
    "127.0.0.1",
    "--port",
    "8123",
    "--etcd-prefix",
    "/infera/workers",
    "--router-policy",
    "kv-aware",
    "--discovery-backend",
    "etcd",
    "--request-transport",
    "nats",
    "--request-max-retries",
    "2",
    "--breaker-failure-threshold",
    "4",
    "--breaker-cooldown-s",
    "5.0",
    "--breaker-max-cooldown-s",
    "60.0",
    "--etcd-endpoint",
    "etcd:2379",
    "--kv-event-transport",
    "nats",
    "--nats-server",
    "nats://n:4222",
    "--nats-req-idle-timeout-s",
    "900.0",
    "--nats-req-max-duration-s",
    "0.0",
    "--nats-req-max-pending",
    "0",
    "--kv-tokenizer-path",
    "/models/x",
    "--kv-overlap-weight",
    "1.0",
    "--kv-prefill-overlap-weight",
    "20.0",
    "--kv-decode-overlap-weight",
    "2.0",
    "--session-affinity",
    "off",
    "--session-affinity-ttl-seconds",
    "3600",
];

#[test]
fn the_launchers_command_line_is_read_to_the_end() {
    let settings = load_with(LAUNCHER, &[]).unwrap();
    assert_eq!(settings.listen, ("127.0.0.1".to_owned(), 8123));
    let prefix = "/infera/workers/".to_owned();
    assert_eq!(settings.discovery, Discovery::Etcd { access: access("etcd"), prefix });
    let Policy::KvAware(cache) = settings.policy else { panic!("{:?}", settings.policy) };
    assert_eq!(cache.tokenizers.0, Some("/models/x".into()));
    assert_eq!((cache.score, cache.kvd_prefix.as_str()), (Score::Ettft, "/infera/kvd/"));
    assert_eq!(settings.retries_max, 2);
    assert_eq!(settings.breaker.faults_max, 4);
    assert_eq!(settings.breaker.cooldown, Duration::from_secs(5));
    // A line for each reason, and what asks for nothing is not named.
    let remarks = settings.remarks.join("\n");
    for named in ["--request-transport", "--nats-req-max-pending", "--kv-prefill-overlap-weight"] {
        assert_eq!(remarks.matches(named).count(), 1, "{named} in {remarks}");
    }
    assert!(!remarks.contains("--session-affinity,"), "{remarks}");
}

#[test]
fn defaults_are_those_of_the_launcher() {
    let settings = load_with(&[], &[]).unwrap();
    assert_eq!(settings.listen, ("0.0.0.0".to_owned(), 8000));
    let prefix = "/infera/workers/".to_owned();
    assert_eq!(settings.discovery, Discovery::Etcd { access: access("127.0.0.1"), prefix });
    assert!(matches!(settings.policy, Policy::Simple(SimplePolicy::RoundRobin)));
    assert_eq!(settings.retries_max, 1);
    assert_eq!(settings.body_bytes_max, 64 << 20);
    assert_eq!(settings.patience.idle, None);
    assert_eq!(settings.patience.admission_warn, Some(Duration::from_secs(240)));
    assert_eq!(settings.patience.stall_warn, Some(Duration::from_secs(60)));
    assert_eq!(settings.default_retention, Retention::Long);
    assert_eq!(settings.remarks, Vec::<String>::new());
}

#[test]
fn variables_that_nobody_reads_are_told() {
    let said = [
        ("INFERA_ROUTER_PORT", "8101"),
        ("INFERA_ROUTER_WROKER", "http://a:1"),
        ("INFERA_ROUTER_STREAM_STALL_WARN_S", "3"),
    ];
    assert_eq!(
        load_with(&[], &said).unwrap().remarks,
        [
            "INFERA_ROUTER_PORT is not read: say it by --port",
            "INFERA_ROUTER_WROKER is not read: --help lists the variables",
            "INFERA_ROUTER_STREAM_STALL_WARN_S is not read: the variable is INFERA_STREAM_STALL_WARN",
        ]
    );
    let of_others = [
        ("INFERA_ROUTER_PORT", "tcp://10.0.0.1:8000"),
        ("INFERA_ROUTER_PORT_8000_TCP_ADDR", "10.0.0.1"),
        ("INFERA_ROUTER_SERVICE_HOST", "10.0.0.1"),
        ("INFERA_ROUTER_ARGUMENTS", "--port 8101"),
        ("INFERA_ROUTER_ENABLE_ADMIN", "true"),
        ("INFERA_ROUTER_WROKER", ""),
    ];
    let remarks = load_with(&["--router-policy", "kv-aware"], &of_others).unwrap().remarks;
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(remarks[0].starts_with("kv-aware without --kv-tokenizer-path"), "{remarks:?}");
}

#[test]
fn a_flag_wins_over_its_variable() {
    let variables = [
        ("INFERA_HTTP_REQ_IDLE_TIMEOUT", "7"),
        ("INFERA_STREAM_STALL_WARN", "0"),
        ("INFERA_ROUTER_DEFAULT_RETENTION", "none"),
        ("INFERA_ROUTER_WORKER", "http://a:1,http://b:2=m"),
        // Set for every service by orchestrators: not ours.
        ("INFERA_ROUTER_PORT", "tcp://10.0.0.1:8000"),
    ];
    let settings = load_with(&["--http-req-idle-timeout-s", "2.5"], &variables).unwrap();
    assert_eq!(settings.patience.idle, Some(Duration::from_millis(2500)));
    assert_eq!(settings.patience.stall_warn, None);
    assert_eq!(settings.default_retention, Retention::None);
    assert_eq!(settings.listen.1, 8000);
    let worker = |url: &str, model: &str| FixedWorker { url: url.into(), model: model.into() };
    let workers = vec![worker("http://a:1", ""), worker("http://b:2", "m")];
    assert_eq!(settings.discovery, Discovery::Fixed(workers));
}

#[test]
fn every_mistake_is_named() {
    let unknown = load_with(&["--breaker-cooldwn-s", "5"], &[]).unwrap_err();
    assert!(unknown.contains("--breaker-cooldwn-s"), "{unknown}");
    let arguments = [
        "--port",
        "66000",
        "--router-policy",
        "fastest",
        "--discovery-backend",
        "kubernetes",
        "--etcd-endpoint",
        "https://x/y",
        "--worker-ca-file",
        "/none",
        "--drop-header",
        "no header",
        "--breaker-max-cooldown-s",
        "1",
    ];
    let wrong = load_with(&arguments, &[("INFERA_STREAM_STALL_WARN", "-1")]).unwrap_err();
    for named in [
        "--port",
        "--router-policy",
        "kubernetes is not supported",
        "--etcd-endpoint",
        "--worker-ca-file",
        "--drop-header",
        "--breaker-max-cooldown-s",
        "INFERA_STREAM_STALL_WARN",
    ] {
        assert!(wrong.contains(named), "{named} in {wrong}");
    }
    for worker in ["x:1", "ftp://x:1", "http://", "http://x:1/path", ""] {
        load_with(&["--worker", worker, "--worker", "http://ok:1"], &[]).unwrap_err();
    }
    load_with(&["--worker", "http://x:1", "--worker", "http://x:1/=m"], &[]).unwrap_err();
    load_with(&["--worker", "https://x:1"], &[]).unwrap();
}

#[test]
fn the_documentation_has_the_same_table() {
    let mut table = "| flag | environment | default | meaning |\n|---|---|---|---|\n".to_owned();
    for option in table::all() {
        let code = |text: &str| match text {
            "" => "–".to_owned(),
            text => format!("`{text}`"),
        };
        let flag = if option.flag { format!("--{}", option.name) } else { String::new() };
        let environment = code(option.environment.unwrap_or_default());
        let help = option.help;
        let effect = if option.idle.is_some() { " Without effect." } else { "" };
        let default = code(option.default);
        table.push_str(&format!(
            "| {} | {environment} | {default} | {help}{effect} |\n",
            code(&flag)
        ));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/router.md");
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.contains(&table), "docs/router.md should contain:\n{table}");
}
