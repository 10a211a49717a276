//! Both tiers, checked against each other.

use std::collections::BTreeMap;

use super::device::Below;
use super::loads::Step;
use super::marks::Copied;
use super::waiters::Waiting;
use crate::rows::RowId;
use crate::space::{ExtentId, State};
use crate::store::Store;

impl Store {
    /// Pins and tickets on extents of the arena that are not rights of sessions.
    pub(crate) fn holds_of_disk(&self) -> (BTreeMap<ExtentId, u32>, BTreeMap<ExtentId, u32>) {
        let (mut pins, mut tickets) = (BTreeMap::new(), BTreeMap::new());
        for spill in self.disk.spills.values() {
            *pins.entry(spill.extent).or_insert(0) += 1;
        }
        for &row in self.disk.landings.rows.keys() {
            *pins.entry(self.rows[row].host_extent()).or_insert(0) += 1;
        }
        for (_, load) in self.disk.loads.iter() {
            *tickets.entry(load.extent).or_insert(0) += 1;
        }
        (pins, tickets)
    }

    pub(crate) fn assert_disk(&self) {
        self.assert_copies();
        self.assert_devices();
        self.assert_loads();
        self.assert_waits();
        self.disk.dirty.assert_consistent();
        assert!(self.disk.out.is_told(), "something was asked for, but not told");
    }

    /// Rows and entries name each other, and figures count the rows that have none.
    fn assert_copies(&self) {
        let (mut dirty_rows, mut dirty_bytes, mut spilling) = (0, 0, 0);
        for (id, row) in self.rows.iter() {
            let copied = row.marks.copied();
            match copied {
                Copied::Never => {}
                Copied::Displaced => assert_eq!(row.entry, crate::tablespace::EntryId::NONE),
                Copied::Dirty { .. } | Copied::Spilling => {
                    assert!(row.class >= kvd_proto::retention::Retention::Short);
                    dirty_rows += 1;
                    dirty_bytes += u64::from(row.len_bytes);
                    spilling += usize::from(copied == Copied::Spilling);
                }
                Copied::Clean => self.assert_clean(id),
            }
            let is_coming = self.disk.is_anyone_coming();
            assert!(!row.marks.may_have_older() || is_coming || self.disk.exists());
            assert_eq!(row.marks.landed(), self.disk.landings.rows.contains_key(&id));
        }
        assert_eq!((self.disk.dirty.rows, self.disk.dirty.bytes), (dirty_rows, dirty_bytes));
        let written: Vec<RowId> = self.disk.spills.values().filter_map(|spill| spill.row).collect();
        assert_eq!(written.len(), spilling);
        for row in written {
            assert_eq!(self.rows[row].marks.copied(), Copied::Spilling, "{row:?}");
        }
    }

    fn assert_clean(&self, id: RowId) {
        let row = &self.rows[id];
        let device = &self.disk.devices[usize::from(row.device)];
        let Some(tablespace) = device.tablespace() else {
            assert!(device.is_failed(), "{id:?} is on a device that is not there yet");
            return;
        };
        let entry = tablespace.entry(row.entry);
        assert_eq!(entry.host(), id, "{id:?} and its block disagree");
        assert_eq!((entry.key(), entry.len_bytes()), (row.key.as_bytes(), row.len_bytes));
        let (namespace, above) =
            (tablespace.namespace_of(row.entry), self.namespaces.at(row.namespace));
        assert_eq!((namespace.model, namespace.compat_key), (&*above.model, &*above.compat_key));
    }

