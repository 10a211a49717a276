//! The order in which a daemon starts and ends.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::accept::{self, Acceptor};
use crate::admin::{self, Admin};
use crate::clock;
use crate::config::Settings;
use crate::daemon::{Daemon, PrepareError};
use crate::devices::{self, claim::ClaimFault};
use crate::events;
use crate::events::register::Registrar;
use crate::listen::{Claim, ClaimError};
use crate::meters::HandoverEnd;
use crate::signals::{Heard, Signals};
use crate::succession::handover::door::{self, Door};
use crate::succession::handover::give::{self, GiveFault, Offer};
use crate::succession::handover::line::Line;
use crate::succession::handover::note::{Note, Role};
use crate::succession::handover::take::{self, Connection, Handed, TakeFault};
use crate::succession::handover::{PATIENCE, child};
use crate::succession::{Succession, estate, holders, watchdog};
use crate::touch;

/// What a drain leaves for writes that stall: the last part of the deadline.
const FORCED: Duration = Duration::from_secs(1);

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The socket is somebody else's, or can't be made.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// A directory of the disk tier is somebody else's.
    #[error(transparent)]
    Directory(#[from] ClaimFault),
    /// The arena or what belongs to it could not be made.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The running daemon hands nothing over, or it does not fit.
    #[error("nothing is taken over from the running daemon, which goes on: {0}")]
    Takeover(#[from] TakeFault),
    /// A thread or descriptor could not be made.
    #[error("{step}: {source}")]
    System {
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A running daemon; [`Running::drain`] ends it, or [`Running::hand_over`].
#[derive(Debug)]
pub struct Running {
    daemon: Arc<Daemon>,
    acceptor: Acceptor,
    admin: Admin,
    door: Option<Door>,
    /// Where the program of a successor is.
    program: Option<PathBuf>,
    threads: Vec<JoinHandle<()>>,
    disks: Vec<devices::Threads>,
    registrar: Option<Registrar>,
}

/// What a daemon is asked for while it serves.
#[derive(Debug)]
pub enum Event {
    /// To end; the signal's name.
    End(&'static str),
    /// To start a successor.
    Reload,
    /// To hand over to a successor that has come by itself.
    Successor(Line),
}

/// What became of a daemon that was to hand over.
#[derive(Debug)]
pub enum HandOver {
    /// It is another process now; this one has nothing left to do.
    Done,
    /// It serves on. The log says why.
    Stays(Box<Running>),
}

/// Where clients, operators and successors connect.
#[derive(Debug)]
struct Sockets {
    engines: Claim,
    admin: admin::Sockets,
    door: Option<Door>,
}

impl Running {
    /// Claims the sockets, creates the arena or takes over that of the life before, and starts every thread. If a daemon
    /// runs that hands over, everything is taken over from it. The engine socket is open when this returns; the arena
    /// warms up behind it.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind then, and a daemon that was to hand over goes on.
    pub fn start(settings: Settings, succession: Succession) -> Result<Self, StartError> {
        let unreachable = |source| StartError::Takeover(TakeFault::Unreachable(source));
        let parent = child::parent().map_err(unreachable)?;
        let running = match (parent, &settings.takeover_socket) {
            (Some(line), _) => Some(line),
            (None, Some(path)) => door::find(path).map_err(unreachable)?,
            (None, None) => None,
        };
        match running {
            Some(line) => Self::take_over(settings, succession, line),
            None => Self::begin(settings, succession),
        }
    }

    fn begin(settings: Settings, mut succession: Succession) -> Result<Self, StartError> {
        let program = succession.program.take();
        let engines = Claim::new(&settings.socket, settings.socket_mode, settings.socket_group)?;
        let door = settings.takeover_socket.as_deref().map(Door::open).transpose()?;
        let claims = devices::claim(&settings.disk.paths)?;
        let daemon = Arc::new(Daemon::prepare(settings, succession)?);
        let admin = admin::Sockets::open(&daemon.settings, None, None)
            .map_err(system("starting the admin server"))?;
        let next_session = daemon.origin.adopted.next_session;
        let mut running =
            Self::open(daemon, Sockets { engines, admin, door }, program, next_session)?;
        running.publish(Duration::ZERO)?;
        running.daemon.manager.ready("serving");
        running.use_devices(claims)?;
        Ok(running)
    }

    /// Until the last word of the running daemon nothing is done that it could not undo by going on.
    fn take_over(
        settings: Settings,
        mut succession: Succession,
        line: Line,
    ) -> Result<Self, StartError> {
        let handed = take::receive(line, &settings)?;
        let Handed { mut line, heritage, engines, admin, takeover, metrics, connections, .. } =
            handed;
        let program = succession.program.take();
        let prepared = Daemon::prepare(settings, Succession { heritage, ..succession })
            .map_err(StartError::from)
            .and_then(|daemon| {
                // An address of its own may be somebody else's: now the other daemon can go on.
                let admin = admin::Sockets::open(&daemon.settings, admin, metrics)
                    .map_err(system("starting the admin server"))?;
                Ok((Arc::new(daemon), admin))
            });
        let (daemon, admin) = prepared.inspect_err(|error| {
            take::refuse(&mut line, &error.to_string());
        })?;
        let deadline = Instant::now() + PATIENCE;
        line.send(&Note::Ready, &[], deadline).map_err(TakeFault::from)?;
        line.expect(&Note::Yours, deadline).map_err(TakeFault::from)?;
        daemon.brain.come_into_force();
        let door = takeover.map(Door::inherited);
        for claim in [&engines, &admin.admin].into_iter().chain(door.as_ref().map(Door::claim)) {
            if let Err(error) = claim.sign() {
                let path = claim.path().display();
                tracing::warn!(%error, %path, "a socket or its lock still names the daemon before");
            }
        }
        let sockets = Sockets { engines, admin, door };
        for Connection { note, credentials, stream } in connections {
            let id = note.id;
            if let Err(error) = accept::go_on(&daemon, credentials, stream, note) {
                tracing::warn!(%error, session = id.0, "a connection could not be served on");
            }
        }
        daemon.meters.handovers.count(HandoverEnd::TakenOver);
        daemon.meters.sessions_left_behind.store(handed.left_behind.into(), Ordering::Relaxed);
        let next_session = handed.next_session.max(daemon.origin.adopted.next_session);
        let mut running = Self::open(daemon, sockets, program, next_session)?;
        let leaves_within = running.daemon.settings.drain_deadline + PATIENCE;
        running.publish(leaves_within)?;
        running.be_introduced(&mut line);
        running.use_devices(devices::claim_when_free(&running.daemon.settings.disk.paths))?;
        Ok(running)
    }

    /// The service manager listens to this process only once the one before has named it; and the devices are free once
    /// that one is gone.
    fn be_introduced(&self, line: &mut Line) {
        let daemon = &self.daemon;
        if let Err(error) = line.expect(&Note::Introduced, Instant::now() + PATIENCE) {
            tracing::warn!(%error, "the daemon before ended without introducing this one");
        }
        if let Some(ledger) = daemon.brain.ledger() {
            estate::keep(&daemon.manager, &daemon.arena, ledger);
        }
        daemon.manager.ready("serving");
        if !line.wait_closed(Instant::now() + daemon.settings.drain_deadline + PATIENCE) {
            tracing::warn!("the daemon before does not end");
        }
    }

    /// Starts every thread but those of the devices. Engines can connect when this returns.
    fn open(
        daemon: Arc<Daemon>,
        sockets: Sockets,
        program: Option<PathBuf>,
        next_session: u64,
    ) -> Result<Self, StartError> {
        let Sockets { engines, admin, door } = sockets;
        let admin = Admin::start(Arc::clone(&daemon), admin)
            .map_err(system("starting the admin server"))?;
        let (brain, stop) = (&daemon.brain, &daemon.stop);
        let mut threads = touch::start(&daemon).map_err(system("starting a touch thread"))?;
        threads.push(clock::start(&daemon).map_err(system("starting the clock"))?);
        threads.push(
            daemon
                .reaper
                .start(Arc::clone(brain), Arc::clone(stop))
                .map_err(system("starting the reaper"))?,
        );
        threads.extend(watchdog::start(&daemon).map_err(system("starting the watchdog"))?);
        holders::look_after(&daemon);
        let acceptor = Acceptor::start(Arc::clone(&daemon), engines, next_session)
            .map_err(system("starting the accept thread"))?;
        daemon.status.accepting.store(true, Ordering::Relaxed);
        daemon.origin.serves(&daemon.brain);
        let (disks, registrar) = (Vec::new(), None);
        Ok(Self { daemon, acceptor, admin, door, program, threads, disks, registrar })
    }

    /// Tells others what there is, at addresses that a daemon before leaves within `patience`.
    fn publish(&mut self, patience: Duration) -> Result<(), StartError> {
        let daemon = &self.daemon;
        let events = events::thread::start(daemon, patience);
        self.threads.extend(events.map_err(system("publishing events"))?);
        let snapshots = admin::snapshot::start(daemon, patience);
        self.threads.extend(snapshots.map_err(system("serving snapshots"))?);
        self.registrar = Registrar::start(daemon).map_err(system("registering in etcd"))?;
        Ok(())
    }

    /// Looking at devices may take a while: engines need not wait for it.
    fn use_devices(&mut self, claims: devices::Claims) -> Result<(), StartError> {
        self.disks = devices::start(&self.daemon, claims)
            .map_err(system("starting a thread of the disk tier"))?;
        Ok(())
    }

    /// Waits until the daemon is asked for something.
    ///
    /// # Errors
    /// As `poll(2)`.
    pub fn wait(&self, signals: &Signals) -> io::Result<Event> {
        loop {
            let mut waits = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            waits.extend(
                self.door.as_ref().map(|door| PollFd::new(door.as_fd(), PollFlags::POLLIN)),
            );
            match poll(&mut waits, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            match signals.take()? {
                Some(Heard::End(signal)) => return Ok(Event::End(signal)),
                Some(Heard::Reload) => return Ok(Event::Reload),
                None => {}
            }
            match self.door.as_ref().map(Door::accept) {
                Some(Ok(line)) => return Ok(Event::Successor(line)),
                Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                    tracing::warn!(%error, "a successor could not be let in");
                }
                Some(Err(_)) | None => {}
            }
        }
    }

    /// Starts the program that is installed now and hands over to it.
    #[must_use]
    pub fn reload(self) -> HandOver {
        self.daemon.manager.status("handing over to a successor");
        let program = self.program.as_deref().ok_or_else(|| io::ErrorKind::NotFound.into());
        let (mut successor, line) = match program.and_then(child::start) {
            Ok(started) => started,
            Err(error) => return self.stay(&GiveFault::Start(error)),
        };
        let outcome = self.hand_over(line, Some(successor.id()));
        if let HandOver::Stays(running) = &outcome {
            // It may have ended by itself.
            drop(successor.kill());
            drop(successor.wait());
            running.daemon.manager.status("serving");
        }
        outcome
    }

    /// Hands over to the daemon at the other end, which the service manager is told if it is a `child`.
    #[must_use]
    pub fn hand_over(self, mut line: Line, child: Option<u32>) -> HandOver {
        let heard = give::hear(&mut line, &self.daemon, child.is_some());
        match heard.and_then(|()| self.pass_on(&mut line)) {
            Ok(()) => {
                self.leave(line, child);
                HandOver::Done
            }
            Err(fault) => {
                take::refuse(&mut line, &fault.to_string());
                self.stay(&fault)
            }
        }
    }

    fn pass_on(&self, line: &mut Line) -> Result<(), GiveFault> {
        let mut gate = self.acceptor.hold();
        let admin = self.admin.sockets();
        let mut claims = vec![(Role::Engines, self.acceptor.claim()), (Role::Admin, &admin.admin)];
        claims.extend(self.door.as_ref().map(|door| (Role::Takeover, door.claim())));
        let offer = Offer {
            daemon: &self.daemon,
            claims,
            metrics: admin.metrics.as_ref().map(AsFd::as_fd),
            next_session: gate.next_session,
        };
        offer.hand_over(line)?;
        gate.close();
        Ok(())
    }

    fn stay(self, fault: &GiveFault) -> HandOver {
        let end = if fault.is_refusal() { HandoverEnd::Refused } else { HandoverEnd::Abandoned };
        self.daemon.meters.handovers.count(end);
        tracing::warn!(reason = %fault, "nothing was handed over; this daemon goes on");
        HandOver::Stays(Box::new(self))
    }

    /// Everything is the successor's: ends without touching anything but the devices, which it gets last.
    fn leave(self, mut line: Line, child: Option<u32>) {
        let Self { daemon, acceptor, admin, door, threads, disks, registrar, .. } = self;
        acceptor.claim().is_handed_over();
        admin.sockets().admin.is_handed_over();
        if let Some(door) = &door {
            door.claim().is_handed_over();
        }
        // Before the successor is announced: nobody is to be answered from here then.
        admin.stop();
        if let Some(process) = child {
            daemon.manager.succeeded_by(process);
            daemon.manager.barrier();
        }
        if let Err(error) = line.send(&Note::Introduced, &[], Instant::now() + PATIENCE) {
            tracing::warn!(%error, "the successor does not listen any more");
        }
        let deadline = Instant::now() + daemon.settings.drain_deadline;
        if let Some(registrar) = registrar {
            registrar.stop();
        }
        acceptor.stop();
        daemon.registry.wait_empty(FORCED);
        let disks = devices::finish(disks, deadline);
        end_threads(&daemon, threads);
        devices::join(disks, deadline);
    }

    /// The shared parts.
    #[must_use]
    pub fn daemon(&self) -> &Arc<Daemon> {
        &self.daemon
    }

    /// Ends the daemon: stop accepting, let requests in flight finish, close what does not, let the
    /// disk tier write and sync what is waiting, join every thread. Takes at most the drain
    /// deadline, and a moment more if a device does not answer.
    pub fn drain(self) {
        let Self { daemon, acceptor, admin, threads, disks, registrar, .. } = self;
        let deadline = Instant::now() + daemon.settings.drain_deadline;
        daemon.status.draining.store(true, Ordering::Relaxed);
        daemon.manager.stopping();
        // Before anything ends, so that no router sends anybody here.
        if let Some(registrar) = registrar {
            registrar.stop();
        }
        acceptor.stop();
        // What is not loaded by now would come too late.
        daemon.brain.parkers.end_loads();
        // A session thread finishes the frames that have arrived, then reads the end of the stream.
        daemon.registry.shut_down(Shutdown::Read);
        daemon.staging.close();
        let_sessions_leave(&daemon, deadline);
        let disks = finish_disks(&daemon, disks, deadline);
        end_threads(&daemon, threads);
        devices::join(disks, deadline);
        admin.stop();
    }
}

fn system(step: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { step, source }
}

fn end_threads(daemon: &Daemon, threads: Vec<JoinHandle<()>>) {
    daemon.stop.raise();
    daemon.reaper.wake();
    daemon.registry.join_finished();
    for thread in threads {
        let name = thread.thread().name().unwrap_or_default().to_owned();
        if thread.join().is_err() {
            tracing::error!(thread = name, "a thread panicked");
        }
    }
}

fn let_sessions_leave(daemon: &Daemon, deadline: Instant) {
    let patience = deadline.saturating_duration_since(Instant::now()).saturating_sub(FORCED);
    if !daemon.registry.wait_empty(patience) {
        let left = daemon.registry.len();
        tracing::warn!(left, "closing sessions that did not finish before the drain deadline");
        daemon.registry.shut_down(Shutdown::Both);
        daemon.brain.parkers.end_all();
        daemon.registry.wait_empty(deadline.saturating_duration_since(Instant::now()));
    }
    daemon.brain.parkers.end_all();
}

/// Nobody asks any more: what only memory holds goes to disk if that is wanted, and what is being
/// written gets there. The threads that end by themselves now.
fn finish_disks(
    daemon: &Daemon,
    disks: Vec<devices::Threads>,
    deadline: Instant,
) -> Vec<JoinHandle<()>> {
    if daemon.settings.disk.drain_on_stop && !daemon.devices.is_empty() {
        let patience = deadline.saturating_duration_since(Instant::now());
        daemon.drain.begin(daemon, patience.saturating_sub(FORCED));
        let progress = daemon.drain.wait(deadline);
        if progress.left_blocks > 0 {
            let (left, bytes) = (progress.left_blocks, progress.left_bytes);
            tracing::warn!(left, bytes, "blocks that only memory held are lost: no time left");
        }
    }
    devices::finish(disks, deadline)
}
