//! Rule: crates use each other only along the arrows of `docs/ARCHITECTURE.md`, checked against `cargo metadata`.

use anyhow::Context as _;
use serde_json::Value;

use crate::tidy::Finding;

/// Each crate, and the crates of this workspace that it may use (for its tests too).
const ARROWS: &[(&str, &[&str])] = &[
    ("kvd-proto", &[]),
    ("kvd-shm", &[]),
    ("kvd-disk", &["kvd-shm"]),
    ("kvd-etcd", &[]),
    ("kvd-store", &["kvd-proto"]),
    ("zeromq-src", &[]),
    ("infera-kvd", &["kvd-disk", "kvd-etcd", "kvd-proto", "kvd-shm", "kvd-store"]),
    ("kvd-client", &["kvd-proto", "kvd-shm"]),
    ("kvd-python", &["kvd-client", "router-core"]),
    ("kvd-shim", &["kvd-client"]),
    ("kvdctl", &["kvd-client", "kvd-disk", "kvd-proto", "kvd-shm", "kvd-store"]),
    ("router-core", &["kvd-proto"]),
    ("router-tls", &[]),
    ("router-tokens", &[]),
    ("infera-router", &["kvd-etcd", "kvd-proto", "router-core", "router-tls", "router-tokens"]),
    ("infera-register", &["kvd-etcd", "kvd-proto", "router-core", "router-tls"]),
    ("xtask", &[]),
];

/// These may use anything; nothing may use them.
const ENDS: &[&str] = &["kvd-tests", "kvd-benches"];

/// # Errors
/// `metadata` is not what `cargo metadata --no-deps` prints.
pub(super) fn check(metadata: &str) -> anyhow::Result<Vec<Finding>> {
    let metadata: Value = serde_json::from_str(metadata)?;
    let packages = metadata["packages"].as_array().context("metadata without packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("a package without a name")?;
        if ENDS.contains(&name) {
            continue;
        }
        let manifest = package["manifest_path"].as_str().unwrap_or(name);
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            findings.push(Finding::at(manifest, 1, format!("{name} has no row in the arrows")));
            continue;
        };
        let used = package["dependencies"].as_array().context("a package without a list")?;
        for used in used.iter().filter(|used| used["path"].is_string()) {
            let used = used["name"].as_str().unwrap_or_default();
            if !allowed.contains(&used) {
                findings.push(Finding::at(manifest, 1, format!("{name} may not use {used}")));
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata_of(name: &str, used: &str) -> String {
        format!(
            r#"{{"packages": [{{"name": "{name}", "manifest_path": "Cargo.toml", "dependencies": [
                {{"name": "{used}", "path": "/somewhere"}}, {{"name": "libc", "path": null}}]}}]}}"#
        )
    }

    #[test]
    fn an_arrow_that_points_left_is_found() {
        assert_eq!(check(&metadata_of("kvd-proto", "kvd-store")).unwrap().len(), 1);
        assert_eq!(check(&metadata_of("kvd-store", "kvd-proto")).unwrap(), []);
    }

    #[test]
    fn nothing_uses_the_ends_and_the_ends_use_anything() {
        assert_eq!(check(&metadata_of("infera-kvd", "kvd-tests")).unwrap().len(), 1);
        assert_eq!(check(&metadata_of("kvd-tests", "infera-kvd")).unwrap(), []);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(check(&metadata_of("kvd-new", "kvd-proto")).unwrap().len(), 1);
    }
}
