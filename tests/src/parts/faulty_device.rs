//! A device that breaks on demand: an image behind `qemu-storage-daemon`, which offers it as a file for a loop device
//! and puts what is asked for between the two, while it is in use.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::minor;
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::monitor::Monitor;
use super::tool;
use crate::log::Log;
use crate::{PATIENCE, until};

/// The node that is offered. Its child is the image, or what breaks it.
const TOP: &str = "top";
/// The image, sound.
const SOUND: &str = "sound";
/// What limits the rate.
const GROUP: &str = "rate";

/// Such a device. It ends with this value.
#[derive(Debug)]
pub struct FaultyDevice {
    process: Process,
    said: Log,
    monitor: Monitor,
    offered: PathBuf,
    /// What stands over the image now.
    over: Option<String>,
    count: u32,
}

/// The program, and what it has mounted.
#[derive(Debug)]
struct Process {
    child: Child,
    offered: PathBuf,
}

/// Which operations fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes, which every sync ends in.
    Flush,
}

/// Something that fails.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Which operations.
    pub broken: Broken,
    /// With which error: `EIO` or `ENOSPC`.
    pub errno: i32,
    /// Only those that touch this sector of 512 bytes.
    pub sector: Option<u64>,
}

impl FaultyDevice {
    /// Offers `image` under another name in `folder`. Nothing is broken yet.
    ///
    /// # Panics
    /// If that is not possible.
    #[must_use]
    pub fn start(image: &Path, folder: &Path) -> Self {
        let (socket, offered) = (folder.join("monitor.sock"), folder.join("offered"));
        std::fs::write(&offered, "").expect("a name to offer it under");
        // Flushes end here: whatever is to happen to them happens above.
        let disk = json!({
            "driver": "raw", "node-name": SOUND, "file": {
                "driver": "file", "filename": image, "discard": "unmap",
                "cache": {"direct": true, "no-flush": true},
            },
        });
        let export = json!({
            "type": "fuse", "id": "fuse", "node-name": TOP, "mountpoint": offered,
            "writable": true, "growable": false,
        });
        let (read, write) = std::io::pipe().expect("a pipe for what it says");
        // It ends with the thread that started it, also when that is killed.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "qemu-storage-daemon"])
            .args(["--object", &format!("throttle-group,id={GROUP}")])
            .arg("--blockdev")
            .arg(disk.to_string())
            .arg("--blockdev")
            .arg(top_over(SOUND).to_string())
            .arg("--export")
            .arg(export.to_string())
            .arg("--chardev")
            .arg(format!("socket,id=monitor,server=on,wait=off,path={}", socket.display()))
            .args(["--monitor", "monitor"])
            .stdin(Stdio::null())
            .stdout(write.try_clone().expect("a second end"))
            .stderr(write);
        let child = command.spawn().unwrap_or_else(|trouble| panic!("{command:?}: {trouble}"));
        drop(command);
        let process = Process { child, offered: offered.clone() };
        let said = Log::of(read);
        let mut device = Self {
            process,
            monitor: Monitor::connect(&socket),
            said,
            offered,
            over: None,
            count: 0,
        };
        device.wait_offered();
        device.take_turns(folder);
        device
    }

    /// Lets the kernel ask for one thing after the other. This program puts a request that comes in while it writes the
    /// data of another over these data.
    fn take_turns(&self, folder: &Path) {
        let control = folder.join("fuse-control");
        std::fs::create_dir(&control).expect("a folder for the control of FUSE");
        tool::run(
            "mount",
            ["-t", "fusectl", "none"].map(AsRef::as_ref).into_iter().chain([control.as_os_str()]),
        );
        let connection =
            std::fs::metadata(&self.offered).expect("looking at the offered image").dev();
        let connection = control.join(minor(connection).to_string());
        std::fs::write(connection.join("max_background"), "1").expect("setting a limit of FUSE");
        tool::run("umount", [control]);
    }

