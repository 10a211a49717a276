//! Carries out the steps.

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::{LeaseId, SessionId};
use kvd_proto::lineage::Lineage;
use kvd_proto::retention::Retention;
use kvd_store::{
    ClearScope, CommitRules, DeviceFault, DeviceId, DiskWork, Durability, Hold, Input, Keys,
    StoreConfig, Verdict,
};

use super::oracle::{Meaning, Oracle, Value};
use super::step::{LENS, Name, Step};
use crate::platter::{Platter, Trouble, checksum, index};
use crate::rig::{KIB, NAMESPACE, ONE, OTHER, Rig, TWO, config, value};

pub(super) const SESSIONS: [SessionId; 2] = [ONE, TWO];

#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) durability: Durability,
    pub(super) devices: u8,
    /// Nothing ever has to leave a device.
    pub(super) roomy: bool,
    pub(super) second_touch: bool,
    pub(super) budget: bool,
}

impl Setting {
    fn config(self) -> StoreConfig {
        let mut config = config(96, self.devices);
        config.disk.durability = self.durability;
        config.disk.second_touch = self.second_touch;
        config.disk.write_budget_bytes_per_s = if self.budget { 30_000 } else { 0 };
        config.disk.loads_max = 4;
        config.disk.load_bytes_max = 48 << 10;
        config.disk.hints_max = 3;
        config.promise_window_ms = 1_000;
        config
    }

    const fn space_kib(self) -> u64 {
        if self.roomy { 16 << 10 } else { 192 }
    }
}

pub(super) struct Life {
    pub(super) rig: Rig,
    pub(super) setting: Setting,
    pub(super) oracle: Oracle,
    /// Leases and what they show.
    pub(super) kept: Vec<(SessionId, LeaseId, usize, Vec<u8>)>,
    /// Which devices have been brought back in this life.
    back: Vec<bool>,
}

pub(super) fn run(setting: Setting, steps: &[Step]) {
    let mut life = Life {
        rig: Rig::new(setting.config(), setting.space_kib()),
        setting,
        oracle: Oracle::default(),
        kept: Vec::new(),
        back: vec![true; usize::from(setting.devices)],
    };
    for step in steps {
        life.step(step);
        life.hear_verdicts();
        life.check_work();
    }
    life.settle();
}

pub(super) fn namespace(name: Name) -> Namespace<'static> {
    if name.namespace == 0 { NAMESPACE } else { OTHER }
}

pub(super) fn key(number: u8) -> [u8; 8] {
    [b'k', 0, 0, 0, 0, 0, 0, number]
}

/// Some blocks of which no other value has one.
fn lineage(number: u64) -> Vec<u8> {
    let hash = |block: u64| [[7; 8], (number << 8 | block).to_be_bytes()].concat();
    let lineage =
        Lineage { engine_hashes: (0..number % 4).map(hash).collect(), ..Lineage::default() };
    lineage.encode()
}

