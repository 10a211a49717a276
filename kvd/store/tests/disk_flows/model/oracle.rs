//! What is known of each name, from the outside.

use std::collections::{BTreeMap, BTreeSet};

use kvd_proto::retention::Retention;
use kvd_store::WaitId;

use super::step::Name;

/// One value that was stored under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) number: u64,
    pub(super) len: u64,
    pub(super) class: Retention,
    pub(super) expires_at: Option<u64>,
}

impl Value {
    pub(super) fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// What a hit may show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Now {
    /// Nothing.
    #[default]
    Nothing,
    /// Just this.
    This(Value),
    /// After a crash: whatever was not durably replaced by then.
    AnyOf(Vec<Value>),
}

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) now: Now,
    /// What a crash may bring back; the latest last.
    pub(super) possible: Vec<Value>,
    /// What only a power cut may bring back, because the end of it was written, but not synced.
    pub(super) unsynced: Vec<Value>,
    /// It survives any crash.
    pub(super) assured: Option<Value>,
    /// It was reported present, and stays so until then.
    pub(super) promised_until: Option<u64>,
}

/// What a wait, once it is met, means.
#[derive(Clone, Debug)]
pub(super) enum Meaning {
    /// This value is there, and none before it.
    Stored(Name, Value),
    /// No value before this one outlives the daemon; the host's power may take that back.
    Replaced(Name, Value),
    /// None of these is there.
    Gone(Vec<(Name, Vec<Value>)>),
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) names: BTreeMap<Name, Known>,
    pub(super) waits: BTreeMap<WaitId, Meaning>,
    /// Sessions that were told to come back, per session: names.
    pub(super) loading: [BTreeSet<Name>; 2],
    pub(super) values: u64,
    pub(super) crashes: u64,
    /// Classes of all values, by number.
    pub(super) classes: BTreeMap<u64, Retention>,
}

impl Oracle {
    pub(super) fn known(&mut self, name: Name) -> &mut Known {
        self.names.entry(name).or_default()
    }

    pub(super) fn stored(&mut self, name: Name, value: Value) {
        let known = self.known(name);
        known.now = Now::This(value);
        known.possible.push(value);
        known.assured = None;
        known.promised_until = None;
    }

    /// Everything of a scope was cleared: what its wait, if it ends well, will mean.
    pub(super) fn cleared(&mut self, covers: impl Fn(Name) -> bool) -> Meaning {
        let mut gone = Vec::new();
        for (&name, known) in self.names.iter_mut().filter(|(name, _)| covers(**name)) {
            known.now = Now::Nothing;
            known.assured = None;
            known.promised_until = None;
            gone.push((name, [&known.possible[..], &known.unsynced].concat()));
        }
        Meaning::Gone(gone)
    }

    pub(super) fn met(&mut self, wait: WaitId) {
        match self.waits.remove(&wait) {
            Some(Meaning::Stored(name, value)) => {
                let known = self.known(name);
                if let Some(at) = known.possible.iter().position(|&other| other == value) {
                    known.possible.drain(..at);
                    known.unsynced.clear();
                }
                if known.now == Now::This(value) {
                    known.assured = Some(value);
                }
            }
            Some(Meaning::Replaced(name, value)) => {
                let known = self.known(name);
                if let Some(at) = known.possible.iter().position(|&other| other == value) {
                    known.unsynced.extend(known.possible.drain(..at));
                }
            }
            Some(Meaning::Gone(gone)) => {
                for (name, values) in gone {
                    let known = self.known(name);
                    known.possible.retain(|value| !values.contains(value));
                    known.unsynced.retain(|value| !values.contains(value));
                }
            }
            None => {}
        }
    }

    /// Blocks may be gone for reasons that are nobody's fault here.
    pub(super) fn forgive(&mut self) {
        for known in self.names.values_mut() {
            known.assured = None;
            known.promised_until = None;
        }
    }

    pub(super) fn crashed(&mut self, power_is_cut: bool) {
        self.crashes += 1;
        for known in self.names.values_mut() {
            if power_is_cut {
                // From now on they may be what is there.
                known.possible.splice(..0, known.unsynced.drain(..));
            }
            known.now = Now::AnyOf(known.possible.clone());
            known.promised_until = None;
        }
        self.waits.clear();
        self.loading = Default::default();
    }
}
