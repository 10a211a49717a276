//! Who may pass: what there is to say when the system's only word is "permission denied".

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, Gid, Group, Uid, User, access, geteuid};

/// What bars the way to a path: a folder above it that this user may not pass, else the path itself.
#[derive(Debug)]
pub(crate) struct Barrier {
    path: PathBuf,
    /// None where even that is not to be seen.
    rights: Option<Rights>,
}

#[derive(Debug)]
struct Rights {
    owner: String,
    group: String,
    mode: u32,
    lets_group_pass: bool,
}

/// What this user may not do, as an error.
#[derive(Debug)]
pub(crate) struct Forbidden(pub(crate) Barrier);

impl Barrier {
    pub(crate) fn before(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_nowhere| path.to_path_buf());
        let mut folders: Vec<&Path> = path.ancestors().skip(1).collect();
        folders.reverse();
        let closed = folders.into_iter().find(|folder| access(*folder, AccessFlags::X_OK).is_err());
        let path = closed.unwrap_or(&path).to_path_buf();
        let rights = fs::metadata(&path).ok().map(|found| Rights {
            owner: user(found.uid()),
            group: group(found.gid()),
            mode: found.mode() & 0o7777,
            // A folder is passed, a socket is written to.
            lets_group_pass: found.mode() & if found.is_dir() { 0o010 } else { 0o020 } != 0,
        });
        Self { path, rights }
    }

    /// As whom it would work.
    pub(crate) fn way_out(&self) -> Option<String> {
        let Rights { owner, group, lets_group_pass, .. } = self.rights.as_ref()?;
        Some(if *lets_group_pass {
            format!("join group {group} and log in anew, or run this as user {owner}")
        } else {
            format!("run this as user {owner}")
        })
    }
}

impl fmt::Display for Barrier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, me) = (self.path.display(), user(geteuid().as_raw()));
        match &self.rights {
            Some(Rights { owner, group, mode, .. }) => write!(
                out,
                "{path} belongs to user {owner} and group {group}, mode {mode:04o}; this is user {me}"
            ),
            None => write!(out, "{path} is closed to user {me}"),
        }
    }
}

impl fmt::Display for Forbidden {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "permission denied: {}", self.0)
    }
}

impl std::error::Error for Forbidden {}

/// The name, else the number.
fn user(uid: u32) -> String {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}

fn group(gid: u32) -> String {
    let known = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    known.map_or_else(|| gid.to_string(), |group| group.name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn owner_group_mode_and_way_out_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        let barrier = |mode: u32| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
            Barrier::before(&file)
        };
        let me = user(geteuid().as_raw());
        let said = barrier(0o640).to_string();
        assert!(said.starts_with(&format!("{} belongs to user {me}", file.display())), "{said}");
        assert!(said.ends_with(&format!("mode 0640; this is user {me}")), "{said}");
        assert!(barrier(0o660).way_out().expect("seen").starts_with("join group "));
        assert!(barrier(0o640).way_out().expect("seen").starts_with("run this as user "));
    }

    #[test]
    fn numbers_stand_for_themselves_where_there_is_no_name() {
        assert_eq!((user(0), user(4_000_000_001)), ("root".into(), "4000000001".into()));
        assert_eq!((group(0), group(4_000_000_002)), ("root".into(), "4000000002".into()));
    }
}