    fn wait_offered(&mut self) {
        until::until_true("the image is offered", || {
            let ended = self.process.child.try_wait().expect("asking for its exit");
            assert!(ended.is_none(), "{ended:?}: {}", self.said.text());
            std::fs::metadata(&self.offered).is_ok_and(|found| found.len() > 0)
        });
    }

    /// The name under which it is offered: make a file system in it, mount it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.offered
    }

    /// From now on, these fail, and nothing else. What was broken before is whole again. A device whose flushes fail
    /// stays so: taking that back would need a flush.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn break_it(&mut self, faults: &[Fault]) {
        let rules: Vec<Value> = faults.iter().map(Fault::rule).collect();
        let node = self.new_node();
        let broken =
            json!({"driver": "blkdebug", "node-name": node, "image": SOUND, "inject-error": rules});
        self.monitor.execute("blockdev-add", &broken);
        self.stand_over(Some(node));
    }

    /// Ends all faults.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn heal(&mut self) {
        self.stand_over(None);
    }

    /// Writes and flushes are recorded in a new file from now on; see [`super::write_log`].
    ///
    /// # Panics
    /// If that is not possible.
    pub fn record(&mut self, log: &Path) {
        super::file_system::make_image(log, 0);
        let node = self.new_node();
        let recorder = json!({
            "driver": "blklogwrites", "node-name": node, "file": SOUND, "log-sector-size": 512,
            "log": {"driver": "file", "filename": log, "cache": {"no-flush": true}},
        });
        self.monitor.execute("blockdev-add", &recorder);
        self.stand_over(Some(node));
    }

    /// From now on it does at most so many operations in a second, one after the other; 0: as many as it can.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn slow_down(&mut self, operations_per_second: u32) {
        let limits = json!({"iops-total": operations_per_second});
        let arguments =
            json!({"path": format!("/objects/{GROUP}"), "property": "limits", "value": limits});
        self.monitor.execute("qom-set", &arguments);
    }

    /// From now on it answers nothing, or everything again.
    ///
    /// # Panics
    /// If it is gone.
    pub fn hang(&self, hangs: bool) {
        let process = i32::try_from(self.process.child.id()).expect("a process id");
        let signal = if hangs { Signal::SIGSTOP } else { Signal::SIGCONT };
        kill(Pid::from_raw(process), signal).expect("signalling the device");
    }

    /// Ends it, with everything written.
    ///
    /// # Panics
    /// If it goes on.
    pub fn stop(mut self) {
        self.monitor.execute("quit", &json!({}));
        assert!(self.said.wait_for_end(PATIENCE), "it goes on: {}", self.said.text());
    }

    fn new_node(&mut self) -> String {
        self.count += 1;
        format!("over-{}", self.count)
    }

    /// Puts `node` between the image and the rest, in place of what is there.
    fn stand_over(&mut self, node: Option<String>) {
        let options = [top_over(node.as_deref().unwrap_or(SOUND))];
        self.monitor.execute("blockdev-reopen", &json!({"options": options}));
        if let Some(before) = std::mem::replace(&mut self.over, node) {
            self.monitor.execute("blockdev-del", &json!({"node-name": before}));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Whoever waits for it gets an error, and the end.
        let _may_be_gone = self.child.kill();
        let _reaped = self.child.wait();
        let _may_be_gone = tool::attempt("umount", ["--lazy".as_ref(), self.offered.as_os_str()]);
    }
}

impl Fault {
    fn rule(&self) -> Value {
        let iotype = match self.broken {
            Broken::Read => "read",
            Broken::Write => "write",
            Broken::Flush => "flush",
        };
        let mut rule = json!({"event": "none", "iotype": iotype, "errno": self.errno});
        if let Some(sector) = self.sector {
            rule["sector"] = sector.into();
        }
        rule
    }
}

fn top_over(node: &str) -> Value {
    json!({"driver": "throttle", "node-name": TOP, "throttle-group": GROUP, "file": node})
}
