//! What may be typed, and what it comes to.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, ValueEnum};
use hyper::Uri;
use kvd_etcd::{Access, Password, Said};
use kvd_proto::events::registration;
use router_core::record;

/// Where a daemon that was told nothing else has its admin socket.
const ADMIN_SOCKET: &str = "/var/run/infera-kvd.admin.sock";
const DAY_S: f64 = 86_400.0;

const AFTER_HELP: &str = "\
Examples:
  infera-register --etcd-endpoint etcd:2379 -- vllm serve MODEL --kv-events-config \\
      '{\"enable_kv_cache_events\":true,\"endpoint\":\"tcp://*:5557\",\"replay_endpoint\":\"tcp://*:5657\",\"topic\":\"kv-events\"}'
  infera-register --etcd-endpoint etcd:2379 --url http://10.0.0.1:8000

The first starts the engine and ends with it; the second looks after one that runs.
An engine that is neither vLLM nor SGLang: --url, --engine vllm, and --model-name unless it answers
/v1/models. --print shows what would be registered.

SIGTERM takes the worker out of etcd, waits for its requests and ends the engine that was started
here; a second one waits no longer, a third one kills. A flag wins over its environment variable.
RUST_LOG sets what is logged.

Exit codes: that of the engine (128 + number if a signal ended it); without one 0 after SIGTERM;
1 runtime failure, 2 bad usage.";

/// Makes an LLM inference engine a worker of infera-router: registers it in etcd for as long as it is well.
#[derive(Debug, Parser)]
#[command(name = "infera-register", version, after_help = AFTER_HELP, max_term_width = 120)]
pub(crate) struct Arguments {
    /// HOST, HOST:PORT or URL of etcd; several members separated by commas.
    #[arg(
        long,
        env = "INFERA_REGISTER_ETCD_ENDPOINT",
        default_value = "127.0.0.1:2379",
        value_delimiter = ','
    )]
    pub(crate) etcd_endpoint: Vec<String>,
    /// File of certificates (PEM) that the one of etcd has to come from, in place of those that the system trusts.
    #[arg(long, env = "INFERA_REGISTER_ETCD_CA_FILE", value_name = "FILE")]
    pub(crate) etcd_ca_file: Option<PathBuf>,
    /// File with the certificate (PEM) that etcd is shown.
    #[arg(long, env = "INFERA_REGISTER_ETCD_CERT_FILE", value_name = "FILE")]
    pub(crate) etcd_cert_file: Option<PathBuf>,
    /// File with its key (PEM).
    #[arg(long, env = "INFERA_REGISTER_ETCD_KEY_FILE", value_name = "FILE")]
    pub(crate) etcd_key_file: Option<PathBuf>,
    /// User of etcd, if it asks for one. The password is in a file, or in the variable INFERA_ETCD_PASSWORD.
    #[arg(long, env = "INFERA_REGISTER_ETCD_USER", value_name = "NAME")]
    pub(crate) etcd_user: Option<String>,
    /// File with the user's password.
    #[arg(long, env = "INFERA_REGISTER_ETCD_PASSWORD_FILE", value_name = "FILE")]
    pub(crate) etcd_password_file: Option<PathBuf>,
    /// Where workers are registered.
    #[arg(long, env = "INFERA_REGISTER_ETCD_PREFIX", default_value = record::PREFIX, value_parser = prefix)]
    pub(crate) etcd_prefix: String,
    /// Where daemons are registered.
    #[arg(long, env = "INFERA_REGISTER_KVD_PREFIX", default_value = registration::PREFIX, value_parser = prefix)]
    pub(crate) kvd_prefix: String,
    /// Where the engine answers, as seen from here: http://HOST:PORT, or https. Default: what its command line says.
    #[arg(long, env = "INFERA_REGISTER_URL", value_parser = url)]
    pub(crate) url: Option<Server>,
    /// File of certificates (PEM) that the one of an engine at https has to come from, in place of those that the system trusts.
    #[arg(long, env = "INFERA_REGISTER_ENGINE_CA_FILE", value_name = "FILE")]
    pub(crate) engine_ca_file: Option<PathBuf>,
    /// The host that routers are told. Default: the engine's own, or the address that faces etcd if it listens on all.
    #[arg(long, env = "INFERA_REGISTER_ADVERTISE", value_name = "HOST")]
    pub(crate) advertise: Option<String>,
    /// The engine. Default: found out.
    #[arg(long, env = "INFERA_REGISTER_ENGINE")]
    pub(crate) engine: Option<Engine>,
    /// The model's name in requests. Default: the first of /v1/models.
    #[arg(long, env = "INFERA_REGISTER_MODEL_NAME", value_name = "NAME")]
    pub(crate) model_name: Option<String>,
    /// Tokens in a block of the engine's cache. Default: found out.
    #[arg(long, env = "INFERA_REGISTER_BLOCK_SIZE", value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) block_size: Option<u32>,
    /// Where rank 0 publishes cache events: tcp://HOST:PORT, * for this host. Default: found out.
    #[arg(long, env = "INFERA_REGISTER_KV_EVENTS_ENDPOINT", value_name = "ENDPOINT", value_parser = events)]
    pub(crate) kv_events_endpoint: Option<String>,
    /// Id of this host's cache daemon. Default: what it says itself, else the one daemon in etcd that has an address of this host.
    #[arg(long, env = "INFERA_REGISTER_KVD_HOST_ID", value_name = "ID")]
    pub(crate) kvd_host_id: Option<String>,
    /// Admin socket of this host's cache daemon, where it is asked for its id.
    #[arg(long, env = "INFERA_REGISTER_KVD_ADMIN_SOCKET", default_value = ADMIN_SOCKET, value_name = "PATH")]
    pub(crate) kvd_admin_socket: PathBuf,
    /// What the engine's --api-key is.
    #[arg(long, env = "INFERA_REGISTER_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// An engine that is not ready after this long is given up.
    #[arg(long, env = "INFERA_REGISTER_START_TIMEOUT_S", default_value = "1800", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) start_timeout_s: Duration,
    /// How often a registered engine is asked whether it is well. Nobody listening, or three bad answers in a row: it is
    /// taken out until it is well again.
    #[arg(long, env = "INFERA_REGISTER_HEALTH_INTERVAL_S", default_value = "5", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) health_interval_s: Duration,
    /// After SIGTERM requests in flight may take this long.
    #[arg(long, env = "INFERA_REGISTER_DRAIN_TIMEOUT_S", default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) drain_timeout_s: Duration,
    /// After that the engine may take this long to end before it is killed.
    #[arg(long, env = "INFERA_REGISTER_STOP_TIMEOUT_S", default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) stop_timeout_s: Duration,
    /// Only prints the records, once the engine is ready, and ends it.
    #[arg(long)]
    pub(crate) print: bool,
    /// The engine's command line.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// An engine by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Vllm,
    Sglang,
    Atom,
}

