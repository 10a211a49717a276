//! The disk tier's hands: what the store decides is executed here. Nothing in this room decides where
//! a block goes or what is evicted for it.
//!
//! Read in this order: [`device`] (what is known of one), [`mod@claim`] (whose a directory is),
//! [`directory`], [`identity`], [`files`] and [`marker`] (what is in it), [`mode`] (how it is read and
//! written), [`recovery`] (what it held), [`growth`] (how it gets room), [`upkeep`] and `keeper` (the thread
//! that does all that), then [`worker`] (the thread that moves blocks) with `block`, `record`, `queue`, [`pieces`] and `token`, and what people see: [`health`],
//! [`meters`], [`self_check`].
//!
//! **Invariant:** only files in our own sub-directory that we made are written, renamed or removed.
//! **Invariant:** a device that cannot be used costs its blocks and nothing else.

mod block;
pub mod claim;
pub mod device;
pub mod directory;
pub mod files;
pub mod growth;
pub mod health;
pub mod identity;
mod keeper;
pub mod marker;
pub mod meters;
pub mod mode;
pub mod pieces;
mod queue;
mod record;
pub mod recovery;
pub mod self_check;
mod token;
pub mod upkeep;
pub mod worker;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use kvd_disk::{Config, Engine};
use kvd_store::{DeviceFault, DeviceId, DeviceInfo, Effects, Input};

use self::claim::{Claim, ClaimFault};
use self::device::{Device, Order};
use self::mode::Mode;
use self::upkeep::Upkeep;
use self::worker::Worker;
use crate::daemon::Daemon;

/// Time that is left for the last syncs beyond a deadline that has passed.
const GRACE: Duration = Duration::from_secs(1);
/// Between two looks at a thread that is to end.
const PAUSE: Duration = Duration::from_millis(2);

/// All devices, in the order of the configuration.
#[derive(Debug, Default)]
pub struct Devices {
    all: Vec<Arc<Device>>,
}

impl Devices {
    /// A device for each directory.
    #[must_use]
    pub fn new(paths: &[PathBuf]) -> Self {
        let numbered = (0..).map(DeviceId).zip(paths);
        let devices = numbered.map(|(id, path)| Arc::new(Device::new(id, path.clone())));
        Self { all: devices.collect() }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.all.iter()
    }

    /// Whether there is no disk tier.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Lets no block move between the arena and a device any more, and waits at most until `deadline` for those that are
    /// on their way; whether all have arrived.
    #[must_use]
    pub fn hold(&self, deadline: Instant) -> bool {
        self.all.iter().for_each(|device| device.hold());
        self.all.iter().all(|device| device.wait_still(deadline))
    }

    /// Ends [`Devices::hold`].
    pub fn let_go(&self) {
        self.all.iter().for_each(|device| device.let_go());
    }

    /// Each of them with what the store knows of it.
    pub fn with<'a>(
        &'a self,
        infos: &'a [DeviceInfo],
    ) -> impl Iterator<Item = (&'a Device, DeviceInfo)> {
        self.all.iter().filter_map(|device| {
            let info = infos.iter().find(|info| info.device == device.id)?;
            Some((&**device, *info))
        })
    }
}

/// Whether each directory is ours.
pub type Claims = Vec<Result<Claim, ClaimFault>>;

/// Claims every directory. One that cannot be used is noted; one that another daemon uses ends the
/// start.
///
/// # Errors
/// [`ClaimFault::Held`].
pub fn claim(paths: &[PathBuf]) -> Result<Claims, ClaimFault> {
    let mut claims = Claims::new();
    for path in paths {
        match Claim::new(path) {
            Err(held @ ClaimFault::Held { .. }) => return Err(held),
            claim => claims.push(claim),
        }
    }
    Ok(claims)
}

/// Claims every directory that the daemon before has let go of. One that cannot be used is noted, for whatever reason.
#[must_use]
pub fn claim_when_free(paths: &[PathBuf]) -> Claims {
    paths.iter().map(|path| Claim::new(path)).collect()
}

