//! Every moment of a workload is the daemon's last one.

use std::collections::BTreeSet;

use kvd_proto::ids::SessionId;
use kvd_proto::retention::Retention;
use kvd_store::{Effects, Input, Outcome, Peer, Store, Timestamp, Writer};

use crate::image;
use crate::life::{Holder, Life, Rows, adopt, granules};

/// What the ledger may say in the middle of an input: what was true before it and after it.
struct Truth<'a> {
    life: &'a Life,
    before: &'a Rows,
    /// Who has a right before and after.
    holders: Vec<&'a Holder>,
}

impl<'a> Truth<'a> {
    fn of(life: &'a Life) -> Self {
        let before = &life.before;
        let is_same = |one: &Holder, other: &Holder| {
            // A right with a name keeps it when it becomes another session's.
            let is_same = one.name.is_some() || one.session == other.session;
            is_same && (one.name, one.offset) == (other.name, other.offset)
        };
        let was_there = |holder: &&Holder| before.holders.iter().any(|at| is_same(at, holder));
        let holders = life.holders.iter().filter(was_there).collect();
        Self { life, before: &before.rows, holders }
    }

    /// Judges a store that was adopted; `whole` if the input was over.
    fn judge(&self, store: &Store, whole: bool) {
        store.assert_consistent();
        let (after, now) = (&self.life.rows, Timestamp(self.life.now));
        // The ledger's words are stored before the headers: in between, these are as they were.
        let (rows, earlier) = (self.life.rows_in(store), self.life.rows_in_before(store));
        for (name, row) in &rows {
            let was_there = self.before.get(name).is_some_and(|at| earlier.get(name) == Some(at));
            let known = after.get(name) == Some(row) || was_there;
            assert!(known, "{row:?} is invented");
            let (info, serial, _) = row;
            for granule in granules(info.payload_offset, info.len_bytes.into()) {
                assert_eq!(self.life.arena[granule], *serial, "wrong bytes in {info:?}");
            }
        }
        for (name, row) in after {
            let is_over = row.0.expires_at.is_some_and(|at| at <= now);
            if (whole || self.before.get(name) == Some(row)) && !is_over {
                assert_eq!(rows.get(name), Some(row), "a row is forgotten");
            }
        }
        if whole {
            assert!(rows.keys().all(|name| after.contains_key(name)), "a row came back");
        }
    }

    /// Nothing that somebody holds is given away, whatever is asked for.
    fn judge_rights(&self, store: &mut Store) {
        let mut effects = Effects::default();
        let (session, now) = (SessionId(1 << 30), Timestamp(self.life.now));
        let open = Input::Open { session, peer: Peer::Watched, process: None };
        store.apply(open, now, &mut effects);
        let mut taken = BTreeSet::new();
        for len_bytes in [66_000, 5_000, 200, 1] {
            loop {
                let (class, writer) = (Some(Retention::Long), Writer::Daemon);
                store.apply(
                    Input::Reserve { session, len_bytes, class, writer },
                    now,
                    &mut effects,
                );
                let Outcome::Reserved(Ok(granted)) = effects.outcome else { break };
                taken.extend(granules(granted.payload_offset - 16, granted.capacity_bytes + 16));
            }
        }
        for holder in &self.holders {
            let mut held = granules(holder.offset, holder.bytes);
            assert!(held.all(|granule| !taken.contains(&granule)), "{holder:?} is robbed");
        }
        for session in store.sessions().into_iter().filter(|at| at.session != session) {
            store.apply(Input::PeerGone { session: session.session }, now, &mut effects);
        }
        store.apply(Input::Close { session }, now, &mut effects);
        store.assert_consistent();
        let space = store.stats().space;
        assert_eq!(
            (space.ticketed_bytes, space.orphaned_bytes),
            (0, 0),
            "somebody has gone in vain"
        );
    }
}

