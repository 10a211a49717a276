//! Directories on laid-out systems: a list of mounts and a sysfs for each kind of storage.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// A machine, as far as it is looked at.
struct Machine {
    root: TempDir,
    data: TempDir,
    mounts: String,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/dev/block")).unwrap();
        fs::create_dir_all(root.path().join("sys/class/block")).unwrap();
        Self { root, data: tempfile::tempdir().unwrap(), mounts: String::new() }
    }

    fn put(&self, path: &str, contents: &str) {
        let path = self.root.path().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    /// A device at a path below `sys/devices`, with its number.
    fn device(self, path: &str, number: &str, rotational: &str) -> Self {
        let name = name_of_path(path);
        self.put(&format!("devices/{path}/dev"), number);
        self.put(&format!("devices/{path}/queue/rotational"), rotational);
        let sys = self.root.path().join("sys");
        symlink(format!("../../devices/{path}"), sys.join("dev/block").join(number)).unwrap();
        symlink(format!("../../devices/{path}"), sys.join("class/block").join(name)).unwrap();
        self
    }

    fn partition(self, path: &str, number: &str) -> Self {
        self.put(&format!("devices/{path}/partition"), "1");
        let sys = self.root.path().join("sys");
        symlink(format!("../../devices/{path}"), sys.join("dev/block").join(number)).unwrap();
        self
    }

    fn with(self, path: &str, contents: &str) -> Self {
        self.put(path, contents);
        self
    }

    fn slave(self, of: &str, slave: &str) -> Self {
        let slaves = self.root.path().join("sys/devices").join(of).join("slaves");
        fs::create_dir_all(&slaves).unwrap();
        let target = self.root.path().join("sys/devices").join(slave);
        symlink(target, slaves.join(name_of_path(slave))).unwrap();
        self
    }

    fn mount(mut self, point: &str, number: &str, rest: &str) -> Self {
        self.mounts += &format!("30 1 {number} / {point} rw - {rest}\n");
        self
    }

    /// Mounts at the directory that is asked about.
    fn data_on(self, number: &str, rest: &str) -> Self {
        let point = self.data.path().canonicalize().unwrap().display().to_string();
        self.mount(&point, number, rest)
    }

    fn asked(&self, mode: Mode, probed: Result<u32, String>) -> Storage {
        fs::create_dir_all(self.root.path().join("proc/self")).unwrap();
        fs::write(self.root.path().join("proc/self/mountinfo"), &self.mounts).unwrap();
        let roots = Roots::under(self.root.path());
        classify_with(self.data.path(), mode, &roots, |_directory| probed).unwrap()
    }

    /// With a probe that works.
    fn storage(&self) -> Storage {
        self.asked(Mode::Auto, Ok(512))
    }
}

