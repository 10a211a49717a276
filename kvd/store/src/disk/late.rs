//! Devices that come up while requests are served already.
//!
//! What their blocks do not know yet is kept until they are there: clears, and names that were
//! stored and have left the arena again (those that are still there say so by a mark). A device is
//! of use once it has been told. Where there are several, names that two of them hold are sought
//! then, because a crash may have kept an old value on one device and the new one on another;
//! until that is over nothing else makes a block leave.

use kvd_proto::block_key::Namespace;

use super::DeviceId;
use super::device::{Below, Device, State, bit};
use super::same::Same;
use crate::input::ClearScope;
use crate::rows::RowId;
use crate::store::Store;
use crate::tablespace::journal::Reason;
use crate::tablespace::{EntryId, Tablespace, WallTime};

/// Names that are remembered; one more clears the devices that come.
const NAMES_MAX: usize = 1 << 18;
/// Clears that are remembered; one more clears everything.
const CLEARS_MAX: usize = 64;
/// Steps of one turn: some ten microseconds.
const STEPS: usize = 128;

/// What the devices that come must be told, in no order: all of it happened after their time.
#[derive(Debug, Default)]
pub(crate) struct Late {
    names: Vec<Name>,
    clears: Vec<Scope>,
}

#[derive(Debug)]
struct Name {
    model: Box<str>,
    compat_key: Box<str>,
    key: Box<[u8]>,
    /// What need not go.
    same: Option<Same>,
}

#[derive(Debug, PartialEq, Eq)]
enum Scope {
    Everything,
    Model(Box<str>),
    Namespace(Box<str>, Box<str>),
}

/// How far a device has been told.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    names: usize,
    clears: usize,
    /// Of the clear that is being done: below which generation, and where it goes on.
    clearing: Option<(u64, u32)>,
}

impl Late {
    fn clear(&mut self, scope: Scope) {
        if self.clears.contains(&Scope::Everything) {
            return;
        }
        let scope = if self.clears.len() < CLEARS_MAX { scope } else { Scope::Everything };
        self.clears.push(scope);
    }

    fn note(&mut self, namespace: Namespace<'_>, key: &[u8], same: Option<Same>) {
        if self.names.len() < NAMES_MAX {
            let (model, compat_key) = (namespace.model.into(), namespace.compat_key.into());
            self.names.push(Name { model, compat_key, key: key.into(), same });
        } else {
            self.clear(Scope::Everything);
        }
    }

    /// Tells a device some of what it does not know; whether it knows all now.
    fn tell(&self, arrival: &mut Arrival, tablespace: &mut Tablespace) -> bool {
        for _ in 0..STEPS {
            let Some(name) = self.names.get(arrival.names) else {
                break;
            };
            arrival.names += 1;
            let namespace = Namespace { model: &name.model, compat_key: &name.compat_key };
            let found = tablespace.find(namespace, &name.key, WallTime(0));
            let is_same = |entry| name.same.is_some_and(|same| same.is(tablespace.entry(entry)));
            if let Some(entry) = found.filter(|&entry| !is_same(entry)) {
                tablespace.remove(entry, Reason::Superseded);
            }
        }
        if let Some(scope) = self.clears.get(arrival.clears) {
            let below = tablespace.generation() + 1;
            let (below, from) = *arrival.clearing.get_or_insert_with(|| {
                tablespace.begin_clear(scope.borrow(), below);
                (below, 0)
            });
            let (_, next) = tablespace.clear_slice(scope.borrow(), below, from);
            arrival.clearing = next.map(|next| (below, next));
            arrival.clears += usize::from(next.is_none());
        }
        arrival.names == self.names.len() && arrival.clears == self.clears.len()
    }
}

impl Scope {
    fn new(scope: ClearScope<'_>) -> Self {
        match scope {
            ClearScope::Everything => Self::Everything,
            ClearScope::Model(model) => Self::Model(model.into()),
            ClearScope::Namespace(namespace) => {
                Self::Namespace(namespace.model.into(), namespace.compat_key.into())
            }
        }
    }

    fn borrow(&self) -> ClearScope<'_> {
        match self {
            Self::Everything => ClearScope::Everything,
            Self::Model(model) => ClearScope::Model(model),
            Self::Namespace(model, compat_key) => {
                ClearScope::Namespace(Namespace { model, compat_key })
            }
        }
    }
}

impl Store {
    /// See [`crate::Input::TablespaceReady`].
    pub(crate) fn tablespace_ready(&mut self, device: DeviceId, tablespace: Box<Tablespace>) {
        assert_eq!(tablespace.hash_seed(), self.config.hash_seed, "hashes would differ");
        self.disk.generation = self.disk.generation.max(tablespace.generation());
        let mut tablespace = tablespace;
        if self.config.events {
            tablespace.keep_events();
        }
        let at = &mut self.disk.devices[usize::from(device)];
        match at.state {
            State::Recovering => at.state = State::Arriving(tablespace, Arrival::default()),
            // It failed while it was being recovered.
            State::Failed(_) => self.disk.out.retired.push(*tablespace),
            State::Arriving(..) | State::Ready(_) => panic!("{device:?} is ready twice"),
        }
        self.arrive(device.0);
    }

    /// Goes on with what a device needs before it is like any other.
    pub(crate) fn arrive(&mut self, device: u8) {
        let at = &mut self.disk.devices[usize::from(device)];
        if let State::Arriving(tablespace, arrival) = &mut at.state {
            let knows_all = self.disk.late.tell(arrival, tablespace);
            self.disk.out.devices_to_wake |= bit(device);
            self.absorb(device);
            if knows_all {
                self.welcome(device);
            }
        }
        self.compare(device);
        self.reunite(device);
    }

