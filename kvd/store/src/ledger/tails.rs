//! Which tails are whose: known to the daemon alone, never read back.

use super::record::NO_TAIL;

/// A chain per record that has tails, and one of all vacant ones.
#[derive(Debug)]
pub(super) struct Tails {
    /// The next one in its chain.
    next: Vec<u32>,
    vacant: u32,
    vacant_count: u32,
    bound: u32,
}

impl Tails {
    pub(super) const fn new(bound: u32) -> Self {
        Self { next: Vec::new(), vacant: NO_TAIL, vacant_count: 0, bound }
    }

    /// As after a restart: `next` has an entry for every tail that was ever used, and those of which
    /// `is_used` says no are vacant.
    pub(super) fn of(next: Vec<u32>, bound: u32, is_used: impl Fn(u32) -> bool) -> Self {
        let mut tails = Self { next, vacant: NO_TAIL, vacant_count: 0, bound };
        for tail in (0..tails.end()).rev().filter(|&tail| !is_used(tail)) {
            tails.next[tail as usize] = tails.vacant;
            tails.vacant = tail;
            tails.vacant_count += 1;
        }
        tails
    }

    /// A chain of so many; none if there are not enough.
    pub(super) fn take(&mut self, count: usize) -> Option<u32> {
        let room = self.vacant_count.saturating_add(self.bound - self.end());
        if u32::try_from(count).map_or(true, |count| count > room) {
            return None;
        }
        let mut first = NO_TAIL;
        for _ in 0..count {
            let tail = self.take_one();
            self.next[tail as usize] = first;
            first = tail;
        }
        Some(first)
    }

    pub(super) fn next(&self, tail: u32) -> u32 {
        self.next[tail as usize]
    }

    /// Gives a whole chain back.
    pub(super) fn give_back(&mut self, first: u32) {
        let mut tail = first;
        while tail != NO_TAIL {
            let next = core::mem::replace(&mut self.next[tail as usize], self.vacant);
            self.vacant = tail;
            self.vacant_count += 1;
            tail = next;
        }
    }

    fn take_one(&mut self) -> u32 {
        let tail = self.vacant;
        if tail == NO_TAIL {
            let tail = self.end();
            self.next.push(NO_TAIL);
            return tail;
        }
        self.vacant = self.next[tail as usize];
        self.vacant_count -= 1;
        tail
    }

    /// One more than the largest that was ever used.
    fn end(&self) -> u32 {
        u32::try_from(self.next.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{NO_TAIL, Tails};

    fn chain(tails: &Tails, first: u32) -> Vec<u32> {
        let real = |tail: u32| Some(tail).filter(|&tail| tail != NO_TAIL);
        core::iter::successors(real(first), |&tail| real(tails.next(tail))).collect()
    }

    #[test]
    fn chains_do_not_mix_and_the_bound_holds() {
        let mut tails = Tails::new(5);
        assert_eq!(tails.take(0), Some(NO_TAIL));
        let (three, two) = (tails.take(3).unwrap(), tails.take(2).unwrap());
        assert_eq!(tails.take(1), None);
        assert_eq!((chain(&tails, three), chain(&tails, two)), (vec![2, 1, 0], vec![4, 3]));
        tails.give_back(three);
        assert_eq!(tails.take(4), None);
        let again = tails.take(3).unwrap();
        let mut all = chain(&tails, again);
        all.sort_unstable();
        assert_eq!((all, chain(&tails, two)), (vec![0, 1, 2], vec![4, 3]));
    }

    #[test]
    fn what_no_record_claims_is_vacant() {
        let mut tails = Tails::of(vec![NO_TAIL, 0, NO_TAIL, 9], 5, |tail| tail < 2);
        assert_eq!(chain(&tails, 1), [1, 0]);
        assert_eq!(tails.take(4), None);
        assert_eq!(tails.take(3).map(|first| chain(&tails, first)), Some(vec![4, 3, 2]));
    }
}