impl From<Engine> for record::Engine {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Vllm => Self::Vllm,
            Engine::Sglang => Self::Sglang,
            Engine::Atom => Self::Atom,
        }
    }
}

/// Where an engine answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// `http`, or `https`.
    pub(crate) scheme: &'static str,
    /// As it stands in a URL.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Arguments {
    /// Reads the command line and the environment; what they say, and the way to etcd.
    ///
    /// # Errors
    /// What is wrong, or the text of `--help`.
    pub(crate) fn read() -> Result<(Self, Access), clap::Error> {
        let password = std::env::var(Password::VARIABLE).ok().and_then(Password::new);
        Self::try_parse().and_then(|arguments| arguments.checked(password))
    }

    fn checked(self, password: Option<Password>) -> Result<(Self, Access), clap::Error> {
        if self.command.is_empty() && self.url.is_none() {
            let message =
                "which engine? Give its command line after --, or --url for one that runs";
            return Err(Self::command().error(ErrorKind::MissingRequiredArgument, message));
        }
        let access = Access::of(Said {
            endpoints: self.etcd_endpoint.clone(),
            ca_file: self.etcd_ca_file.clone(),
            cert_file: self.etcd_cert_file.clone(),
            key_file: self.etcd_key_file.clone(),
            user: self.etcd_user.clone(),
            password_file: self.etcd_password_file.clone(),
            password,
        });
        let access = access.map_err(|wrong| {
            let lines = wrong.iter().map(|wrong| format!("--{}: {}", wrong.option, wrong.message));
            let message = lines.collect::<Vec<_>>().join("\n");
            Self::command().error(ErrorKind::ValueValidation, message)
        })?;
        Ok((self, access))
    }
}

