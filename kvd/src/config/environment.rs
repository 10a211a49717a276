//! The environment: every option under its own name and under the names that existing deployments
//! use.

use std::collections::BTreeMap;
use std::ffi::OsString;

use kvd_etcd::Password;

use super::disk_options::IO_MODE;
use super::given::Given;
use super::option::Opt;
use super::problem::{Source, nearest};
use super::table;

const PREFIX: &str = "INFERA_KVD_";

/// Names that clients read; they may stand in the daemon's environment too.
const OF_CLIENTS: [&str; 3] =
    ["INFERA_KVD_ARENA_PREFAULT", "INFERA_KVD_HIPFILE_ROOTS", "INFERA_KVD_RETENTION_DEFAULT"];

/// What a variable means to the daemon, in the words of `--help`; `None` for one that it does not read.
#[must_use]
pub fn meaning_of(name: &str) -> Option<&'static str> {
    if OF_CLIENTS.contains(&name) {
        return Some("read by clients");
    }
    if name == Password::VARIABLE {
        return Some("password of the user of etcd");
    }
    if name.starts_with(table::REMOTE_TIER_PREFIX) {
        return Some("of the remote tier, which this version does not have");
    }
    let is_named = |option: &&Opt| option.environment_names().any(|known| known == name);
    table::all().find(is_named).map(|option| option.help)
}

/// Takes what the environment says. An empty value counts as not set.
pub(super) fn read(variables: impl IntoIterator<Item = (OsString, OsString)>, given: &mut Given) {
    let mut set: BTreeMap<String, OsString> = variables
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| {
            [PREFIX, table::REMOTE_TIER_PREFIX, Password::VARIABLE]
                .iter()
                .any(|known| name.starts_with(known))
        })
        .collect();
    match set.remove(Password::VARIABLE).map(OsString::into_string) {
        Some(Ok(password)) => given.etcd_password = Password::new(password),
        Some(Err(_odd)) => {
            let source = Source::Environment(Password::VARIABLE.to_owned());
            given.problem(source, "the value is not valid UTF-8");
        }
        None => {}
    }
    let mut known: Vec<String> = OF_CLIENTS.iter().map(|name| (*name).to_owned()).collect();
    for option in table::all() {
        for name in option.environment_names() {
            let source = Source::Environment(name.clone());
            match set.get(&name).map(|value| value.to_str()) {
                // Existing deployments count on it.
                Some(Some(text)) if option.name == IO_MODE.name => {
                    given.overrule(option, text.to_owned(), source);
                }
                Some(Some(text)) => given.offer(option, text.to_owned(), source),
                Some(None) => given.problem(source, "the value is not valid UTF-8"),
                None => {}
            }
            known.push(name);
        }
    }
    for name in set.keys() {
        if name.starts_with(table::REMOTE_TIER_PREFIX) {
            given.without_effect.push(Source::Environment(name.clone()));
        } else if !known.contains(name) {
            remark_unknown(name, &known, given);
        }
    }
}

/// Orchestrators set names of their own with our prefix, so an unknown one is no mistake; a near
/// miss is worth a word.
fn remark_unknown(name: &str, known: &[String], given: &mut Given) {
    if let Some(meant) = nearest(name, known.iter().map(String::as_str)) {
        given.remarks.push(format!("environment {name} is not known; did you mean {meant}?"));
    }
}
