//! Who gets in: the socket, its group, the way to it, and where engines look.

use crate::config::{self, Settings};
use crate::doctor::door::{Door, Place};
use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;
use crate::listen::ClaimError;

/// The permission to write, of the group and of everybody.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

pub(super) fn check(settings: &Settings, facts: &Facts, door: &Door, findings: &mut Vec<Finding>) {
    findings.push(socket(settings, door));
    findings.push(permissions(settings, door));
    findings.extend(way(settings, door));
    if let Some(Err(refusal)) = &door.metrics {
        let found = format!("--metrics-listen can't be had: {refusal}");
        findings.push(Finding::fail("metrics", found, "another address, or end who has it"));
    }
    findings.push(engines(settings, facts, door));
    for (name, value) in &facts.variables {
        let meaning = config::meaning_of(name).unwrap_or("not read by this daemon");
        findings.push(Finding::ok("environment", format!("{name}={value}: {meaning}")));
    }
}

fn socket(settings: &Settings, door: &Door) -> Finding {
    const WHAT: &str = "socket";
    let path = settings.socket.display();
    match &door.place {
        Place::Free => Finding::ok(WHAT, format!("{path} is free")),
        Place::Barred(reason) => Finding::fail(
            WHAT,
            format!("{path} can't be made: {reason}"),
            "another --socket, or a folder of the daemon's user",
        ),
        Place::Other => {
            let refusal = ClaimError::NotASocket { path: settings.socket.clone() };
            Finding::fail(WHAT, refusal.to_string(), "another --socket, or remove it")
        }
        Place::Closed => Finding::warn(
            WHAT,
            format!("{path} is served, and this user may not connect"),
            "ask as an engine's user, or make this one a member of the socket's group",
        ),
        Place::Served { holder, answer } => {
            let holder =
                holder.map_or_else(|| "somebody".to_owned(), |pid| format!("process {pid}"));
            match answer {
                Ok(attached) => {
                    let (server, session) = (&attached.server, attached.session);
                    let found = format!(
                        "{path} is served by {holder}; attached to {server} as session {session}"
                    );
                    Finding::ok(WHAT, found)
                }
                Err(reason) => Finding::fail(
                    WHAT,
                    format!(
                        "{path} is held by {holder}, which does not answer as a daemon: {reason}"
                    ),
                    "another --socket, or end that process; --allow-uid may keep this user out",
                ),
            }
        }
    }
}

fn permissions(settings: &Settings, door: &Door) -> Finding {
    const WHAT: &str = "access";
    let mode = settings.socket_mode;
    let Some(group) = settings.socket_group else {
        let found = format!("--socket-mode {mode:04o}, no group");
        if mode & OTHERS_WRITE != 0 {
            return open_to_all(found, settings);
        }
        return Finding::ok(WHAT, format!("{found}: engines run as the daemon's user"));
    };
    let found = format!("--socket-mode {mode:04o}, group {group}");
    if !door.may_give {
        let advice =
            "make the daemon's user a member of the group (SupplementaryGroups= in the unit)";
        return Finding::fail(WHAT, format!("{found}, which this user may not give"), advice);
    }
    if mode & OTHERS_WRITE != 0 {
        return open_to_all(found, settings);
    }
    if mode & GROUP_WRITES == 0 {
        let advice = "--socket-mode 0660: the group can't connect";
        return Finding::warn(WHAT, found, advice);
    }
    Finding::ok(WHAT, found)
}

fn open_to_all(found: String, settings: &Settings) -> Finding {
    const WHAT: &str = "access";
    if settings.allow_uids.is_empty() {
        let advice = "--socket-mode 0660 with --socket-group, or --allow-uid: as it is, everybody on \
                      this host may read and write every block";
        return Finding::warn(WHAT, found, advice);
    }
    Finding::ok(WHAT, format!("{found}, users {:?} only", settings.allow_uids))
}

/// Folders that engines of other users can't pass.
fn way(settings: &Settings, door: &Door) -> Option<Finding> {
    let is_for_others = settings.socket_mode & (GROUP_WRITES | OTHERS_WRITE) != 0;
    let folder = door.closed_folders.first().filter(|_| is_for_others)?;
    Some(Finding::warn(
        "access",
        format!("{} is closed to other users", folder.display()),
        "chmod o+x on it, unless its group is that of all engines",
    ))
}

fn engines(settings: &Settings, facts: &Facts, door: &Door) -> Finding {
    const WHAT: &str = "engines";
    let socket = settings.socket.display();
    let told = facts.variables.iter().find(|(name, _)| name == "INFERA_KVD_SOCKET");
    match told {
        Some((_, value)) if std::path::Path::new(value) == settings.socket => {
            Finding::ok(WHAT, format!("INFERA_KVD_SOCKET leads to {socket}"))
        }
        Some((_, value)) => Finding::warn(
            WHAT,
            format!("INFERA_KVD_SOCKET leads to {value}, the daemon serves {socket}"),
            format!("INFERA_KVD_SOCKET={socket} for engines"),
        ),
        None if door.is_default => Finding::ok(WHAT, "they find the daemon without being told"),
        None => Finding::warn(
            WHAT,
            format!("they look at {} unless they are told", config::DEFAULT_SOCKET),
            format!("INFERA_KVD_SOCKET={socket} for engines, or a link there"),
        ),
    }
}
