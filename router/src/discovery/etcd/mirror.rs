//! What is known of etcd's keys: which revision it is true for, and what a listing or a change makes of it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After etcd has lost what it knew, workers that it does not name are believed for the life of a lease: they
/// register again.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// All keys at one revision.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) cluster: u64,
    pub(super) revision: i64,
    pub(super) rows: Vec<Row>,
}

/// A key that is there.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) key: Vec<u8>,
    pub(super) mod_revision: i64,
    pub(super) value: Vec<u8>,
}

/// What a watch tells at once.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) events: Vec<Event>,
    /// Up to which revision nothing has happened, if there are no events.
    pub(super) progress: Option<i64>,
}

/// A key that was written, or removed (without a value).
#[derive(Debug)]
pub(super) struct Event {
    pub(super) key: Vec<u8>,
    pub(super) mod_revision: i64,
    pub(super) value: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Known<R> {
    mod_revision: i64,
    /// `None` if it can't be read.
    record: Option<Arc<R>>,
}

/// What is known.
#[derive(Debug)]
pub(super) struct Mirror<R> {
    read: Read<R>,
    /// The etcd and the revision it is true for; `None` if it has to be listed.
    place: Option<(u64, i64)>,
    /// The same of the last listing or change, kept also if it has to be listed anew.
    last: Option<(u64, i64)>,
    /// Whether etcd was found to have had other rows then.
    is_other_past: bool,
    known: BTreeMap<Vec<u8>, Known<R>>,
    /// Records that etcd does not name, and until when they are believed.
    kept: BTreeMap<Vec<u8>, (Arc<R>, Instant)>,
}

/// What could not be read, for the log.
type Bad = Vec<String>;

/// A record that the router can act on, or why it is none.
pub(super) type Read<R> = fn(&[u8]) -> Result<Arc<R>, String>;

impl<R: PartialEq> Mirror<R> {
    /// One that knows nothing.
    pub(super) fn new(read: Read<R>) -> Self {
        let (known, kept) = (BTreeMap::new(), BTreeMap::new());
        Self { read, place: None, last: None, is_other_past: false, known, kept }
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// The revision that this is true for.
    pub(super) fn revision(&self) -> i64 {
        self.place.map_or(0, |(_, revision)| revision)
    }

    /// Whether one may be able to go on from here at this etcd: it is as far as we are. One that has lost everything keeps
    /// its id, and comes as far again; so it has to be asked what was there at our revision.
    pub(super) fn may_resume(&self, cluster: u64, revision: i64) -> bool {
        self.place.is_some_and(|place| place.0 == cluster && place.1 <= revision)
    }

    /// Whether these are the rows of our revision; else etcd has another past than the one that we know.
    pub(super) fn has_same_past(&mut self, then: &[Row]) -> bool {
        let is_same = then.len() == self.known.len() && then.iter().all(|row| self.knows(row));
        self.is_other_past |= !is_same;
        is_same
    }

    fn knows(&self, row: &Row) -> bool {
        let known = self.known.get(&row.key);
        known.is_some_and(|known| {
            known.mod_revision == row.mod_revision && known.record == (self.read)(&row.value).ok()
        })
    }

    /// One can't go on from here.
    pub(super) fn forget_place(&mut self) {
        self.place = None;
    }

    /// Takes a listing for what is true now.
    pub(super) fn load(&mut self, listing: Listing, now: Instant) -> Bad {
        let has_forgotten = self.last.is_some_and(|(cluster, revision)| {
            let is_strange = |row: &Row| row.mod_revision <= revision && !self.knows(row);
            cluster != listing.cluster
                || revision > listing.revision
                || self.is_other_past
                || listing.rows.iter().any(is_strange)
        });
        self.is_other_past = false;
        let before = std::mem::take(&mut self.known);
        if has_forgotten {
            let until = now + KEPT_FOR;
            let records = before.into_iter().filter_map(|(key, known)| Some((key, known.record?)));
            self.kept.extend(records.map(|(key, record)| (key, (record, until))));
        }
        let mut bad = Bad::new();
        for Row { key, mod_revision, value } in listing.rows {
            self.learn(key, mod_revision, &value, &mut bad);
        }
        self.go_to(listing.cluster, listing.revision);
        bad
    }

    /// Takes what a watch tells.
    pub(super) fn apply(&mut self, change: Change) -> Bad {
        let mut bad = Bad::new();
        let mut revision = change.progress.unwrap_or(0).max(self.revision());
        for Event { key, mod_revision, value } in change.events {
            revision = revision.max(mod_revision);
            match value {
                Some(value) => self.learn(key, mod_revision, &value, &mut bad),
                None => {
                    self.kept.remove(&key);
                    self.known.remove(&key);
                }
            }
        }
        if let Some((cluster, _)) = self.place {
            self.go_to(cluster, revision);
        }
        bad
    }

    fn go_to(&mut self, cluster: u64, revision: i64) {
        self.place = Some((cluster, revision));
        self.last = self.place;
    }

    fn learn(&mut self, key: Vec<u8>, mod_revision: i64, value: &[u8], bad: &mut Bad) {
        self.kept.remove(&key);
        let record = (self.read)(value);
        if let Err(reason) = &record {
            bad.push(format!("{}: {reason}", String::from_utf8_lossy(&key)));
        }
        self.known.insert(key, Known { mod_revision, record: record.ok() });
    }

    /// Whether these are the keys that are known, each as of its last change.
    pub(super) fn agrees(&self, keys: &[(Vec<u8>, i64)]) -> bool {
        keys.len() == self.known.len()
            && keys.iter().all(|(key, mod_revision)| {
                self.known.get(key).is_some_and(|known| known.mod_revision >= *mod_revision)
            })
    }

    /// The records that can be read.
    pub(super) fn records(&self) -> Vec<Arc<R>> {
        let kept = self.kept.values().map(|(record, _)| record);
        kept.chain(self.known.values().filter_map(|known| known.record.as_ref())).cloned().collect()
    }

    /// When the next record that is only kept is let go of.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.kept.values().map(|(_, until)| *until).min()
    }

