//! The memory that may be taken, on made-up systems.

#![expect(clippy::unwrap_used, reason = "test code")]

use kvd_shm::memory_limit::{available, available_under};
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

const MOUNT_V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
const MOUNT_V1: &str =
    "35 24 0:30 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n";

/// A root folder with the given files.
struct Fake(TempDir);

impl Fake {
    /// A host with 8 GiB available and no control groups.
    fn host() -> Self {
        let fake = Self(tempfile::tempdir().unwrap());
        fake.with(
            "proc/meminfo",
            "MemTotal:       16777216 kB\nMemFree:          100 kB\nMemAvailable:    8388608 kB\n",
        )
    }

    fn in_group(self, membership: &str, mounts: &str) -> Self {
        self.with("proc/self/cgroup", membership).with("proc/self/mountinfo", mounts)
    }

    fn with(self, path: &str, content: &str) -> Self {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// A version 2 group: limit, usage, and page cache within the usage.
    fn group_v2(self, path: &str, max: &str, current: u64, inactive: u64) -> Self {
        self.with(&format!("sys/fs/cgroup/{path}/memory.max"), &format!("{max}\n"))
            .with(&format!("sys/fs/cgroup/{path}/memory.current"), &format!("{current}\n"))
            .with(
                &format!("sys/fs/cgroup/{path}/memory.stat"),
                &format!("anon 1\nfile 2\nactive_file 3\ninactive_file {inactive}\n"),
            )
    }

    fn group_v1(self, path: &str, limit: u64, usage: u64, inactive: u64) -> Self {
        let folder = format!("sys/fs/cgroup/memory/{path}");
        self.with(&format!("{folder}/memory.limit_in_bytes"), &format!("{limit}\n"))
            .with(&format!("{folder}/memory.usage_in_bytes"), &format!("{usage}\n"))
            .with(
                &format!("{folder}/memory.stat"),
                &format!("inactive_file 0\ntotal_inactive_file {inactive}\n"),
            )
    }

    fn available(&self) -> u64 {
        available_under(self.0.path())
    }
}

#[test]
fn an_empty_system_has_no_limit() {
    let nothing = Fake(tempfile::tempdir().unwrap());
    assert_eq!(nothing.available(), u64::MAX);
}

#[test]
fn without_groups_the_host_decides() {
    assert_eq!(Fake::host().available(), 8 * GIB);
    let unlimited = Fake::host().in_group("0::/\n", MOUNT_V2);
    assert_eq!(unlimited.available(), 8 * GIB);
}

#[test]
fn a_version_2_limit_less_its_usage() {
    let fake = Fake::host().in_group("0::/kvd\n", MOUNT_V2);
    let fake = fake.group_v2("kvd", "4294967296", GIB, 0);
    assert_eq!(fake.available(), 3 * GIB);
    let fake = fake.group_v2("kvd", "4294967296", 2 * GIB, GIB / 2);
    assert_eq!(fake.available(), 5 * GIB / 2, "old page cache is not in the way");
    let fake = fake.group_v2("kvd", "4294967296", 5 * GIB, 0);
    assert_eq!(fake.available(), 0, "over the limit");
    let fake = fake.group_v2("kvd", "max", GIB, 0);
    assert_eq!(fake.available(), 8 * GIB, "no limit");
    let fake = fake.with("sys/fs/cgroup/kvd/memory.high", "2147483648\n");
    assert_eq!(fake.available(), GIB, "throttled above memory.high");
    let fake = fake.group_v2("kvd", "1610612736", GIB, 0);
    assert_eq!(fake.available(), GIB / 2, "the lower of the two");
}

#[test]
fn a_limit_of_any_ancestor_counts() {
    let fake = Fake::host().in_group("0::/machine/pod/kvd\n", MOUNT_V2);
    let fake = fake.group_v2("machine/pod/kvd", "max", GIB, 0);
    let fake = fake.group_v2("machine/pod", "6442450944", 2 * GIB, 0);
    assert_eq!(fake.available(), 4 * GIB);
    let fake = fake.group_v2("machine", "4294967296", 3 * GIB, 0);
    assert_eq!(fake.available(), GIB);
    let fake = fake.group_v2("machine/pod/kvd", "2147483648", 2 * GIB - 4096, 0);
    assert_eq!(fake.available(), 4096);
    // A neighbour's limit does not.
    let fake = fake.group_v2("machine/other", "1", 0, 0);
    assert_eq!(fake.available(), 4096);
}

#[test]
fn a_version_1_limit_less_its_usage() {
    let fake = Fake::host().in_group("5:cpu,cpuacct:/x\n4:memory:/pod/kvd\n", MOUNT_V1);
    let fake = fake.group_v1("pod/kvd", 4 * GIB, 3 * GIB, GIB);
    assert_eq!(fake.available(), 2 * GIB);
    let fake = fake.group_v1("pod", 3 * GIB, 2 * GIB, 0);
    assert_eq!(fake.available(), GIB);
    // How version 1 says "unlimited".
    let unlimited = 9_223_372_036_854_771_712;
    let fake = fake.group_v1("pod/kvd", unlimited, GIB, 0).group_v1("pod", unlimited, GIB, 0);
    assert_eq!(fake.available(), 8 * GIB);
}

#[test]
fn both_versions_at_once() {
    let mounts = [MOUNT_V1, "31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"];
    let fake = Fake::host().in_group("4:memory:/kvd\n0::/kvd\n", &mounts.concat());
    let fake = fake.group_v1("kvd", 3 * GIB, 0, 0);
    assert_eq!(fake.available(), 3 * GIB);
    let fake = fake.group_v2("unified/kvd", "2147483648", 0, 0);
    assert_eq!(fake.available(), 2 * GIB);
}

#[test]
fn a_container_sees_its_own_group_as_the_top() {
    // Without a namespace of its own: the mount shows a group further down the tree.
    let mount = "35 24 0:30 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    let fake = Fake::host().in_group("4:memory:/docker/abc\n", mount);
    let fake = fake.group_v1("", 2 * GIB, GIB, 0);
    assert_eq!(fake.available(), GIB);
    // With one: the path climbs out of what is visible.
    let fake = Fake::host().in_group("0::/../../other\n", MOUNT_V2);
    let fake = fake.group_v2("", "3221225472", GIB, 0);
    assert_eq!(fake.available(), 2 * GIB);
}

#[test]
fn nonsense_sets_no_limit() {
    let fake = Fake::host().in_group("what\n0::/kvd\n", &format!("junk\n - \n{MOUNT_V2}"));
    let fake = fake.group_v2("kvd", "a lot", 0, 0).with("proc/meminfo", "MemAvailable: many kB\n");
    assert_eq!(fake.available(), u64::MAX);
    let fake = fake.with("sys/fs/cgroup/kvd/memory.max", "1000");
    let fake = fake.with("sys/fs/cgroup/kvd/memory.current", "");
    assert_eq!(fake.available(), 1000, "unknown usage counts as none");
}

#[test]
fn this_system_has_some_and_not_everything() {
    let bytes = available();
    assert!(bytes > 0 && bytes < 1 << 50, "{bytes}");
}
