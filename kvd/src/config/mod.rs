//! The configuration: what can be set ([`table`]), who said what ([`given`], from [`flags`],
//! [`environment`] and [`mod@file`]), and the checked [`Settings`] ([`validate`]). Nothing else of the
//! daemon reads arguments or environment, and only `Settings` can build a daemon. Precedence: flag,
//! environment, file, default. A start with mistakes lists all of them, each with its source.

mod disk;
mod disk_options;
mod duration;
mod environment;
mod events;
mod events_options;
mod file;
mod flags;
mod given;
mod lower_tiers;
mod memory;
mod option;
mod problem;
mod report;
mod size;
mod table;
#[cfg(test)]
mod tests;
mod validate;
mod value;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use kvd_shm::numa::NumaPolicy;

pub use self::disk::{DiskSettings, Durability, IoMode};
pub use self::environment::meaning_of;
pub use self::events::EventsSettings;
pub use self::memory::Memory;
pub use self::problem::{Problem, Problems, Source};
pub use self::report::Report;
pub use self::table::DEFAULT_SOCKET;

/// Everything the daemon needs to know, checked. Plain data: no file or socket has been touched for
/// it except the configuration file and the group database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Unix socket of the engines.
    pub socket: PathBuf,
    /// Its permission bits.
    pub socket_mode: u32,
    /// Group id that the socket is given to.
    pub socket_group: Option<u32>,
    /// Peers that are served; empty: whoever the socket's permissions let in.
    pub allow_uids: Vec<u32>,
    /// Unix socket of the admin interface; never the same as `socket`.
    pub admin_socket: PathBuf,
    /// Unix socket at which a successor takes over; never the same as another one.
    pub takeover_socket: Option<PathBuf>,
    /// TCP address of health and metrics.
    pub metrics_listen: Option<SocketAddr>,
    /// The arena.
    pub memory: Memory,
    /// Whether to leave it to the next life of the daemon, and to take over that of the life before.
    pub warm_restart: bool,
    /// Caps.
    pub limits: Limits,
    /// How long a key reported present stays loadable.
    pub promise_window: Duration,
    /// How long memory handed to a protocol-1 client rests after its next request.
    pub view_grace: Duration,
    /// How long a drain waits for requests in flight.
    pub drain_deadline: Duration,
    /// The disk tier.
    pub disk: DiskSettings,
    /// What is published; none: nothing.
    pub events: Option<EventsSettings>,
    /// Log lines.
    pub log: LogSettings,
    /// Who said what, and remarks to log once at start.
    pub report: Report,
}

/// What sessions may use. All figures are inclusive upper bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub sessions_max: u32,
    /// Longest protocol-1 frame in bytes, without its length prefix.
    pub frame_bytes_max: u32,
    /// Read leases of one session.
    pub leases_max: u32,
    /// Write tickets of one session.
    pub tickets_max: u32,
    /// Arena bytes that one session may pin.
    pub in_flight_bytes_max: u64,
    /// Bytes outside the arena for bodies of all sessions.
    pub staging_bytes_max: u64,
    /// A client that reads nothing of its reply for this long is closed.
    pub write_stall: Duration,
}

/// How the daemon logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// Least severe level that is written.
    pub level: LogLevel,
    /// Shape of a line.
    pub format: LogFormat,
}

/// Levels, most talkative first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Info,
    Warning,
    Error,
}

/// Shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// Run the daemon.
    Serve(Box<Settings>),
    /// The configuration is good: print this and end with 0.
    CheckConfig(Box<Settings>),
    /// Look at the host and say what to do, as JSON if that is wanted.
    Doctor {
        /// With which options a daemon is to run here.
        settings: Box<Settings>,
        /// For scripts.
        json: bool,
    },
    /// `--help` or `--version`: print this and end with 0.
    Print(String),
}

/// What configuration may ask of the host; a test gives its own.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// Contents of a configuration file.
    pub read_file: fn(&std::path::Path) -> std::io::Result<String>,
    /// Id of a named group.
    pub group_id: fn(&str) -> Option<u32>,
}

/// Largest configuration file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl Host {
    /// The host that this process runs on.
    #[must_use]
    pub fn real() -> Self {
        Self { read_file: read_bounded, group_id }
    }
}

fn read_bounded(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let reason = format!("larger than {FILE_BYTES_MAX} bytes");
        return Err(std::io::Error::other(reason));
    }
    Ok(text)
}

fn group_id(name: &str) -> Option<u32> {
    nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

/// Reads the configuration of this process.
///
/// # Errors
/// All mistakes of all sources together; the process should print them and end with code 2.
pub fn from_process() -> Result<Invocation, Problems> {
    load(std::env::args_os(), std::env::vars_os(), Host::real())
}

/// Reads a configuration from the given arguments (the first is the program's name) and
/// environment.
///
/// # Errors
/// All mistakes of all sources together.
pub fn load(
    arguments: impl IntoIterator<Item = std::ffi::OsString>,
    variables: impl IntoIterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    host: Host,
) -> Result<Invocation, Problems> {
    let mut given = given::Given::default();
    let task = match flags::read(arguments, &mut given) {
        flags::Parsed::Task(task) => task,
        flags::Parsed::Print(text) => return Ok(Invocation::Print(text)),
    };
    environment::read(variables, &mut given);
    file::read(host, &mut given);
    let settings = Box::new(validate::settings(given, host)?);
    Ok(match task {
        flags::Task::Serve => Invocation::Serve(settings),
        flags::Task::CheckConfig => Invocation::CheckConfig(settings),
        flags::Task::Doctor { json } => Invocation::Doctor { settings, json },
    })
}