    /// Lets go of what is kept no longer; whether there was any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let before = self.kept.len();
        self.kept.retain(|_, (_, until)| *until > now);
        self.kept.len() < before
    }
}

#[cfg(test)]
mod tests {
    use router_core::record::WorkerRecord;

    use super::super::worker;
    use super::*;

    fn value(id: &str) -> Vec<u8> {
        format!(r#"{{"worker_id":"{id}","url":"http://{id}"}}"#).into_bytes()
    }

    fn row(id: &str, mod_revision: i64) -> Row {
        Row { key: id.into(), mod_revision, value: value(id) }
    }

    fn listing(cluster: u64, revision: i64, ids: &[&str]) -> Listing {
        Listing { cluster, revision, rows: ids.iter().map(|id| row(id, 5)).collect() }
    }

    fn put(id: &str, mod_revision: i64) -> Event {
        Event { key: id.into(), mod_revision, value: Some(value(id)) }
    }

    fn gone(id: &str, mod_revision: i64) -> Event {
        Event { key: id.into(), mod_revision, value: None }
    }

    fn ids(mirror: &Mirror<WorkerRecord>) -> Vec<String> {
        let mut ids: Vec<String> =
            mirror.records().iter().map(|record| record.worker_id.clone()).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn changes_are_applied_in_order_and_move_the_place() {
        let mut mirror = Mirror::new(worker);
        assert!(!mirror.may_resume(1, 100));
        mirror.load(listing(1, 10, &["a", "b"]), Instant::now());
        mirror.apply(Change { events: vec![gone("a", 11), put("c", 12)], progress: None });
        assert_eq!((ids(&mirror), mirror.revision()), (vec!["b".into(), "c".into()], 12));
        mirror.apply(Change { events: vec![], progress: Some(20) });
        assert_eq!(mirror.revision(), 20);
        // What a new watch says first moves nothing.
        mirror.apply(Change::default());
        assert_eq!(mirror.revision(), 20);
        assert!(mirror.may_resume(1, 20) && mirror.may_resume(1, 21));
        assert!(!mirror.may_resume(1, 19) && !mirror.may_resume(2, 30));
        mirror.forget_place();
        assert!(!mirror.may_resume(1, 20));
    }

    #[test]
    fn a_listing_replaces_what_was_known() {
        let mut mirror = Mirror::new(worker);
        let now = Instant::now();
        mirror.load(listing(1, 10, &["a", "b"]), now);
        mirror.forget_place();
        mirror.load(listing(1, 30, &["b"]), now);
        assert_eq!((ids(&mirror), mirror.next_expiry()), (vec!["b".to_owned()], None));
    }

    #[test]
    fn after_etcd_forgot_workers_are_believed_for_a_while() {
        for (cluster, revision) in [(1, 3), (2, 50)] {
            let mut mirror = Mirror::new(worker);
            let now = Instant::now();
            mirror.load(listing(1, 10, &["a", "b", "c"]), now);
            mirror.forget_place();
            mirror.load(listing(cluster, revision, &["b"]), now);
            assert_eq!(ids(&mirror), ["a", "b", "c"]);
            // One comes back, one says goodbye, and neither is named twice.
            mirror.apply(Change {
                events: vec![put("a", 51), put("c", 52), gone("c", 53)],
                progress: None,
            });
            assert_eq!(ids(&mirror), ["a", "b"]);
            assert!(!mirror.expire(now + Duration::from_secs(29)));
            mirror.expire(now + Duration::from_secs(30));
            assert_eq!((ids(&mirror), mirror.next_expiry()), (vec!["a".into(), "b".into()], None));
        }
        let mut mirror = Mirror::new(worker);
        let now = Instant::now();
        mirror.load(listing(1, 10, &["a"]), now);
        mirror.load(listing(1, 3, &[]), now);
        assert_eq!(mirror.next_expiry(), Some(now + KEPT_FOR));
        assert!(mirror.expire(now + KEPT_FOR));
        assert_eq!(ids(&mirror), Vec::<String>::new());
    }

    #[test]
    fn an_etcd_with_another_past_has_forgotten_however_far_it_is() {
        let now = Instant::now();
        let mirror = || {
            let mut mirror = Mirror::new(worker);
            mirror.load(listing(1, 10, &["a", "b"]), now);
            mirror
        };
        assert!(mirror().has_same_past(&listing(1, 10, &["a", "b"]).rows));
        let moved = |id: &str| Row { value: value("elsewhere"), ..row(id, 5) };
        let others = [
            vec![row("a", 5)],
            vec![row("a", 5), row("b", 6)],
            vec![row("a", 5), row("c", 5)],
            vec![row("a", 5), moved("b")],
            vec![row("a", 5), row("b", 5), row("c", 5)],
        ];
        for other in others {
            let mut mirror = mirror();
            assert!(!mirror.has_same_past(&other));
            mirror.load(listing(1, 30, &[]), now);
            assert_eq!(ids(&mirror), ["a", "b"], "believed for a while: {other:?}");
        }
        // Where its past is compacted, rows that we should know and do not know tell.
        for (rows, wanted) in [
            (vec![row("b", 5)], vec!["b"]),
            (vec![row("b", 11)], vec!["b"]),
            (vec![row("b", 7)], vec!["a", "b"]),
        ] {
            let mut mirror = mirror();
            mirror.load(Listing { cluster: 1, revision: 30, rows }, now);
            assert_eq!(ids(&mirror), wanted);
        }
    }

    #[test]
    fn a_dead_watch_is_told_by_the_keys() {
        let mut mirror = Mirror::new(worker);
        mirror.load(listing(1, 10, &["a", "b"]), Instant::now());
        let key = |id: &str, revision| (id.as_bytes().to_vec(), revision);
        assert!(mirror.agrees(&[key("a", 5), key("b", 5)]));
        assert!(!mirror.agrees(&[key("a", 5)]));
        assert!(!mirror.agrees(&[key("a", 5), key("c", 5)]));
        assert!(!mirror.agrees(&[key("a", 5), key("b", 11)]));
        mirror.apply(Change { events: vec![put("b", 12)], progress: None });
        assert!(mirror.agrees(&[key("a", 5), key("b", 11)]), "further than the question");
    }

    #[test]
    fn what_cannot_be_read_is_named_and_costs_nothing_else() {
        let mut mirror = Mirror::new(worker);
        mirror.load(listing(1, 10, &["a"]), Instant::now());
        for unusable in [
            "{}",
            r#"{"worker_id":"x","url":"ftp://x"}"#,
            r#"{"worker_id":"x","url":"http://x","dp_size":4000000000}"#,
        ] {
            let value = Some(unusable.into());
            let event = Event { key: b"x".to_vec(), mod_revision: 11, value };
            let bad = mirror.apply(Change { events: vec![event], progress: None });
            assert_eq!((bad.len(), ids(&mirror)), (1, vec!["a".to_owned()]));
            assert!(bad[0].starts_with("x: "), "{bad:?}");
        }
        assert!(mirror.agrees(&[(b"a".to_vec(), 5), (b"x".to_vec(), 11)]));
    }
}