    fn assert_devices(&self) {
        let mut hints = 0;
        for (device, at) in (0..).zip(&self.disk.devices) {
            hints += at.hints.len();
            let loads = self.disk.loads.iter().filter(|(_, load)| load.below.device == device);
            let (mut count, mut bytes, mut in_flight) = (0, 0, 0);
            for (id, load) in loads {
                count += 1;
                bytes += u64::from(load.len_bytes);
                in_flight += u32::from(load.step != Step::Waiting);
                let is_listed = at.demanded.contains(&id) || at.promised.contains(&id);
                assert!(load.step != Step::Waiting || is_listed, "{id:?} waits in vain");
            }
            assert_eq!((at.loads, at.load_bytes), (count, bytes));
            assert_eq!(at.reads.in_flight(), in_flight);
            let spills = self.disk.spills.values().filter(|spill| spill.device == device);
            assert_eq!(at.writes.in_flight() as usize, spills.count());
            let Some(tablespace) = at.tablespace() else {
                continue;
            };
            tablespace.assert_consistent();
            assert!(tablespace.generation() <= self.disk.generation);
            for (entry, known) in tablespace.entries_from(0) {
                if known.host() != RowId::NONE {
                    let row = &self.rows[known.host()];
                    assert_eq!((row.device, row.entry), (device, entry), "{entry:?} is disowned");
                    assert_eq!(row.marks.copied(), Copied::Clean);
                }
            }
        }
        assert_eq!(self.disk.hints, hints);
        assert!(hints <= self.config.disk.hints_max as usize);
    }

    fn assert_loads(&self) {
        let (mut payload_bytes, mut extent_bytes) = (0, 0);
        for (id, load) in self.disk.loads.iter() {
            payload_bytes += u64::from(load.len_bytes);
            extent_bytes += self.space[load.extent].bytes();
            assert_eq!(self.space[load.extent].state(), State::Ticketed);
            let Below { device, entry } = load.below;
            if load.step == Step::Void {
                assert!(load.waiters.is_empty(), "{id:?} is void, but waited for");
                continue;
            }
            assert_eq!(self.disk.loads.of(load.below), Some(id));
            let Some(tablespace) = self.disk.devices[usize::from(device)].tablespace() else {
                panic!("{id:?} reads from a device that is not of use");
            };
            assert_eq!(tablespace.entry(entry).host(), RowId::NONE, "{id:?} reads what is there");
        }
        let loads = &self.disk.loads;
        assert_eq!((loads.payload_bytes, loads.extent_bytes), (payload_bytes, extent_bytes));
        assert!(self.host_bytes + payload_bytes <= self.config.budget_bytes);
        assert!(self.rows.len() as usize + loads.len() <= self.config.rows_max as usize);
        let landings = &self.disk.landings;
        let bytes =
            landings.rows.keys().map(|&row| self.space[self.rows[row].host_extent()].bytes());
        assert_eq!(landings.bytes, bytes.sum::<u64>());
    }

    /// What sessions wait for is what waits for them.
    fn assert_waits(&self) {
        let mut all: BTreeMap<_, Waiting> = BTreeMap::new();
        for (_, load) in self.disk.loads.iter() {
            for &session in &load.waiters {
                all.entry(session).or_default().loads += 1;
            }
        }
        for landing in self.disk.landings.rows.values() {
            assert!(!landing.waiters.is_empty(), "a row is kept for nobody");
            for &session in &landing.waiters {
                all.entry(session).or_default().landed += 1;
            }
        }
        for &session in &self.disk.starved {
            let waiting = all.entry(session).or_default();
            assert!(!waiting.starved, "{session} starves twice");
            waiting.starved = true;
        }
        for (_, session) in self.sessions.iter() {
            let mut expected = all.remove(&session.id).unwrap_or_default();
            expected.ended = session.waiting.ended;
            assert_eq!(session.waiting, expected, "{}", session.id);
        }
        assert!(all.is_empty(), "{all:?} wait, but are not known");
        for row in self.disk.waits.rows() {
            let copied = self.rows.get(row).map(|row| row.marks.copied());
            let is_open = matches!(copied, Some(Copied::Dirty { .. } | Copied::Spilling));
            assert!(is_open, "{row:?} is waited for in vain");
        }
    }
}
