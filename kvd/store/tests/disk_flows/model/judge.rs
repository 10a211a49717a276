//! Whether an answer may be what it is.

use std::collections::BTreeSet;

use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_store::{DiskWork, Found, Held, Located, Timestamp};

use super::oracle::{Now, Value};
use super::run::{Life, SESSIONS, key, namespace};
use super::step::Name;
use crate::platter::index;
use crate::rig::value;

impl Life {
    pub(super) fn judge_fetch(&mut self, session: usize, name: Name, found: Found, keep: bool) {
        match found {
            Found::Loading => {
                self.oracle.loading[session].insert(name);
                self.may_be_there(name);
            }
            Found::Hit(hit) => {
                let bytes = self.bytes_at(hit.payload_offset, hit.len_bytes);
                self.judge_bytes(name, &bytes, hit.retention);
                let Held::Lease(lease) = hit.held else { panic!("a lease was asked for") };
                self.oracle.loading[session].remove(&name);
                if keep && self.kept.len() < 2 {
                    let at = index(hit.payload_offset);
                    self.kept.push((SESSIONS[session], lease, at, bytes));
                } else {
                    self.rig.release(SESSIONS[session], lease);
                }
            }
            Found::Miss(reason) => {
                self.oracle.loading[session].remove(&name);
                self.judge_miss(name, reason);
            }
        }
    }

    /// Values that the name may have now.
    fn candidates(&mut self, name: Name) -> Vec<Value> {
        let now = self.rig.now;
        let all = match &self.oracle.known(name).now {
            Now::Nothing => Vec::new(),
            Now::This(value) => vec![*value],
            Now::AnyOf(values) => values.clone(),
        };
        all.into_iter().filter(|value| !value.is_expired(now)).collect()
    }

    fn may_be_there(&mut self, name: Name) {
        let candidates = self.candidates(name);
        assert!(!candidates.is_empty(), "{name:?} cannot be anywhere");
    }

    fn judge_bytes(&mut self, name: Name, bytes: &[u8], class: Retention) {
        let candidates = self.candidates(name);
        let same = candidates.iter().find(|candidate| {
            value(candidate.number, candidate.len) == bytes && candidate.class == class
        });
        let Some(&same) = same else {
            panic!("{name:?} shows what it must not; it may be {candidates:?}");
        };
        // Several empty values look alike.
        if !bytes.is_empty() || candidates.len() == 1 {
            self.oracle.known(name).now = Now::This(same);
        }
    }

    fn judge_miss(&mut self, name: Name, reason: MissReason) {
        // No room in the arena, or a read that took too long.
        if matches!(reason, MissReason::Shed | MissReason::Deadline) {
            return;
        }
        let now = self.rig.now;
        let crashes = self.oracle.crashes;
        let known = self.oracle.known(name);
        if reason == MissReason::Corrupt && crashes > 0 {
            // The journal may have survived what it speaks of.
            known.promised_until = None;
        }
        let is_over = matches!(&known.now, Now::This(value) if value.is_expired(now));
        let is_promised = known.promised_until.is_some_and(|until| now <= until);
        assert!(!is_promised || is_over, "{name:?} was promised, but: {reason}");
        if let Some(value) = known.assured
            && self.setting.roomy
            && self.all_are_back()
        {
            assert!(value.is_expired(now), "{name:?} was durable, but: {reason}");
        }
    }

    pub(super) fn all_are_back(&self) -> bool {
        let devices = self.rig.store.devices();
        devices.iter().all(|info| info.health == kvd_store::DeviceHealth::Ready)
    }

    pub(super) fn judge_locate(&mut self, name: Name, located: Located) {
        let until = self.rig.now + 1_000;
        match located {
            Located::Present { len_bytes, retention, .. } => {
                let candidates = self.candidates(name);
                let fits = candidates
                    .iter()
                    .any(|value| value.len == u64::from(len_bytes) && value.class == retention);
                assert!(fits, "{name:?} is not any of {candidates:?}");
                self.oracle.known(name).promised_until = Some(until);
            }
            Located::Miss(reason) => self.judge_miss(name, reason),
        }
    }

    /// Rules about work that is under way.
    pub(super) fn check_work(&mut self) {
        let mut offsets = BTreeSet::new();
        for (device, work) in &self.rig.pending {
            match work {
                DiskWork::Load { offset, .. } => {
                    assert!(offsets.insert((*device, *offset)), "read twice at once");
                }
                DiskWork::Spill { arena_offset, len_bytes, .. } => {
                    let bytes = self.bytes_at(*arena_offset, *len_bytes);
                    let classes = self.oracle.classes.iter();
                    let mut same =
                        classes.filter(|&(&number, _)| value(number, bytes.len() as u64) == bytes);
                    let goes_below = same.any(|(_, &class)| class >= Retention::Short);
                    assert!(goes_below, "a class that stays in the arena is written");
                }
                DiskWork::Journal { .. } | DiskWork::Snapshot { .. } => {}
            }
        }
        self.check_assured();
    }

    fn check_assured(&mut self) {
        if !self.setting.roomy || !self.all_are_back() {
            return;
        }
        let now = self.rig.now;
        for (&name, known) in &self.oracle.names {
            let Some(value) = known.assured.filter(|value| !value.is_expired(now)) else {
                continue;
            };
            let entry = self.rig.store.entry(namespace(name), &key(name.key), Timestamp(now));
            let len = entry.map(|entry| u64::from(entry.len_bytes));
            assert_eq!(len, Some(value.len), "{name:?} was durable and is gone");
        }
    }
}
