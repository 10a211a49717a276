//! Where clients knock: at the worker itself, at nginx, at a router or several.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::answer::Answer;
use super::load;
use crate::affinity::{self, pin};
use crate::patience::{PATIENCE, pause};
use crate::role::{Helper, Role};

/// Descriptors of a proxy with a thousand streams, and some.
const FILES: u64 = 4096;

/// The cores of those who take part.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    /// The proxy's own.
    pub proxy: usize,
    /// The worker's.
    pub worker: usize,
    /// The clients'; the worker's as well if there are only two.
    pub clients: usize,
}

impl Cores {
    /// Of those that this process may use.
    ///
    /// # Errors
    /// There is only one.
    pub fn choose() -> anyhow::Result<Self> {
        let cores = affinity::cores()?;
        ensure!(cores.len() > 1, "the proxy needs a core for itself, and there is only one");
        let clients = cores.get(2).copied().unwrap_or(cores[0]);
        Ok(Self { proxy: cores[1], worker: cores[0], clients })
    }
}

/// A worker, and the doors to it.
#[derive(Debug)]
pub struct Stage {
    /// Who runs where.
    pub cores: Cores,
    /// The worker itself, nginx, the routers.
    pub doors: Vec<Door>,
    /// The worker.
    pub worker: Helper,
}

impl Stage {
    /// Starts everything; `routers` tells the options of each, given the worker's address.
    ///
    /// # Errors
    /// Something is missing, or does not answer.
    pub fn set(
        routers: impl FnOnce(SocketAddr) -> anyhow::Result<Vec<Vec<String>>>,
    ) -> anyhow::Result<Self> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, soft.max(FILES.min(hard)), hard)?;
        let cores = Cores::choose()?;
        let mut worker = {
            let _pinned = pin(cores.worker)?;
            Helper::start(&Role::StreamWorker)?
        };
        let address: SocketAddr = worker.listen()?.parse().context("the worker's address")?;
        let routers = {
            let _pinned = pin(cores.worker)?;
            routers(address)?
        };
        let _pinned = pin(cores.proxy)?;
        let direct = Door { name: "direct", address, process: None };
        let mut doors = vec![direct, Door::nginx(address)?];
        for options in routers {
            doors.push(Door::router(&options)?);
        }
        Ok(Self { cores, doors, worker })
    }
}

/// A door.
#[derive(Debug)]
pub struct Door {
    /// What to call it.
    pub name: &'static str,
    /// Where it listens.
    pub address: SocketAddr,
    process: Option<Process>,
}

/// Killed when it is dropped.
#[derive(Debug)]
struct Process {
    child: Child,
    folder: TempDir,
}

impl Door {
    fn nginx(worker: SocketAddr) -> anyhow::Result<Self> {
        let address = free_address()?;
        let folder = folder()?;
        let path = folder.path();
        let file = path.join("nginx.conf");
        fs::write(&file, nginx_settings(path, address, worker)).context("writing settings")?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(path).arg("-e").arg(path.join("log")).arg("-c").arg(file);
        Self { name: "nginx", address, process: None }.open(&mut command, folder)
    }

    fn router(options: &[String]) -> anyhow::Result<Self> {
        let address = free_address()?;
        let program = std::env::current_exe()?.with_file_name("infera-router");
        let mut command = Command::new(program);
        let port = address.port().to_string();
        command.args(["--host", "127.0.0.1", "--port", &port]).args(options);
        Self { name: "router", address, process: None }.open(&mut command, folder()?)
    }

    /// Starts it and waits until a request comes through.
    fn open(mut self, command: &mut Command, folder: TempDir) -> anyhow::Result<Self> {
        let log = File::create(folder.path().join("out"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("starting {}", self.name))?;
        self.process = Some(Process { child, folder });
        let begun = Instant::now();
        while let Err(error) = first_token(&mut self.connect(), &load::request(0, 1 << 10, 1, 0)) {
            if begun.elapsed() > PATIENCE {
                bail!("{} does not serve: {error:#}\n{}", self.name, self.log());
            }
            pause(Duration::from_millis(20));
        }
        Ok(self)
    }

    /// A connection to it, if there is one.
    ///
    /// # Errors
    /// It does not listen.
    pub fn connect(&self) -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Its process, if it is one of its own.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    /// What it answers to `GET` of a path, head and all.
    ///
    /// # Errors
    /// It does not answer.
    pub fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = self.connect()?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn log(&self) -> String {
        let read = |process: &Process| {
            let files = ["out", "log"].map(|name| process.folder.path().join(name));
            files.map(|file| fs::read_to_string(file).unwrap_or_default()).concat()
        };
        self.process.as_ref().map(read).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if it has ended, and there is nothing left to do then.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Asks, and returns how long the first byte of the body took; takes the rest of the answer.
///
/// # Errors
/// There is no connection, or no such answer.
pub fn first_token(
    stream: &mut anyhow::Result<TcpStream>,
    request: &[u8],
) -> anyhow::Result<Duration> {
    let Ok(stream) = stream else { bail!("there is no connection") };
    let mut answer = Answer::default();
    let mut buffer = [0; 4096];
    let mut first = None;
    let begun = Instant::now();
    stream.write_all(request)?;
    while !answer.is_over() {
        let count = stream.read(&mut buffer)?;
        ensure!(count > 0, "an answer broke off");
        answer.take(&buffer[..count])?;
        if first.is_none() && !answer.body().is_empty() {
            first = Some(begun.elapsed());
        }
    }
    first.context("an answer without a body")
}

/// Time on processors that a process has used, in seconds.
///
/// # Errors
/// There is no such process.
pub fn busy_s(pid: u32) -> anyhow::Result<f64> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(i32::try_from(pid)?))?;
    Ok(Duration::from(clock_gettime(clock)?).as_secs_f64())
}

fn folder() -> anyhow::Result<TempDir> {
    tempfile::Builder::new().prefix("kvd-bench-").tempdir_in("/tmp").context("making a folder")
}

/// One that nobody listens on, a moment ago.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// A plain proxy that passes on what comes as it comes, and keeps connections.
fn nginx_settings(folder: &Path, address: SocketAddr, worker: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off; master_process off; pid {folder}/pid; worker_rlimit_nofile {FILES};
events {{ worker_connections {FILES}; }}
http {{
  access_log off; tcp_nodelay on; keepalive_requests 1000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  client_max_body_size 0; client_body_buffer_size 256k;
  upstream worker {{ server {worker}; keepalive 1024; keepalive_requests 1000000; }}
  server {{
    listen {address} backlog=4096;
    location / {{
      proxy_pass http://worker; proxy_http_version 1.1; proxy_set_header Connection \"\";
      proxy_buffering off;
    }}
  }}
}}
"
    )
}
