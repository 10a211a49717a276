//! Views of workers that went, and may come back: a lease that ran out is not yet a life that ended.

use std::collections::BTreeMap;

use super::Moment;
use crate::record::WorkerRecord;

/// How long a view waits for its worker.
const PARKED_MS: u64 = 60_000;
/// Most workers that are waited for.
const PARKED_MAX: usize = 4096;

/// What belongs to workers that are gone: their views, their sockets.
#[derive(Debug)]
pub struct Parking<T> {
    parked: BTreeMap<String, Parked<T>>,
}

#[derive(Debug)]
struct Parked<T> {
    record: WorkerRecord,
    until: Moment,
    belongings: T,
}

impl<T> Default for Parking<T> {
    fn default() -> Self {
        Self { parked: BTreeMap::new() }
    }
}

impl<T> Parking<T> {
    /// A worker went. Returns what is to be dropped at once: what it left before, or everything if the place is full.
    pub fn park(&mut self, record: WorkerRecord, belongings: T, now: Moment) -> Option<T> {
        if self.parked.len() >= PARKED_MAX && !self.parked.contains_key(&record.worker_id) {
            return Some(belongings);
        }
        let parked = Parked { until: now.after(PARKED_MS), record, belongings };
        let before = self.parked.insert(parked.record.worker_id.clone(), parked);
        before.map(|before| before.belongings)
    }

    /// A worker came. What it left if it is the same life, or what is to be dropped because it is another one.
    pub fn take(&mut self, record: &WorkerRecord) -> Option<Result<T, T>> {
        let parked = self.parked.remove(&record.worker_id)?;
        let is_same = parked.record.is_same_life(record);
        Some(if is_same { Ok(parked.belongings) } else { Err(parked.belongings) })
    }

    /// What nobody came back for.
    pub fn expired(&mut self, now: Moment) -> Vec<T> {
        let gone: Vec<String> = self
            .parked
            .iter()
            .filter(|(_, parked)| parked.until <= now)
            .map(|(worker, _)| worker.clone())
            .collect();
        gone.iter()
            .filter_map(|worker| self.parked.remove(worker))
            .map(|it| it.belongings)
            .collect()
    }

    /// What is parked, to be kept up to date meanwhile.
    pub fn parked_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.parked.values_mut().map(|parked| &mut parked.belongings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(port: u16) -> WorkerRecord {
        let json = format!(
            r#"{{"worker_id": "h:1", "url": "http://h:1", "kv_events_endpoint": "tcp://h:{port}"}}"#
        );
        WorkerRecord::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn an_equal_record_gets_back_what_it_left_and_another_does_not() {
        let mut parking = Parking::default();
        assert_eq!(parking.park(record(1), "view", Moment(0)), None);
        assert_eq!(parking.take(&record(1)), Some(Ok("view")));
        assert_eq!(parking.take(&record(1)), None);
        assert_eq!(parking.park(record(1), "old", Moment(0)), None);
        assert_eq!(parking.take(&record(2)), Some(Err("old")));
    }

    #[test]
    fn nobody_is_waited_for_longer_than_a_minute() {
        let mut parking = Parking::default();
        parking.park(record(1), "view", Moment(1));
        assert_eq!(parking.expired(Moment(60_000)), [""; 0]);
        assert_eq!(parking.expired(Moment(60_001)), ["view"]);
        assert_eq!(parking.take(&record(1)), None);
    }
}
