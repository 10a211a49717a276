//! How much memory this process may still take: the host's, and every control group's above it.
//!
//! Files that do not exist or make no sense set no limit: a host without control groups has only its
//! own memory.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that can be taken now without reclaim from others and without passing a limit: the least of
/// the host's available memory and, for each control group from this process's own up to the root
/// (versions 1 and 2), its limit less what it uses. Page cache that nobody touched lately counts as
/// unused, as the host's figure counts it. Pages of the huge page pool are not looked at: they are
/// set aside already.
///
/// `u64::MAX` if the system tells nothing.
#[must_use]
pub fn available() -> u64 {
    available_under(Path::new("/"))
}

/// As [`available`], for the `proc` and the control groups of the tree below `root`.
#[must_use]
pub fn available_under(root: &Path) -> u64 {
    let host = host_available(root).unwrap_or(u64::MAX);
    groups(root).into_iter().map(|group| group.room()).fold(host, u64::min)
}

fn host_available(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// One control group with a memory controller.
struct Group {
    folder: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Version {
    One,
    Two,
}

impl Group {
    /// The limit less the usage; `u64::MAX` without a limit.
    fn room(&self) -> u64 {
        let (limits, usage, inactive): (&[&str], _, _) = match self.version {
            Version::One => {
                (&["memory.limit_in_bytes"], "memory.usage_in_bytes", "total_inactive_file")
            }
            // Above `memory.high` a group is not refused memory but slowed to a crawl.
            Version::Two => (&["memory.max", "memory.high"], "memory.current", "inactive_file"),
        };
        // "max" is no number and so no limit. Version 1 says "unlimited" with a huge number.
        let limit = limits.iter().filter_map(|name| self.number(name)).min();
        let Some(limit) = limit else { return u64::MAX };
        let cache = self.statistic(inactive).unwrap_or(0);
        let used = self.number(usage).unwrap_or(0).saturating_sub(cache);
        limit.saturating_sub(used)
    }

    fn number(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(name)).ok()?.trim().parse().ok()
    }

    fn statistic(&self, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        let mut fields = text.lines().filter_map(|line| line.split_once(' '));
        fields.find(|(key, _)| *key == name)?.1.trim().parse().ok()
    }
}

/// The groups of this process and all their ancestors that are visible here.
fn groups(root: &Path) -> Vec<Group> {
    let Ok(memberships) = fs::read_to_string(root.join("proc/self/cgroup")) else {
        return Vec::new();
    };
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    let mut groups = Vec::new();
    for (version, path) in memberships.lines().filter_map(parse_membership) {
        for mount in mounts.iter().filter(|mount| mount.version == version) {
            let top = root.join(mount.place.trim_start_matches('/'));
            let below = mount.below(path);
            for folder in below.ancestors() {
                groups.push(Group { folder: top.join(folder), version });
            }
        }
    }
    groups
}

/// Reads a line of `/proc/self/cgroup`: `0::/path` is version 2, `4:memory:/path` version 1.
fn parse_membership(line: &str) -> Option<(Version, &str)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    if controllers.split(',').any(|controller| controller == "memory") {
        Some((Version::One, path))
    } else if number == "0" && controllers.is_empty() {
        Some((Version::Two, path))
    } else {
        None
    }
}

/// Where a control group tree is mounted.
struct Mount {
    version: Version,
    /// Which group of the tree the mount shows as its top.
    top: String,
    /// The folder it is mounted on.
    place: String,
}

impl Mount {
    /// Reads a line of `/proc/self/mountinfo`, or `None` if it mounts no memory controller.
    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (top, place) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let version = match after.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if after.nth(1)?.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Self { version, top: unescape(top), place: unescape(place) })
    }

    /// The path of a group as seen below the mount. A group outside of what the mount shows (other
    /// namespaces) is stood for by the mount's top.
    fn below(&self, path: &str) -> PathBuf {
        let top = self.top.trim_end_matches('/');
        match path.strip_prefix(top) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                let rest = Path::new(rest.trim_start_matches('/'));
                let climbs = rest.components().any(|part| part.as_os_str() == "..");
                if climbs { PathBuf::new() } else { rest.to_path_buf() }
            }
            Some(_) | None => PathBuf::new(),
        }
    }
}

/// `mountinfo` writes blanks and backslashes in octal.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_lines() {
        let version =
            |line| parse_membership(line).map(|(version, path)| (version == Version::One, path));
        assert_eq!(version("0::/a/b:c"), Some((false, "/a/b:c")));
        assert_eq!(version("4:cpu,memory:/x"), Some((true, "/x")));
        assert_eq!(version("3:cpuset:/x"), None);
        assert_eq!(version("1:name=systemd:/x"), None);
        assert_eq!(version("nonsense"), None);
    }

    #[test]
    fn mount_lines() {
        let line = "35 24 0:30 /docker/a\\040b /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory";
        let mount = Mount::parse(line).unwrap();
        assert!(mount.version == Version::One);
        assert_eq!(mount.top, "/docker/a b");
        assert_eq!(mount.below("/docker/a b/inner"), Path::new("inner"));
        assert_eq!(mount.below("/docker/a b"), Path::new(""));
        assert_eq!(mount.below("/docker/a bc"), Path::new(""));
        assert_eq!(mount.below("/elsewhere"), Path::new(""));
        let line = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.below("/system.slice/kvd.service"), Path::new("system.slice/kvd.service"));
        assert_eq!(mount.below("/../outside"), Path::new(""));
        assert!(Mount::parse("30 23 0:26 / /proc rw - proc proc rw").is_none());
        assert!(
            Mount::parse("36 24 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu").is_none()
        );
    }
}