fn url(text: &str) -> Result<Server, String> {
    let read = || {
        let uri: Uri = text.parse().ok()?;
        let (scheme, port) = match uri.scheme_str()? {
            "http" => ("http", 80),
            "https" => ("https", 443),
            _ => return None,
        };
        let host = uri.host().filter(|host| !host.is_empty())?.to_owned();
        let is_plain = uri.path().len() <= 1 && uri.query().is_none();
        let port = uri.port_u16().unwrap_or(port);
        is_plain.then_some(Server { scheme, host, port })
    };
    read().ok_or_else(|| "expected http://HOST:PORT, or https".to_owned())
}

fn prefix(text: &str) -> Result<String, String> {
    match text.trim_end_matches('/') {
        "" => Err("expected a folder like /infera/workers/".to_owned()),
        folder => Ok(format!("{folder}/")),
    }
}

fn events(text: &str) -> Result<String, String> {
    crate::events::place(text).map(|_place| text.to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=DAY_S).contains(seconds));
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("expected seconds from 0 to {DAY_S}, like 5 or 0.5"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(arguments: &[&str]) -> Result<(Arguments, Access), clap::Error> {
        let name = std::iter::once("infera-register");
        Arguments::try_parse_from(name.chain(arguments.iter().copied()))
            .and_then(|arguments| arguments.checked(None))
    }

    fn endpoints(access: &Access) -> Vec<String> {
        access.endpoints().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_engine_is_started_or_runs_already() {
        let started = read(&["--print", "--", "vllm", "serve", "m", "--port", "1", "--print"]);
        assert_eq!(started.unwrap().0.command, ["vllm", "serve", "m", "--port", "1", "--print"]);
        let (running, access) = read(&["--url", "https://[::1]:9/"]).unwrap();
        let server = Server { scheme: "https", host: "[::1]".into(), port: 9 };
        assert_eq!(running.url, Some(server));
        assert_eq!(endpoints(&access), ["http://127.0.0.1:2379"]);
        assert_eq!(running.etcd_prefix, "/infera/workers/");
        assert_eq!(running.start_timeout_s, Duration::from_secs(1800));
        assert_eq!(read(&[]).unwrap_err().kind(), ErrorKind::MissingRequiredArgument);
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        for bad in [
            &["--url", "ftp://h:1"][..],
            &["--url", "http://h:1/v1"],
            &["--url", "h:1"],
            &["--etcd-endpoint", "http://h/x"],
            &["--etcd-ca-file", "/none"],
            &["--etcd-user", "u"],
            &["--etcd-prefix", "/"],
            &["--engine", "other"],
            &["--block-size", "0"],
            &["--kv-events-endpoint", "ipc://x"],
            &["--stop-timeout-s", "-1"],
            &["--drain-timeout-s", "nan"],
            &["vllm", "serve"],
        ] {
            let all: Vec<&str> = bad.iter().copied().chain(["--", "vllm"]).collect();
            assert!(read(&all).is_err(), "{bad:?}");
        }
        let words = ["--etcd-prefix", "/x", "--etcd-endpoint", "e,https://f:1", "--", "vllm"];
        let (said, access) = read(&words).unwrap();
        assert_eq!(said.etcd_prefix, "/x/");
        assert_eq!(endpoints(&access), ["http://e:2379", "https://f:1"]);
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let mut table =
            "| flag | environment | default | meaning |\n|---|---|---|---|\n".to_owned();
        let command = Arguments::command();
        for flag in command.get_arguments().filter(|flag| flag.get_long().is_some()) {
            let name = flag.get_long().unwrap();
            let variable =
                flag.get_env().map_or("–".into(), |name| format!("`{}`", name.to_string_lossy()));
            let is_valued = flag.get_action().takes_values();
            let default = flag.get_default_values().first().filter(|_| is_valued);
            let default =
                default.map_or("–".into(), |value| format!("`{}`", value.to_string_lossy()));
            let help = flag.get_help().unwrap().to_string();
            let help = if help.ends_with('.') { help } else { format!("{help}.") };
            table.push_str(&format!("| `--{name}` | {variable} | {default} | {help} |\n"));
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/register.md");
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.contains(&table), "docs/register.md should contain:\n{table}");
    }
}