impl Life {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Put { name, class, len, ttl_ms, lease, sum } => {
                self.put(*name, (*class, *len, *ttl_ms), *lease, *sum);
            }
            Step::Fetch { session, name, keep } => self.fetch(*session, *name, *keep),
            Step::Release { pick } => self.release(*pick),
            Step::StopWaiting { session } => {
                self.rig.apply(Input::StopWaiting { session: SESSIONS[*session], given_up: 0 });
                self.oracle.loading[*session].clear();
            }
            Step::Locate { name, family } => self.locate(*name, *family),
            Step::Prefetch { names, deadline_ms } => {
                let keys: Vec<[u8; 8]> = names.iter().map(|&number| key(number)).collect();
                let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
                self.rig.prefetch(&keys, *deadline_ms);
            }
            Step::Clear { scope } => self.clear(*scope),
            Step::Take { device, loads, writes } => {
                self.rig.take_some(device % self.setting.devices, *loads, *writes);
            }
            Step::Finish { pick, trouble } => self.finish(*pick, *trouble),
            Step::Settle => self.settle(),
            Step::Wait { ms } => self.rig.wait(*ms),
            Step::Drain { on } => self.rig.apply(Input::Drain { on: *on }),
            Step::Fail { device } => self.fail(*device),
            Step::BringBack { device } => self.bring_back(device % self.setting.devices),
            Step::Restart { survivors } => self.restart(survivors),
        }
    }

    fn put(&mut self, name: Name, what: (usize, usize, Option<u64>), lease: bool, sum: bool) {
        let (class, len, ttl_ms) = what;
        self.oracle.values += 1;
        let (number, len, class) = (self.oracle.values, LENS[len], Retention::ALL[class]);
        self.oracle.classes.insert(number, class);
        let key = key(name.key);
        let checksum = sum.then(|| checksum(&value(number, len), &key));
        let lineage = lineage(number);
        let stored = self.rig.put_with(namespace(name), &key, number, len, |commit| {
            commit.retention = class;
            commit.ttl_ms = ttl_ms;
            commit.checksum = checksum;
            commit.lineage = (number % 3 == 0).then_some(&lineage);
            commit.rules = if lease { CommitRules::Lease } else { CommitRules::Set };
        });
        if stored.is_err() || ttl_ms == Some(0) {
            return;
        }
        let expires_at = ttl_ms.map(|ttl_ms| self.rig.now + ttl_ms);
        let value = Value { number, len, class, expires_at };
        self.oracle.stored(name, value);
        if let Some(wait) = self.rig.effects.wait {
            let meaning = if self.setting.durability == Durability::Strict {
                match class {
                    Retention::Long => Meaning::Stored(name, value),
                    // It stands in the way of the older ones, and may itself be lost.
                    Retention::None | Retention::Ephemeral | Retention::Short => {
                        Meaning::Gone(Vec::new())
                    }
                }
            } else if self.all_are_back() {
                Meaning::Replaced(name, value)
            } else {
                Meaning::Gone(Vec::new())
            };
            self.oracle.waits.insert(wait, meaning);
        }
    }

    pub(super) fn fetch(&mut self, session: usize, name: Name, keep: bool) {
        let key = key(name.key);
        let (keys, namespace, prefix) = (Keys::one(&key), namespace(name), false);
        let (session_id, hold) = (SESSIONS[session], Hold::Lease);
        self.rig.apply(Input::Fetch { session: session_id, namespace, keys, prefix, hold });
        let found = self.rig.effects.found[0];
        self.judge_fetch(session, name, found, keep);
    }

    fn release(&mut self, pick: usize) {
        if self.kept.is_empty() {
            return;
        }
        let (session, lease, at, bytes) = self.kept.swap_remove(pick % self.kept.len());
        assert_eq!(self.rig.arena[at..at + bytes.len()], bytes, "leased bytes changed");
        self.rig.release(session, lease);
    }

    fn locate(&mut self, name: Name, family: bool) {
        let located = self.rig.locate(namespace(name), &key(name.key), family);
        self.judge_locate(name, located);
    }

    fn clear(&mut self, scope: u8) {
        let (scope, covers): (_, fn(Name) -> bool) = match scope {
            0 => (ClearScope::Everything, |_| true),
            1 => (ClearScope::Model("m"), |_| true),
            2 => (ClearScope::Namespace(NAMESPACE), |name| name.namespace == 0),
            _ => (ClearScope::Namespace(OTHER), |name| name.namespace == 1),
        };
        let meaning = self.oracle.cleared(covers);
        if let Some(wait) = self.rig.clear(scope) {
            self.oracle.waits.insert(wait, meaning);
        }
    }

    fn finish(&mut self, pick: usize, trouble: Trouble) {
        if self.rig.pending.is_empty() {
            return;
        }
        let at = pick % self.rig.pending.len();
        let is_load = matches!(self.rig.pending[at].1, DiskWork::Load { .. });
        let is_record =
            matches!(self.rig.pending[at].1, DiskWork::Journal { .. } | DiskWork::Snapshot { .. });
        let ends_device = is_record && matches!(trouble, Trouble::Io | Trouble::TimedOut);
        if trouble != Trouble::None && (is_load || ends_device) {
            self.oracle.forgive();
        }
        self.rig.finish(at, trouble);
    }

    /// Devices do all that there is to do, and whoever waits comes back until all is there.
    pub(super) fn settle(&mut self) {
        for _ in 0..64 {
            self.rig.woken.clear();
            self.rig.run();
            self.hear_verdicts();
            self.come_back();
            if self.oracle.loading.iter().all(std::collections::BTreeSet::is_empty) {
                return;
            }
        }
        panic!("{:?} are never there", self.oracle.loading);
    }

    fn come_back(&mut self) {
        for (session, id) in SESSIONS.into_iter().enumerate() {
            let names = core::mem::take(&mut self.oracle.loading[session]);
            for name in names {
                let key = key(name.key);
                let keys = Keys::one(&key);
                let (namespace, hold, prefix) = (namespace(name), Hold::Lease, false);
                self.rig.apply(Input::Fetch { session: id, namespace, keys, prefix, hold });
                let found = self.rig.effects.found[0];
                self.judge_fetch(session, name, found, false);
            }
        }
    }

    fn fail(&mut self, device: u8) {
        if device < self.setting.devices {
            let device = DeviceId(device);
            self.rig.apply(Input::DeviceFailed { device, fault: DeviceFault::Unusable });
            self.oracle.forgive();
        }
    }

    fn bring_back(&mut self, device: u8) {
        if !core::mem::replace(&mut self.back[usize::from(device)], true) {
            self.rig.bring_back(device, self.setting.space_kib());
        }
    }

    /// The daemon leaves a note on a device that fails and begins it anew at the next start, because
    /// what was replaced meanwhile could not be noted on it.
    fn begin_failed_anew(&mut self) {
        for info in self.rig.store.devices() {
            if matches!(info.health, kvd_store::DeviceHealth::Failed(_)) {
                let bytes = index(self.setting.space_kib() * KIB);
                self.rig.platters[usize::from(info.device.0)] = Platter::new(bytes);
            }
        }
    }

    fn restart(&mut self, survivors: &[bool]) {
        let mut survives = survivors.iter().copied().cycle();
        let mut survives = || survives.next().unwrap_or(true);
        for (device, work) in core::mem::take(&mut self.rig.pending) {
            if survives() {
                let platter = &mut self.rig.platters[usize::from(device)];
                platter.perform(&work, &mut self.rig.arena, Trouble::None);
            }
        }
        for platter in &mut self.rig.platters {
            platter.crash(&mut survives);
        }
        self.begin_failed_anew();
        let config = self.setting.config();
        let empty = Rig::without_devices(config, 0);
        let rig = core::mem::replace(&mut self.rig, empty);
        self.rig = rig.restarted(config);
        self.back.fill(false);
        self.kept.clear();
        self.oracle.crashed(survivors.contains(&false));
    }

    fn hear_verdicts(&mut self) {
        for wait in core::mem::take(&mut self.rig.decided) {
            match self.rig.verdict(wait) {
                Verdict::Met => self.oracle.met(wait),
                Verdict::Failed => drop(self.oracle.waits.remove(&wait)),
                Verdict::Pending => panic!("{wait:?} was said to be decided"),
            }
        }
    }

    /// The payload of a value, where it was put.
    pub(super) fn bytes_at(&self, offset: u64, len: u32) -> Vec<u8> {
        let at = index(offset);
        self.rig.arena[at..at + len as usize].to_vec()
    }
}
