//! The order in which things happen: start the engine, wait until it is well, find out what it is, keep it registered, take
//! it out *before* it drains, end it.

use std::cell::Cell;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use kvd_etcd::{Access, Endpoint, Etcd};
use router_tls::Trust;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::arguments::Arguments;
use crate::child::{Process, exit_code};
use crate::command_line::CommandLine;
use crate::engine::{Asked, Given};
use crate::host::{self, Names};
use crate::http::{Failed, Http};
use crate::record::{Facts, records};
use crate::registrar::{self, Register, Registrar};
use crate::signals::{Forwarded, Signals};

/// Pause between two questions to an engine that is not ready.
const NOT_YET: Duration = Duration::from_millis(500);
/// Bad answers in a row after which an engine is not well. Nobody listening is told at once.
const STRIKES: u32 = 3;
/// What routers had sent before they knew arrives within this time.
const SETTLE: Duration = Duration::from_secs(1);
/// Pause between two looks at what an engine has to do; it has nothing if two in a row say so.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Why there is nothing to go on with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("listening for signals: {0}")]
    Signals(#[source] io::Error),
    #[error("starting {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("waiting for the engine: {0}")]
    Wait(#[source] io::Error),
    #[error("no address of this host faces etcd ({source}); name one with --advertise")]
    NoAddress { source: io::Error },
    #[error("the API key can't stand in a header")]
    Key,
    #[error("--engine-ca-file: {0}")]
    Trust(#[source] io::Error),
    #[error(
        "the engine is not ready within --start-timeout-s: {reason} (it was asked at {url}; --url says where it is)"
    )]
    NotReady { url: String, reason: String },
}

/// Why a wait is over.
enum Over {
    /// The engine ended.
    Ended(ExitStatus),
    /// A signal came.
    Asked,
    /// The records were found, and only they were asked for.
    Found(Vec<Value>),
}

/// Runs until engine or operator end it; the exit code, and what is to be printed.
///
/// # Errors
/// [`Failure`]; nothing is registered then, and the engine was ended.
pub(crate) async fn run(arguments: Arguments, access: Access) -> Result<(u8, Vec<Value>), Failure> {
    let mut signals = Signals::listen().map_err(Failure::Signals)?;
    let forwarded = Forwarded::listen().map_err(Failure::Signals)?;
    let command_line = CommandLine::of(&arguments.command);
    let told = told(&arguments, &access, &command_line)?;
    let trust = Trust::read(arguments.engine_ca_file.as_deref()).map_err(Failure::Trust)?;
    let asked = asked(&arguments, command_line, &trust).ok_or(Failure::Key)?;
    let register = Register {
        etcd: Etcd::new(access),
        prefix: arguments.etcd_prefix.clone(),
        kvd_prefix: arguments.kvd_prefix.clone(),
        kvd_host_id: arguments.kvd_host_id.clone(),
        kvd_admin_socket: arguments.kvd_admin_socket.clone(),
        names: Names::of_this_host(&told),
    };
    let mut process = start(&arguments.command)?;
    let mut forwarding = JoinSet::new();
    if let Some(process) = &process {
        forwarding.spawn(forwarded.to(process.pid()));
    }
    let registrar = Registrar::start(register.clone());
    let is_registered = Cell::new(false);
    let sidecar = Sidecar { arguments, asked, told, register, registrar, is_registered };
    let over = tokio::select! {
        over = ended(&mut process) => over,
        () = signals.next() => Ok(Over::Asked),
        over = sidecar.look_after() => over,
    };
    // Before anything else: from here on nobody is to be sent to it.
    sidecar.registrar.withdraw().await;
    let left = match over {
        Ok(Over::Ended(status)) => Some(Ok(status)),
        Ok(Over::Asked) if sidecar.is_registered.get() => {
            sidecar.drain(&mut process, &mut signals).await
        }
        _ => None,
    };
    let status = match (&mut process, left) {
        (_, Some(status)) => Some(status),
        (Some(process), None) => {
            let patience = sidecar.arguments.stop_timeout_s;
            Some(process.stop(patience, signals.next()).await)
        }
        (None, None) => None,
    };
    if let Some(process) = &process {
        process.sweep().await;
    }
    let status = status.transpose().map_err(Failure::Wait)?;
    match over? {
        Over::Found(records) => Ok((0, records)),
        Over::Asked | Over::Ended(_) => {
            if let Some(status) = status {
                tracing::info!(%status, "the engine has ended");
            }
            Ok((status.map_or(0, exit_code), Vec::new()))
        }
    }
}

/// The host that routers are told.
fn told(arguments: &Arguments, access: &Access, said: &CommandLine) -> Result<String, Failure> {
    let etcd = access.endpoints().first();
    let url_host = arguments.url.as_ref().map(|server| server.host.clone());
    let engine_host = url_host.or_else(|| said.host_or_default());
    let engine_host = engine_host.filter(|host| !host::is_any(host));
    let told = match arguments.advertise.clone().or(engine_host) {
        Some(host) => host::in_url(&host),
        None => {
            let etcd = etcd.map(Endpoint::authority).unwrap_or_default();
            let facing = host::facing(&etcd).map_err(|source| Failure::NoAddress { source })?;
            host::in_url(&facing.to_string())
        }
    };
    let is_etcd_elsewhere = etcd.is_some_and(|etcd| !host::is_loopback(etcd.host()));
    if host::is_loopback(&told) && is_etcd_elsewhere {
        tracing::warn!(
            host = told,
            "only routers on this host will reach the engine: let it listen on another address, or give --advertise"
        );
    }
    Ok(told)
}