/// The threads of one device.
#[derive(Debug)]
pub struct Threads {
    device: Arc<Device>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts the threads of every device that can be used.
///
/// # Errors
/// A thread could not be started.
pub fn start(daemon: &Arc<Daemon>, claims: Claims) -> io::Result<Vec<Threads>> {
    let mut all = Vec::new();
    for (device, claim) in daemon.devices.iter().zip(claims) {
        match claim {
            Ok(claim) => all.push(start_one(daemon, device, claim)?),
            Err(fault) => refuse(daemon, device, &fault.to_string()),
        }
    }
    Ok(all)
}

/// A device that nobody drives.
fn refuse(daemon: &Daemon, device: &Device, reason: &str) {
    tracing::warn!(path = %device.path.display(), "the disk tier does without a directory: {reason}");
    device.refuse(reason);
    let failed = Input::DeviceFailed { device: device.id, fault: DeviceFault::Unusable };
    daemon.brain.apply(failed, &mut Effects::default());
}

fn start_one(daemon: &Arc<Daemon>, device: &Arc<Device>, claim: Claim) -> io::Result<Threads> {
    let mut threads = Vec::new();
    let mode = Mode::of(claim.folder(), daemon.settings.disk.io_mode);
    let config = Config {
        engine: Engine::Auto,
        depth: daemon.settings.disk.depth.map_or(mode.depth, |depth| depth as usize),
        arena: Some(Arc::clone(daemon.brain.arena())),
        name: format!("kvd-disk-{}", device.id.0),
    };
    let name = config.name.clone();
    let opened = match kvd_disk::open(config) {
        Ok(opened) => opened,
        Err(error) => {
            refuse(daemon, device, &error.to_string());
            return Ok(Threads { device: Arc::clone(device), threads });
        }
    };
    if let Some(reason) = &opened.fallback {
        daemon.status.note(format!("the disk tier goes on without io_uring: {reason}"));
    }
    for refused in &opened.features.refused {
        tracing::info!(path = %device.path.display(), "disk tier, refused by the kernel: {refused}");
    }
    let worker = Worker::new(
        Arc::clone(device),
        Arc::clone(&daemon.brain),
        Arc::clone(&daemon.warm_up),
        opened.disk,
    );
    threads.push(Builder::new().name(name).spawn(move || worker.run())?);
    let upkeep = Upkeep::new(Arc::clone(daemon), Arc::clone(device), claim, mode);
    let name = format!("kvd-upkeep-{}", device.id.0);
    threads.push(Builder::new().name(name).spawn(move || upkeep.run())?);
    Ok(Threads { device: Arc::clone(device), threads })
}

/// Lets every device write what is waiting, at most until `deadline`, and sync. Gives back the
/// threads that will end once the stop flag is raised, for [`join`]; one that is stuck in its device
/// is left behind.
#[must_use]
pub fn finish(all: Vec<Threads>, deadline: Instant) -> Vec<JoinHandle<()>> {
    for one in all.iter().filter(|one| !one.threads.is_empty()) {
        one.device.order(Order::Finish(deadline));
    }
    let patience = deadline.max(Instant::now()) + GRACE;
    let mut ending = Vec::new();
    for one in all {
        if one.threads.is_empty() || one.device.wait_finished(patience) {
            ending.extend(one.threads);
        } else {
            let path = one.device.path.display();
            tracing::error!(%path, "a device does not answer; it is left as it is");
        }
    }
    ending
}

/// Waits for threads to end, the stop flag being raised, at most until `deadline` and a moment more.
/// One that is stuck in a call that the system does not answer is left behind: it ends with the process.
pub fn join(threads: Vec<JoinHandle<()>>, deadline: Instant) {
    let patience = deadline.max(Instant::now()) + GRACE;
    for thread in threads {
        let name = thread.thread().name().unwrap_or_default().to_owned();
        while !thread.is_finished() && Instant::now() < patience {
            std::thread::park_timeout(PAUSE);
        }
        if !thread.is_finished() {
            tracing::error!(
                thread = name,
                "a thread of the disk tier does not end; it is left behind"
            );
        } else if thread.join().is_err() {
            tracing::error!(thread = name, "a thread panicked");
        }
    }
}
