//! `cargo xtask units`: what is installed for systemd (`kvd/systemd`, `router/systemd`), held against systemd's own tools in a root of its own.
//! Nothing is started. Each check is shown to see what it is for: it must refuse the same files with one line spoiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, bail, ensure};

use crate::{Context, command};

/// Where the daemon's files lie in the checkout.
const FOLDER: &str = "kvd/systemd";

/// The router's unit: where it lies, and its name.
const ROUTER: (&str, &str) = ("router/systemd", "infera-router.service");

/// The unit of an engine with its sidecar: as a file, and by the name that systemd is to look at. What the engine may do is not
/// for us to say, so its exposure is not looked at.
const REGISTER: (&str, &str) = ("infera-register@.service", "infera-register@a.service");

/// The units as files, and by the names that systemd is to look at.
const UNITS: [(&str, &str); 2] =
    [("infera-kvd.service", "infera-kvd.service"), ("infera-kvd@.service", "infera-kvd@a.service")];

/// Exposure in tenths, as `systemd-analyze security` counts it: 0 for nothing, 100 for everything. What is left is said
/// in the units, exception by exception.
const EXPOSURE_MAX: &str = "15";

/// A key that systemd knows from 254 on, and the service does without before.
const NEWER: &str = "Unknown key 'FileDescriptorStorePreserve'";

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let stage = Stage::new(&context.root)?;
    for (file, name) in UNITS {
        let text = read(&context.root, FOLDER, file)?;
        stage.verify(file, name, &text)?;
        for (found, spoiled) in [
            ("a program that is missing", text.replace("/usr/bin/infera-kvd", "/usr/bin/gone")),
            ("a reload by nothing", text.replace("/usr/bin/kill", "/usr/bin/gone")),
            ("a key that nobody knows", text.replace("WatchdogSec=", "WatchdogSecs=")),
            ("a value that is none", text.replace("Type=notify", "Type=notice")),
        ] {
            ensure!(spoiled != text, "{file}: nothing to spoil for {found}");
            ensure!(stage.verify(file, name, &spoiled).is_err(), "{file}: {found} goes unseen");
        }
        stage.secure(file, name, &text)?;
        let spoiled = text.replace("CapabilityBoundingSet=", "#");
        ensure!(stage.secure(file, name, &spoiled).is_err(), "{file}: capabilities go unseen");
    }
    let daemons = |file| read(&context.root, FOLDER, file);
    same_service(&daemons(UNITS[0].0)?, &daemons(UNITS[1].0)?)?;
    stage.make_users(&daemons("infera-kvd.sysusers.conf")?)?;
    stage.make_link(&daemons("infera-kvd.tmpfiles.conf")?)?;
    check_router(context, &stage)?;
    println!("units: verified, exposure at most {EXPOSURE_MAX} of 100");
    Ok(())
}

fn check_router(context: &Context, stage: &Stage) -> anyhow::Result<()> {
    let (folder, unit) = ROUTER;
    let text = read(&context.root, folder, unit)?;
    stage.verify(unit, unit, &text)?;
    let spoiled = text.replace("/usr/bin/infera-router", "/usr/bin/gone");
    ensure!(stage.verify(unit, unit, &spoiled).is_err(), "{unit}: a missing program goes unseen");
    stage.secure(unit, unit, &text)?;
    let spoiled = text.replace("CapabilityBoundingSet=", "#");
    ensure!(stage.secure(unit, unit, &spoiled).is_err(), "{unit}: capabilities go unseen");
    let (file, name) = REGISTER;
    let text = read(&context.root, folder, file)?;
    stage.verify(file, name, &text)?;
    let spoiled = text.replace("/usr/bin/infera-register", "/usr/bin/gone");
    ensure!(stage.verify(file, name, &spoiled).is_err(), "{file}: a missing program goes unseen");
    Ok(())
}

