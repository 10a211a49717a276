//! From texts to [`Settings`]: every text is parsed by the kind of its option, then the
//! combinations are looked at. A bad text is noted and its default used instead, so that later
//! mistakes show up in the same run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk_options::{DISK, VERIFY_L2};
use super::given::Given;
use super::lower_tiers::{LONG_BACKEND, OBSOLETE, REMOTE, USE_TABLESPACE};
use super::option::{Group, Opt};
use super::problem::Source;
use super::report::Row;
use super::table::*;
use super::value::{SOCKET_PATH_BYTES_MAX, Value};
use super::{
    Host, Limits, LogFormat, LogLevel, LogSettings, Memory, NumaPolicy, Problems, Report, Settings,
    memory, report,
};

/// Checks everything that was said.
///
/// # Errors
/// All mistakes, those met while reading the sources included.
pub(super) fn settings(given: Given, host: Host) -> Result<Settings, Problems> {
    let mut checked = Checked::new(given);
    let socket = PathBuf::from(checked.text(&SOCKET).unwrap_or_default());
    let admin_socket = checked.admin_socket(&socket);
    let takeover_socket = checked.takeover_socket(&socket, &admin_socket);
    let (memory, limits, disk) = (checked.memory(), checked.limits(), checked.disk());
    let events = checked.events();
    let mut derived = report::derived(&memory, &limits, &admin_socket);
    derived.extend(disk.derived());
    if !disk.is_on() {
        checked.remark_idle_disk_options();
    }
    let settings = Settings {
        socket,
        socket_mode: checked.mode(&SOCKET_MODE),
        socket_group: checked.socket_group(host),
        allow_uids: checked.users(&ALLOW_UID),
        admin_socket,
        takeover_socket,
        metrics_listen: checked.address(&METRICS_LISTEN),
        memory,
        warm_restart: checked.switch(&WARM_RESTART),
        limits,
        promise_window: checked.time(&PROMISE_WINDOW),
        view_grace: checked.time(&VIEW_GRACE),
        drain_deadline: checked.time(&DRAIN_DEADLINE),
        log: checked.log(),
        report: checked.report(derived, disk.is_on()),
        disk,
        events,
    };
    let problems = checked.given.problems;
    if problems.is_empty() { Ok(settings) } else { Err(Problems(problems)) }
}

/// The texts and what they parse to.
pub(super) struct Checked {
    given: Given,
    values: BTreeMap<&'static str, Value>,
}

/// A getter and the kind of its option disagree: a mistake in this file or in the table.
fn mismatch(option: &Opt, value: &Value) -> ! {
    unreachable!("--{} does not hold a {value:?}", option.name)
}

impl Checked {
    fn new(mut given: Given) -> Self {
        let mut values = BTreeMap::new();
        for option in all() {
            let value = match given.get(option.name).cloned() {
                None => default(option),
                Some(said) => option.kind.parse(&said.text).unwrap_or_else(|| {
                    let allowed = option.kind.allowed();
                    let message = format!("{:?} is not allowed; expected {allowed}", said.text);
                    given.problem(said.source, message);
                    default(option)
                }),
            };
            values.insert(option.name, value);
        }
        Self { given, values }
    }

    fn value(&self, option: &Opt) -> &Value {
        &self.values[option.name]
    }

    pub(super) fn source(&self, option: &Opt) -> Source {
        self.given.get(option.name).map_or(Source::Default, |said| said.source.clone())
    }

    pub(super) fn text(&self, option: &Opt) -> Option<String> {
        match self.value(option) {
            Value::Text(text) => Some(text.clone()),
            Value::Absent => None,
            other => mismatch(option, other),
        }
    }

    /// `None` stands for `auto`.
    pub(super) fn bytes_or_auto(&self, option: &Opt) -> Option<u64> {
        match self.value(option) {
            Value::Bytes(bytes) => Some(*bytes),
            Value::Auto => None,
            other => mismatch(option, other),
        }
    }

    pub(super) fn bytes(&self, option: &Opt) -> u64 {
        match self.value(option) {
            Value::Bytes(bytes) => *bytes,
            other => mismatch(option, other),
        }
    }

    pub(super) fn count(&self, option: &Opt) -> u32 {
        match self.value(option) {
            Value::Count(count) => *count,
            other => mismatch(option, other),
        }
    }

    pub(super) fn time(&self, option: &Opt) -> Duration {
        match self.value(option) {
            Value::Time(time) => *time,
            other => mismatch(option, other),
        }
    }