/// Where the engine is asked, as seen from here. Nothing if the key can't be sent.
fn asked(arguments: &Arguments, command_line: CommandLine, trust: &Trust) -> Option<Asked> {
    let http = Http::new(arguments.api_key.as_deref(), trust)?;
    let (scheme, host, port) = match &arguments.url {
        Some(server) => (server.scheme, server.host.clone(), server.port),
        None => {
            let host = command_line.host_or_default().filter(|host| !host::is_any(host));
            let host = host.map_or("127.0.0.1".to_owned(), |host| host::in_url(&host));
            (command_line.scheme(), host, command_line.port_or_default())
        }
    };
    let given = Given {
        engine: arguments.engine.map(Into::into),
        model: arguments.model_name.clone(),
        block_size: arguments.block_size,
        events_endpoint: arguments.kv_events_endpoint.clone(),
    };
    Some(Asked { http, scheme, host, port, command_line, given })
}

fn start(command: &[String]) -> Result<Option<Process>, Failure> {
    let Some(program) = command.first() else { return Ok(None) };
    let started = Process::start(command);
    let process = started.map_err(|source| Failure::Start { program: program.clone(), source })?;
    tracing::info!(pid = %process.pid(), program, "the engine starts");
    Ok(Some(process))
}

/// Waits for the end of an engine that was started here.
async fn ended(process: &mut Option<Process>) -> Result<Over, Failure> {
    match process {
        Some(process) => process.ended().await.map(Over::Ended).map_err(Failure::Wait),
        None => std::future::pending().await,
    }
}

struct Sidecar {
    arguments: Arguments,
    asked: Asked,
    told: String,
    register: Register,
    registrar: Registrar,
    is_registered: Cell<bool>,
}

impl Sidecar {
    /// Keeps the engine registered whenever it is well.
    async fn look_after(&self) -> Result<Over, Failure> {
        let mut last = String::new();
        let url = self.asked.url(self.asked.port, "");
        tracing::info!(url, "waiting until the engine is well");
        let first = timeout(self.arguments.start_timeout_s, self.until_known(&mut last)).await;
        let mut facts =
            first.map_err(|_elapsed| Failure::NotReady { url, reason: last.clone() })?;
        loop {
            let found = records(&facts, &self.told);
            for remark in &found.remarks {
                tracing::warn!("{remark}");
            }
            if self.arguments.print {
                let printed = registrar::preview(self.register.clone(), found.records);
                return Ok(Over::Found(printed.await));
            }
            self.registrar.register(found.records).await;
            self.is_registered.set(true);
            let reason = self.until_unwell().await;
            tracing::warn!(%reason, "the engine is not well; it is taken out until it is");
            self.is_registered.set(false);
            self.registrar.withdraw().await;
            facts = self.until_known(&mut last).await;
        }
    }

    /// Waits until the engine is well and has told what it is. `last`: why it was not so yet.
    async fn until_known(&self, last: &mut String) -> Facts {
        loop {
            let reason = match self.asked.health().await {
                Err(reason) => reason.to_string(),
                Ok(()) => match self.asked.facts().await {
                    Ok(facts) => return facts,
                    Err(reason) => {
                        let reason = reason.to_string();
                        if *last != reason {
                            tracing::warn!(reason, "the engine is well, and can't be registered");
                        }
                        reason
                    }
                },
            };
            *last = reason;
            sleep(NOT_YET).await;
        }
    }

    /// Waits until the engine is not well, and says why.
    async fn until_unwell(&self) -> Failed {
        let mut strikes = 0;
        loop {
            sleep(self.arguments.health_interval_s).await;
            match self.asked.health().await {
                Ok(()) => strikes = 0,
                Err(Failed::Refused) => return Failed::Refused,
                Err(reason) if strikes + 1 >= STRIKES => return reason,
                Err(_once) => strikes += 1,
            }
        }
    }

    /// Waits for requests in flight, unless something else comes first: the engine's end, or another signal.
    async fn drain(
        &self,
        process: &mut Option<Process>,
        signals: &mut Signals,
    ) -> Option<io::Result<ExitStatus>> {
        tracing::info!("waiting for requests in flight; another signal ends that");
        let ended = async {
            match process {
                Some(process) => process.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = ended => return Some(status),
            idle = timeout(self.arguments.drain_timeout_s, self.until_idle()) => {
                if idle.is_err() {
                    tracing::warn!("requests may be cut off: --drain-timeout-s is over");
                }
            }
            () = signals.next() => tracing::warn!("requests may be cut off, as another signal asked for it"),
        }
        None
    }

    async fn until_idle(&self) {
        let mut idle = 0;
        let mut is_told = false;
        sleep(SETTLE).await;
        while idle < 2 {
            match self.asked.in_flight().await {
                Some(count) if count <= 0.0 => idle += 1,
                Some(_count) => idle = 0,
                None if std::mem::replace(&mut is_told, true) => {}
                None => tracing::warn!(
                    "the engine does not tell what it has to do; it gets all of --drain-timeout-s"
                ),
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}