fn read(root: &Path, folder: &str, file: &str) -> anyhow::Result<String> {
    let path = root.join(folder).join(file);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// A root with a stand-in for the program, removed on drop.
struct Stage {
    root: PathBuf,
}

impl Stage {
    fn new(checkout: &Path) -> anyhow::Result<Self> {
        let root = checkout.join(format!("target/units-{}", std::process::id()));
        let stage = Self { root };
        for program in ["infera-kvd", "infera-router", "infera-register", "kill"] {
            let program = &format!("usr/bin/{program}");
            stage.put(program, "#!/bin/true\n")?;
            make_executable(&stage.root.join(program))?;
        }
        // What every unit hangs on.
        for target in [
            "sysinit",
            "basic",
            "shutdown",
            "multi-user",
            "local-fs",
            "network-online",
            "nss-lookup",
        ] {
            let unit = format!("[Unit]\nDescription={target}\n");
            stage.put(&format!("etc/systemd/system/{target}.target"), &unit)?;
        }
        for slice in ["-", "system", "system-infera\\x2dkvd", "system-infera\\x2dregister"] {
            stage
                .put(&format!("etc/systemd/system/{slice}.slice"), "[Unit]\nDescription=slice\n")?;
        }
        Ok(stage)
    }

    fn put(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let path = self.root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    fn ask(&self, program: &str, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut asked = command::program_in(&self.root, program, arguments);
        asked.arg(format!("--root={}", self.root.display()));
        asked.output().with_context(|| format!("starting {program}: is systemd installed?"))
    }

    /// `systemd-analyze verify`, which must have nothing to say: it ends well on keys that it does not know.
    fn verify(&self, file: &str, name: &str, text: &str) -> anyhow::Result<()> {
        self.put(&format!("etc/systemd/system/{file}"), text)?;
        let answer = self.ask("systemd-analyze", &["verify", "--man=no", name])?;
        let said = String::from_utf8_lossy(&answer.stderr);
        let said: Vec<&str> = said.lines().filter(|line| !line.contains(NEWER)).collect();
        ensure!(answer.status.success() && said.is_empty(), "{name}: {}", said.join("\n"));
        Ok(())
    }

    /// `systemd-analyze security`.
    fn secure(&self, file: &str, name: &str, text: &str) -> anyhow::Result<()> {
        self.put(&format!("etc/systemd/system/{file}"), text)?;
        let threshold = format!("--threshold={EXPOSURE_MAX}");
        let arguments = ["security", "--offline=true", "--no-pager", &threshold, name];
        let answer = self.ask("systemd-analyze", &arguments)?;
        if !answer.status.success() {
            let table = String::from_utf8_lossy(&answer.stdout);
            let open: Vec<&str> = table.lines().filter(|line| !line.contains('✓')).collect();
            bail!("{name} is exposed too much:\n{}", open.join("\n"));
        }
        Ok(())
    }

    /// `systemd-sysusers` makes the user and puts it into the engines' group.
    fn make_users(&self, text: &str) -> anyhow::Result<()> {
        self.put("usr/lib/sysusers.d/infera-kvd.conf", text)?;
        self.put("etc/passwd", "root:x:0:0::/root:/bin/sh\n")?;
        self.put("etc/group", "root:x:0:\n")?;
        let answer = self.ask("systemd-sysusers", &["infera-kvd.conf"])?;
        let said = String::from_utf8_lossy(&answer.stderr);
        ensure!(answer.status.success(), "systemd-sysusers: {said}");
        let users = fs::read_to_string(self.root.join("etc/passwd"))?;
        let groups = fs::read_to_string(self.root.join("etc/group"))?;
        ensure!(users.lines().any(|line| line.starts_with("infera-kvd:")), "no user: {users}");
        let is_member =
            |line: &str| line.starts_with("infera-kv:") && line.ends_with(":infera-kvd");
        ensure!(groups.lines().any(is_member), "not a member of the group: {groups}");
        Ok(())
    }

    /// `systemd-tmpfiles` makes the link at the daemon's default path.
    fn make_link(&self, text: &str) -> anyhow::Result<()> {
        self.put("usr/lib/tmpfiles.d/infera-kvd.conf", text)?;
        fs::create_dir_all(self.root.join("run"))?;
        let answer = self.ask("systemd-tmpfiles", &["--create", "infera-kvd.conf"])?;
        let said = String::from_utf8_lossy(&answer.stderr);
        ensure!(answer.status.success() && said.is_empty(), "systemd-tmpfiles: {said}");
        let target = fs::read_link(self.root.join("run/infera-kvd.sock"))?;
        ensure!(target == Path::new("infera-kvd/kvd.sock"), "the link leads to {target:?}");
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A folder that stays behind is in nobody's way.
        drop(fs::remove_dir_all(&self.root));
    }
}

fn make_executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// An instance is as protected as the one daemon: from `[Service]` on they differ by names and by the environment only.
fn same_service(one: &str, template: &str) -> anyhow::Result<()> {
    let settings = |text: &str| -> Vec<String> {
        let service = text.split_once("\n[Service]\n").map_or("", |(_, service)| service);
        let plain = service.replace("-%i", "");
        let lines = plain.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', ' ']));
        lines.filter(|line| !line.starts_with("Environment=")).map(str::to_owned).collect()
    };
    let (one, template) = (settings(one), settings(template));
    ensure!(!one.is_empty(), "no [Service]");
    if let Some((one, other)) = one.iter().zip(&template).find(|(one, other)| one != other) {
        bail!("the units differ: {one:?} and {other:?}");
    }
    ensure!(one.len() == template.len(), "one unit has more lines than the other");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_may_differ_in_names_only() {
        let one = "[Unit]\n\n[Service]\nUser=infera-kvd\nNoNewPrivileges=yes\n";
        let named = "[Unit]\n\n[Service]\n# Why.\nUser=infera-kvd-%i\nEnvironment=A=%i\nNoNewPrivileges=yes\n";
        same_service(one, named).unwrap();
        same_service(one, &named.replace("=yes", "=no")).unwrap_err();
        same_service(one, &named.replace("NoNewPrivileges=yes\n", "")).unwrap_err();
        same_service("", "").unwrap_err();
    }
}