fn name_of_path(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

fn said(storage: &Storage, words: &str) -> bool {
    storage.why.iter().any(|why| why.contains(words))
}

#[test]
fn nvme_partitions_go_direct() {
    let machine = Machine::new()
        .device("pci0/nvme/nvme0/nvme0n1", "259:0", "0")
        .partition("pci0/nvme/nvme0/nvme0n1/nvme0n1p1", "259:1")
        .mount("/", "254:0", "ext4 /dev/vda rw")
        .data_on("259:1", "xfs /dev/nvme0n1p1 rw");
    let storage = machine.storage();
    assert_eq!(storage.device.as_ref().unwrap().to_string(), "nvme0n1 (nvme)");
    assert_eq!(storage.file_system.to_string(), "xfs");
    assert_eq!(storage.mount_point, machine.data.path().canonicalize().unwrap());
    assert_eq!((storage.io_mode(), storage.alignment_bytes, storage.depth), ("direct", 512, 32));
    assert!(said(&storage, "worked, in multiples of 512"));
}

#[test]
fn scsi_disks_are_told_apart() {
    for (vendor, rotational, kind, direct, depth) in [
        ("ATA     \n", "0\n", DeviceKind::SataSsd, true, 32),
        ("SEAGATE\n", "0\n", DeviceKind::ScsiSsd, true, 32),
        ("ATA     \n", "1\n", DeviceKind::Hdd, false, 4),
        ("SEAGATE\n", "1\n", DeviceKind::Hdd, false, 4),
    ] {
        let storage = Machine::new()
            .device("pci0/host0/block/sda", "8:0", rotational)
            .with("devices/pci0/host0/block/sda/device/vendor", vendor)
            .data_on("8:0", "ext4 /dev/sda rw")
            .storage();
        assert_eq!(storage.device.as_ref().unwrap().worst(), kind);
        assert_eq!((storage.direct, storage.depth), (direct, depth), "{kind:?}");
        assert_eq!(storage.alignment_bytes, if direct { 512 } else { 1 });
    }
}

#[test]
fn virtual_disks_go_direct_whatever_they_claim() {
    for name in ["vda", "xvda"] {
        let storage = Machine::new()
            .device(&format!("virtio/{name}"), "254:0", "1")
            .data_on("254:0", "ext4 /dev/vda rw")
            .storage();
        assert_eq!(storage.device.as_ref().unwrap().kind, DeviceKind::Virtual);
        assert_eq!((storage.direct, storage.depth), (true, 16));
        assert!(said(&storage, "hypervisors make that up"));
    }
}

fn raid(second_rotates: &str) -> Machine {
    Machine::new()
        .device("a/nvme0n1", "259:0", "0")
        .device("b/block/sdb", "8:16", second_rotates)
        .partition("b/block/sdb/sdb1", "8:17")
        .device("virtual/block/md0", "9:0", "0")
        .with("devices/virtual/block/md0/md/level", "raid0")
        .slave("virtual/block/md0", "a/nvme0n1")
        .slave("virtual/block/md0", "b/block/sdb/sdb1")
        .device("virtual/block/dm-0", "253:0", "0")
        .with("devices/virtual/block/dm-0/dm/name", "vg-lv")
        .slave("virtual/block/dm-0", "virtual/block/md0")
        .data_on("253:0", "ext4 /dev/mapper/vg-lv rw")
}

#[test]
fn a_stack_is_as_good_as_its_worst_device() {
    let storage = raid("0").storage();
    let device = storage.device.as_ref().unwrap();
    assert_eq!(device.to_string(), "dm-0 (dm) over md0 (md) over nvme0n1 (nvme) + sdb (sas)");
    assert_eq!((device.worst(), storage.direct), (DeviceKind::ScsiSsd, true));
    assert_eq!(storage.depth, 64, "two devices take twice as much");
    let storage = raid("1").storage();
    assert_eq!(storage.device.as_ref().unwrap().worst(), DeviceKind::Hdd);
    assert_eq!((storage.direct, storage.depth), (false, 8));
}

#[test]
fn a_stack_over_itself_ends() {
    let storage = Machine::new()
        .device("virtual/block/dm-0", "253:0", "0")
        .with("devices/virtual/block/dm-0/dm/name", "x")
        .slave("virtual/block/dm-0", "virtual/block/dm-0")
        .data_on("253:0", "ext4 /dev/mapper/x rw")
        .storage();
    assert_eq!(storage.device.unwrap().worst(), DeviceKind::Other);
}

#[test]
fn a_loop_device_is_its_files_device() {
    for (name, direct) in [("a/nvme0n1", true), ("a/block/sda", false)] {
        let storage = Machine::new()
            .device(name, "8:0", "1")
            .mount("/", "8:0", "ext4 /dev/root rw")
            .device("virtual/block/loop3", "7:3", "1")
            .with("devices/virtual/block/loop3/loop/backing_file", "/images/disk.img\n")
            .data_on("7:3", "ext4 /dev/loop3 rw")
            .storage();
        let device = storage.device.as_ref().unwrap();
        assert_eq!((device.kind, device.below.len()), (DeviceKind::Loop, 1));
        assert_eq!(storage.direct, direct, "{device}");
    }
}

#[test]
fn a_file_system_with_a_made_up_number_is_found_by_its_source() {
    let machine = Machine::new()
        .device("a/nvme1n1", "259:4", "0")
        .data_on("0:40", "btrfs /dev/mapper/pool rw");
    fs::create_dir_all(machine.root.path().join("dev/mapper")).unwrap();
    fs::write(machine.root.path().join("dev/nvme1n1"), "").unwrap();
    symlink("../nvme1n1", machine.root.path().join("dev/mapper/pool")).unwrap();
    assert_eq!(machine.storage().device.unwrap().to_string(), "nvme1n1 (nvme)");
}

#[test]
fn what_has_no_device_is_buffered() {
    for (rest, words, depth) in [
        ("tmpfs tmpfs rw,size=8192k", "memory already", 4),
        ("nfs4 server:/export rw", "another machine", 16),
        ("fuse.sshfs host: rw", "another machine", 16),
        ("zfs tank/data rw", "zfs caches", 16),
    ] {
        let storage = Machine::new().data_on("0:40", rest).storage();
        assert_eq!((storage.io_mode(), storage.depth), ("buffered", depth), "{rest}");
        assert!(said(&storage, words), "{:?}", storage.why);
        assert_eq!(storage.device, None);
    }
}

#[test]
fn overlays_are_what_their_upper_layer_is_on() {
    let overlay = "overlay overlay rw,lowerdir=/l,upperdir=/var/layers/up,workdir=/w";
    let storage = Machine::new()
        .device("a/block/sda", "8:0", "1")
        .mount("/", "254:0", "ext4 /dev/vda rw")
        .mount("/var", "8:0", "ext4 /dev/sda rw")
        .data_on("0:60", overlay)
        .storage();
    assert_eq!(storage.device.as_ref().unwrap().to_string(), "sda (hdd)");
    assert!(!storage.direct);
    // In a container, the upper layer is out of sight.
    let storage = Machine::new().mount("/", "0:60", overlay).storage();
    assert_eq!((storage.file_system, storage.device), (FileSystem::Overlay, None));
    assert!(storage.direct, "the probe decides");
}

#[test]
fn an_unknown_device_is_left_to_the_probe() {
    let storage = Machine::new().data_on("8:0", "ext4 /dev/sda rw").storage();
    assert!(said(&storage, "sysfs does not tell the device of /dev/sda"));
    assert!(storage.direct);
    let storage = Machine::new()
        .device("virtual/block/zram0", "252:0", "0")
        .data_on("252:0", "ext4 /dev/zram0 rw")
        .storage();
    assert_eq!(storage.device.unwrap().kind, DeviceKind::Other);
}

#[test]
fn the_operator_decides_and_the_probe_vetoes() {
    let disk = |rotational| {
        Machine::new().device("a/block/sda", "8:0", rotational).data_on("8:0", "ext4 /dev/sda rw")
    };
    assert!(disk("1").asked(Mode::Direct, Ok(4096)).direct);
    assert!(!disk("0").asked(Mode::Buffered, Ok(4096)).direct);
    for mode in [Mode::Auto, Mode::Direct] {
        let storage = disk("0").asked(mode, Err("opening a file: Invalid argument".to_owned()));
        assert_eq!((storage.direct, storage.alignment_bytes), (false, 1));
        assert!(said(&storage, "does not work there (opening a file: Invalid argument)"));
    }
}

#[test]
fn errors_name_the_path() {
    let machine = Machine::new();
    let roots = Roots::under(machine.root.path());
    let ask = |path: &Path| classify(path, Mode::Auto, &roots).unwrap_err();
    assert!(matches!(ask(Path::new("/nonexistent")), ClassifyError::Path { .. }));
    let file = machine.data.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(ask(&file), ClassifyError::NotADirectory { .. }));
    assert!(matches!(ask(machine.data.path()), ClassifyError::Mounts { .. }));
    fs::create_dir_all(machine.root.path().join("proc/self")).unwrap();
    fs::write(machine.root.path().join("proc/self/mountinfo"), "").unwrap();
    assert!(matches!(ask(machine.data.path()), ClassifyError::NoMount { .. }));
}

#[test]
fn this_machine_is_understood() {
    let folder = tempfile::tempdir().unwrap();
    let storage = classify(folder.path(), Mode::Auto, &Roots::default()).unwrap();
    assert!(storage.why.len() >= 2, "{:?}", storage.why);
    assert_eq!(storage.direct, storage.alignment_bytes > 1);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}
