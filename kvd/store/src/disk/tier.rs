//! Everything the store keeps about the tier below the arena.

use std::collections::{BTreeMap, VecDeque};

use kvd_proto::ids::SessionId;

use super::admission::{Budget, Ghosts};
use super::choice::{Ahead, Drain};
use super::device::{Device, bit};
use super::dirty::Dirty;
use super::faults::Rests;
use super::late::Late;
use super::loads::{Landings, Loads};
use super::spills::Spill;
use super::waits::Waits;
use super::work::SpillId;
use super::{DEVICES_MAX, DiskConfig, DiskTotals};
use crate::effects::{Effects, HeaderWrite};
use crate::tablespace::{Gone, Tablespace};

#[derive(Debug)]
pub(crate) struct Tier {
    pub(crate) devices: Vec<Device>,
    pub(crate) loads: Loads,
    pub(crate) landings: Landings,
    /// Sessions that could not begin a load, each once.
    pub(crate) starved: VecDeque<SessionId>,
    pub(crate) rests: Rests,
    /// Row up to which rows were looked at whose device failed; none: all were.
    pub(crate) bereaved: Option<u32>,
    /// Rows before this one may have been adopted, and devices may have had them before.
    pub(crate) adopted_end: u32,
    /// Hints of all devices.
    pub(crate) hints: usize,
    pub(crate) spills: BTreeMap<SpillId, Spill>,
    pub(crate) latest_spill: u64,
    pub(crate) dirty: Dirty,
    pub(crate) ahead: Ahead,
    pub(crate) drain: Option<Drain>,
    pub(crate) budget: Budget,
    pub(crate) ghosts: Ghosts,
    pub(crate) waits: Waits,
    pub(crate) late: Late,
    /// The latest generation of a block, on any device.
    pub(crate) generation: u64,
    pub(crate) totals: DiskTotals,
    pub(crate) out: Out,
    pub(crate) scratch: Vec<Gone>,
}

/// What the input that is being applied asks for beside its answer.
#[derive(Debug, Default)]
pub(crate) struct Out {
    pub(crate) headers: Vec<HeaderWrite>,
    woken: Vec<SessionId>,
    pub(crate) devices_to_wake: u64,
    /// What was known of devices that failed: a lot to drop.
    pub(crate) retired: Vec<Tablespace>,
}

impl Out {
    /// Whether nothing is left to tell.
    pub(crate) fn is_told(&self) -> bool {
        self.headers.is_empty() && self.woken.is_empty() && self.devices_to_wake == 0
    }

    /// Tells a session to fetch again.
    pub(crate) fn wake(&mut self, session: SessionId) {
        if !self.woken.contains(&session) {
            self.woken.push(session);
        }
    }
}

impl Tier {
    pub(crate) fn new(config: &DiskConfig) -> Self {
        assert!(config.devices <= DEVICES_MAX, "{} devices", config.devices);
        Self {
            devices: (0..config.devices).map(|_| Device::default()).collect(),
            loads: Loads::default(),
            landings: Landings::default(),
            starved: VecDeque::new(),
            rests: Rests::default(),
            bereaved: None,
            adopted_end: 0,
            hints: 0,
            spills: BTreeMap::new(),
            latest_spill: 0,
            dirty: Dirty::default(),
            ahead: Ahead::default(),
            drain: None,
            budget: Budget::new(config.write_budget_bytes_per_s),
            ghosts: Ghosts::new(config.second_touch && config.devices > 0),
            waits: Waits::default(),
            late: Late::default(),
            generation: 0,
            totals: DiskTotals::default(),
            out: Out::default(),
            scratch: Vec::new(),
        }
    }

    /// Whether there is such a tier at all.
    pub(crate) const fn exists(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Number of devices, of use or not.
    #[expect(clippy::cast_possible_truncation, reason = "at most DEVICES_MAX")]
    pub(crate) const fn count(&self) -> u8 {
        self.devices.len() as u8
    }

    /// Whether any device is of use or may become so.
    pub(crate) fn has_future(&self) -> bool {
        self.devices.iter().any(|device| !device.is_failed())
    }

    /// The devices of use, as bits.
    pub(crate) fn ready_bits(&self) -> u64 {
        let ready = (0..self.count())
            .filter(|&device| self.devices[usize::from(device)].tablespace().is_some());
        ready.fold(0, |bits, device| bits | bit(device))
    }

    /// Moves what was asked for to where the caller looks.
    pub(crate) fn tell(&mut self, effects: &mut Effects) {
        if !self.exists() {
            return;
        }
        effects.headers.append(&mut self.out.headers);
        effects.woken.append(&mut self.out.woken);
        effects.decided.append(&mut self.waits.decided);
        effects.retired.append(&mut self.out.retired);
        effects.devices_to_wake |= core::mem::take(&mut self.out.devices_to_wake);
    }
}