fn judge_every_cut(life: &Life) {
    let truth = Truth::of(life);
    let mut image = life.before.image.clone();
    let mut effects = Effects::default();
    for (index, &word) in life.writes.iter().enumerate() {
        // A word is stored at once; should it ever not be, nothing is believed that is not true.
        let mut torn = image.clone();
        image::store(&mut torn, word, 1 + index % 7);
        if let Ok((store, _)) = adopt(&torn, life.now, &mut effects) {
            truth.judge(&store, false);
        }
        image::store(&mut image, word, 8);
        let whole = index + 1 == life.writes.len();
        let (mut store, _) = adopt(&image, life.now, &mut effects).unwrap();
        truth.judge(&store, whole);
        truth.judge_rights(&mut store);
    }
    assert_eq!(image, life.image);
}

/// The successor dies, too, at any moment of its adoption: the next one finds the same.
fn judge_cuts_of_adoption(life: &Life) {
    let mut effects = Effects::default();
    let (store, first) = adopt(&life.image, life.now, &mut effects).unwrap();
    let expected = life.rows_in(&store);
    let mut image = life.image.clone();
    let mut later = Effects::default();
    for word in image::words(&effects.ledger) {
        image::store(&mut image, word, 8);
        let (mut store, second) = adopt(&image, life.now, &mut later).unwrap();
        assert_eq!(life.rows_in(&store), expected);
        assert_eq!(second.rights, first.rights);
        Truth::of(life).judge_rights(&mut store);
    }
}

#[test]
fn a_daemon_may_die_between_any_two_words() {
    for seed in 0..2 {
        let mut life = Life::new(seed);
        life.judge = Some(judge_every_cut);
        (0..100).for_each(|_| life.step());
        judge_cuts_of_adoption(&life);
    }
}

#[test]
fn successors_go_on_in_the_same_ledger() {
    let mut passed = 0;
    for seed in 100..108 {
        let mut life = Life::new(seed);
        let mut most = 0;
        for step in 1..250 {
            // Not all of them, for the sake of time: each life another part.
            life.judge = (step % 8 == seed % 8).then_some(judge_every_cut as fn(&Life));
            life.step();
            if step % 23 == 0 {
                most = most.max(succeed(&mut life));
            }
        }
        assert!(most > 8, "hardly anything was there to be adopted");
        passed += life.passed;
    }
    assert!(passed > 20, "{passed} rights were another session's later");
}

/// Rows that came back: all of them.
fn succeed(life: &mut Life) -> u64 {
    let before = life.rows.clone();
    let adopted = life.succeed();
    assert_eq!(adopted.dropped.torn + adopted.dropped.conflicting, 0);
    let now = Timestamp(life.now);
    let lost = before.iter().filter(|(name, _)| !life.rows.contains_key(*name));
    for (_, (row, ..)) in lost {
        assert!(row.expires_at.is_some_and(|at| at <= now), "{row:?} is lost");
    }
    adopted.rows
}

/// A ledger on whose way some words get lost. If the judge lets that pass, its verdicts mean nothing.
fn is_found_out(loses: fn((usize, u64)) -> bool) -> bool {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found_out = std::panic::catch_unwind(|| {
        let mut life = Life::new(5);
        life.loses = loses;
        life.judge = Some(judge_every_cut);
        (0..100).for_each(|_| life.step());
    });
    std::panic::set_hook(quiet);
    found_out.is_err()
}

#[test]
fn negative_controls_are_noticed() {
    fn rights(offset: usize) -> bool {
        (8192..12_288).contains(&offset)
    }
    const { assert!(image::LAYOUT.sessions * 32 <= 4096 && image::LAYOUT.rights * 32 <= 4096) };
    assert!(is_found_out(|(offset, word)| !rights(offset) && word == 0), "a row that came back");
    assert!(is_found_out(|(offset, word)| rights(offset) && word == 0), "a right without an end");
    assert!(is_found_out(|(offset, _)| rights(offset)), "a right that is lost");
    assert!(is_found_out(|(offset, word)| offset >= 12_288 && word % 64 == 1), "damaged rows");
}