    pub(super) fn switch(&self, option: &Opt) -> bool {
        match self.value(option) {
            Value::Switch(on) => *on,
            other => mismatch(option, other),
        }
    }

    /// `None` stands for `off`.
    pub(super) fn one_in(&self, option: &Opt) -> Option<u32> {
        match self.value(option) {
            Value::OneIn(many) => Some(*many),
            Value::Absent => None,
            other => mismatch(option, other),
        }
    }

    /// Whether anybody named the option.
    pub(super) fn etcd_password(&self) -> Option<kvd_etcd::Password> {
        self.given.etcd_password.clone()
    }

    pub(super) fn is_said(&self, option: &Opt) -> bool {
        self.given.get(option.name).is_some()
    }

    pub(super) fn problem(&mut self, source: Source, message: impl Into<String>) {
        self.given.problem(source, message);
    }

    fn mode(&self, option: &Opt) -> u32 {
        match self.value(option) {
            Value::Mode(mode) => *mode,
            other => mismatch(option, other),
        }
    }

    fn users(&self, option: &Opt) -> Vec<u32> {
        match self.value(option) {
            Value::Users(users) => users.clone(),
            Value::Absent => Vec::new(),
            other => mismatch(option, other),
        }
    }

    pub(super) fn address(&self, option: &Opt) -> Option<SocketAddr> {
        match self.value(option) {
            Value::Address(address) => Some(*address),
            Value::Absent => None,
            other => mismatch(option, other),
        }
    }

    fn numa(&self, option: &Opt) -> NumaPolicy {
        match self.value(option) {
            Value::Numa(policy) => *policy,
            other => mismatch(option, other),
        }
    }

    fn admin_socket(&mut self, socket: &Path) -> PathBuf {
        let path = self.text(&ADMIN_SOCKET).map_or_else(|| beside(socket), PathBuf::from);
        if path == socket {
            let message = format!("{} is the engines' socket (--socket) too", path.display());
            self.given.problem(self.source(&ADMIN_SOCKET), message);
        }
        let length = path.as_os_str().len();
        if length > SOCKET_PATH_BYTES_MAX {
            let message = format!(
                "leads to the admin socket {} of {length} bytes, {SOCKET_PATH_BYTES_MAX} are allowed; \
                 set --admin-socket or a shorter --socket",
                path.display()
            );
            self.given.problem(self.source(&SOCKET), message);
        }
        path
    }

    fn takeover_socket(&mut self, socket: &Path, admin_socket: &Path) -> Option<PathBuf> {
        let path = PathBuf::from(self.text(&TAKEOVER_SOCKET)?);
        if path == socket || path == admin_socket {
            let message = format!("{} is another socket of this daemon, too", path.display());
            self.given.problem(self.source(&TAKEOVER_SOCKET), message);
        }
        if !self.switch(&WARM_RESTART) {
            let message = "without --warm-restart nothing can be taken over";
            self.given.problem(self.source(&TAKEOVER_SOCKET), message);
        }
        Some(path)
    }

    fn socket_group(&mut self, host: Host) -> Option<u32> {
        let name = self.text(&SOCKET_GROUP)?;
        let id = name.parse().ok().or_else(|| (host.group_id)(&name));
        if id.is_none() {
            let message = format!("there is no group {name:?} on this host");
            self.given.problem(self.source(&SOCKET_GROUP), message);
        }
        id
    }

    fn memory(&mut self) -> Memory {
        let max_bytes = self.bytes(&MAX_BYTES);
        let shared_bytes = self.bytes_or_auto(&SHARED_ARENA_BYTES);
        let hugetlb = self.switch(&SHARED_ARENA_HUGETLB);
        let (arena_bytes, budget_bytes) = memory::sizes(max_bytes, shared_bytes, hugetlb);
        let shared = shared_bytes != Some(0);
        if shared && max_bytes > budget_bytes && self.source(&MAX_BYTES) != Source::Default {
            self.given.remarks.push(format!(
                "{}: larger than the shared arena; memory beyond the arena's \
                 {budget_bytes} bytes is not used",
                self.source(&MAX_BYTES)
            ));
        }
        let sizing = if shared_bytes.is_some_and(|bytes| bytes > 0) {
            &SHARED_ARENA_BYTES
        } else {
            &MAX_BYTES
        };
        Memory {
            arena_bytes,
            budget_bytes,
            shared,
            pin: self.switch(&SHARED_ARENA_PIN),
            hugetlb,
            numa: self.numa(&NUMA),
            size_source: self.source(sizing),
        }
    }