    /// The device knows all: it is of use.
    fn welcome(&mut self, device: u8) {
        let is_one_of_many = self.disk.count() > 1;
        let at = &mut self.disk.devices[usize::from(device)];
        let State::Arriving(tablespace, _) = core::mem::take(&mut at.state) else {
            panic!("device {device} did not arrive");
        };
        at.state = State::Ready(tablespace);
        self.tell_welcome(device);
        let at = &mut self.disk.devices[usize::from(device)];
        at.comparing = is_one_of_many.then_some(0);
        at.reuniting = (self.disk.adopted_end > 0).then_some(0);
        for wait in core::mem::take(&mut at.waits) {
            self.wait_for_sync(device, wait);
        }
        self.forget_late_if_over();
    }

    /// Looks for names that another device holds, too.
    fn compare(&mut self, device: u8) {
        for _ in 0..STEPS {
            let at = &self.disk.devices[usize::from(device)];
            let (Some(from), Some(tablespace)) = (at.comparing, at.tablespace()) else {
                return;
            };
            let Some((entry, _)) = tablespace.entries_from(from).next() else {
                self.disk.devices[usize::from(device)].comparing = None;
                self.disk.out.devices_to_wake |= self.disk.ready_bits();
                return;
            };
            self.disk.devices[usize::from(device)].comparing = Some(entry.0 + 1);
            self.compare_entry(Below { device, entry });
        }
        self.disk.out.devices_to_wake |= bit(device);
    }

    fn compare_entry(&mut self, below: Below) {
        let Some(tablespace) = self.disk.devices[usize::from(below.device)].tablespace() else {
            return;
        };
        let (namespace, entry) =
            (tablespace.namespace_of(below.entry), tablespace.entry(below.entry));
        let others = (0..self.disk.count()).filter(|&other| other != below.device);
        let twins = others.filter_map(|other| self.disk.at(other, namespace, entry.key()));
        let twins: Vec<(u64, Below)> = twins.collect();
        let generation = entry.generation();
        for (other, twin) in twins {
            self.supersede(if other < generation { twin } else { below });
            if other > generation {
                return;
            }
        }
    }

    /// A clear also holds for devices that are still to come; `wait` ends when it is durable there.
    pub(crate) fn clear_late(&mut self, scope: ClearScope<'_>) {
        if self.disk.is_anyone_coming() {
            self.disk.late.clear(Scope::new(scope));
        }
    }

    /// A row leaves under whose name a device that is still to come may hold an older value.
    /// `own` and what is the same as the row's value may stay.
    pub(crate) fn leave_older(&mut self, id: RowId, own: Option<Below>, same: Option<Same>) {
        self.remove_older(id, own, same);
        if self.disk.is_anyone_coming() {
            self.note_late(id, same);
        }
    }

    /// Devices that are still to come are to forget what they hold under the name
    /// of a row, unless it is the same.
    pub(crate) fn note_late(&mut self, id: RowId, same: Option<Same>) {
        let row = &self.rows[id];
        let entry = self.namespaces.at(row.namespace);
        let namespace = Namespace { model: &entry.model, compat_key: &entry.compat_key };
        self.disk.late.note(namespace, row.key.as_bytes(), same);
    }

    /// Removes what devices hold under the name of a row beside its own block.
    pub(crate) fn remove_older(&mut self, id: RowId, own: Option<Below>, same: Option<Same>) {
        for device in 0..self.disk.count() {
            let row = &self.rows[id];
            let entry = self.namespaces.at(row.namespace);
            let namespace = Namespace { model: &entry.model, compat_key: &entry.compat_key };
            let older = self.disk.at(device, namespace, row.key.as_bytes());
            let stays = |below: Below| {
                Some(below) == own || same.is_some_and(|same| self.is_same(below, same))
            };
            if let Some((_, older)) = older.filter(|&(_, below)| !stays(below)) {
                self.disk.totals.superseded_total += 1;
                self.remove_below(older, Reason::Superseded);
            }
        }
        let is_over = !self.disk.is_anyone_coming();
        if is_over {
            self.rows[id].marks.set_may_have_older(false);
        }
    }

    /// Nobody is left who must be told.
    pub(crate) fn forget_late_if_over(&mut self) {
        if !self.disk.is_anyone_coming() {
            self.disk.late = Late::default();
        }
    }
}

impl super::Tier {
    /// Whether a device is still to come.
    pub(crate) fn is_anyone_coming(&self) -> bool {
        self.devices.iter().any(Device::is_coming)
    }

    /// Whether devices are being compared with each other or with the arena.
    pub(crate) fn is_settling(&self) -> bool {
        self.devices.iter().any(Device::is_settling)
    }

    /// Whether it is still being found out which names two devices have.
    pub(crate) fn is_comparing(&self) -> bool {
        self.devices.iter().any(|device| device.comparing.is_some())
    }

    /// What a device holds under a name, its time over or not, and its generation.
    pub(crate) fn at(
        &self,
        device: u8,
        namespace: Namespace<'_>,
        key: &[u8],
    ) -> Option<(u64, Below)> {
        let tablespace = self.devices[usize::from(device)].tablespace()?;
        let entry: EntryId = tablespace.find(namespace, key, WallTime(0))?;
        Some((tablespace.entry(entry).generation(), Below { device, entry }))
    }
}