    fn limits(&self) -> Limits {
        let max_bytes = self.bytes(&MAX_BYTES);
        let shared_bytes = self.bytes_or_auto(&SHARED_ARENA_BYTES);
        let (arena_bytes, _) =
            memory::sizes(max_bytes, shared_bytes, self.switch(&SHARED_ARENA_HUGETLB));
        Limits {
            sessions_max: self.count(&SESSIONS_MAX),
            // The option allows no more than fits.
            frame_bytes_max: u32::try_from(self.bytes(&FRAME_BYTES_MAX)).unwrap_or(u32::MAX),
            leases_max: self.count(&LEASES_MAX),
            tickets_max: self.count(&TICKETS_MAX),
            in_flight_bytes_max: self
                .bytes_or_auto(&IN_FLIGHT_BYTES_MAX)
                .unwrap_or(arena_bytes / 2),
            staging_bytes_max: self.bytes(&STAGING_BYTES_MAX),
            write_stall: self.time(&WRITE_STALL),
        }
    }

    fn log(&self) -> LogSettings {
        let level = match self.text(&LOG_LEVEL).as_deref() {
            Some("DEBUG") => LogLevel::Debug,
            Some("WARNING") => LogLevel::Warning,
            Some("ERROR") => LogLevel::Error,
            _ => LogLevel::Info,
        };
        let json = self.text(&LOG_FORMAT).as_deref() == Some("json");
        LogSettings { level, format: if json { LogFormat::Json } else { LogFormat::Text } }
    }

    /// Options of a disk tier that is off.
    fn remark_idle_disk_options(&mut self) {
        let said = DISK.iter().filter_map(|option| Some((option, self.given.get(option.name)?)));
        // Hits in memory are verified without disks too, and 0 bytes is how the tier is turned off.
        let idle: Vec<String> = said
            .filter(|(option, _)| option.name != VERIFY_L2.name)
            .filter(|(_, said)| !matches!(said.text.trim(), "0" | "false" | "off"))
            .map(|(_, said)| said.source.to_string())
            .collect();
        if !idle.is_empty() {
            let remark = "there is no disk tier without --long-path and --long-bytes above 0";
            self.given.remarks.push(format!("{remark}; without effect: {}", idle.join(", ")));
        }
    }

    /// What nobody can act on, in a line for each reason.
    fn remark_accepted(&mut self) {
        let mut remote: Vec<String> =
            self.given.without_effect.iter().map(ToString::to_string).collect();
        remote.extend(self.said_of(&REMOTE));
        let obsolete = self.said_of(&OBSOLETE);
        for (reason, names) in [
            ("this version has no remote tier", remote),
            ("values of any size are stored, without slots, pools or scans", obsolete),
        ] {
            if !names.is_empty() {
                let remark = format!("{reason}; accepted without effect: {}", names.join(", "));
                self.given.remarks.push(remark);
            }
        }
    }

    /// Who set one of these options to something else than what is so anyway.
    fn said_of(&self, options: &[Opt]) -> Vec<String> {
        let said = options.iter().filter_map(|option| Some((option, self.given.get(option.name)?)));
        said.filter(|(option, said)| {
            let is_usual = option.kind.parse(&said.text) == option.kind.parse(option.default);
            !(is_usual && (option.name == LONG_BACKEND || option.name == USE_TABLESPACE))
        })
        .map(|(_, said)| said.source.to_string())
        .collect()
    }

    fn report(&mut self, derived: Vec<String>, has_disk: bool) -> Report {
        self.remark_accepted();
        let remarks = std::mem::take(&mut self.given.remarks);
        let is_shown = |option: &&Opt| match option.group {
            Group::Disk => has_disk || self.given.get(option.name).is_some(),
            Group::Events | Group::Accepted => self.given.get(option.name).is_some(),
            _ => true,
        };
        let rows = all()
            .filter(is_shown)
            .map(|option| match self.given.get(option.name) {
                Some(said) => Row::new(option, &said.text, said.source.clone()),
                None => Row::new(option, option.default, Source::Default),
            })
            .collect();
        Report { rows, derived, remarks }
    }
}

fn default(option: &Opt) -> Value {
    option.kind.parse(option.default).unwrap_or(Value::Absent)
}

/// `/run/x.sock` → `/run/x.admin.sock`; a name without `.sock` gets the whole ending.
fn beside(socket: &Path) -> PathBuf {
    if socket.extension().is_some_and(|extension| extension == "sock") {
        socket.with_extension("admin.sock")
    } else {
        let mut name = socket.as_os_str().to_owned();
        name.push(".admin.sock");
        PathBuf::from(name)
    }
}
