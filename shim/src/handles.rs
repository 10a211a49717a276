//! Numbers that stand for values: looked up, never followed.
//!
//! A handle is a kind (4 bits), a generation (36 bits) and a place (24 bits). A place that comes free gets its next
//! generation, so the old handle fits nothing any more; a place that has used up its generations is never used again.

const PLACE_BITS: u32 = 24;
const GENERATION_BITS: u32 = 36;
const PLACES_MAX: usize = 1 << PLACE_BITS;
const GENERATION_MAX: u64 = (1 << GENERATION_BITS) - 1;

/// Values of one kind, by handle.
#[derive(Debug)]
pub(crate) struct Table<T> {
    kind: u64,
    places: Vec<Place<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u64,
    value: Option<T>,
}

impl<T> Table<T> {
    /// An empty table. `kind` is 1 to 15, another one for each table.
    pub(crate) const fn new(kind: u64) -> Self {
        Self { kind, places: Vec::new(), free: Vec::new() }
    }

    /// A handle for `value`, never 0; gives it back if the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Result<u64, T> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.places.len() < PLACES_MAX => {
                self.places.push(Place { generation: 1, value: None });
                self.places.len() - 1
            }
            None => return Err(value),
        };
        let place = &mut self.places[index];
        place.value = Some(value);
        let generation = place.generation << PLACE_BITS;
        Ok((self.kind << (PLACE_BITS + GENERATION_BITS)) | generation | index as u64)
    }

    /// What `handle` stands for, if it does.
    pub(crate) fn get(&self, handle: u64) -> Option<&T> {
        self.places.get(self.index_of(handle)?)?.value.as_ref()
    }

    /// Takes what `handle` stands for; from now on it stands for nothing.
    pub(crate) fn remove(&mut self, handle: u64) -> Option<T> {
        let index = self.index_of(handle)?;
        let place = self.places.get_mut(index)?;
        let value = place.value.take()?;
        if place.generation < GENERATION_MAX {
            place.generation += 1;
            self.free.push(index);
        }
        Some(value)
    }

    /// The place of a handle of this table and of the present generation.
    fn index_of(&self, handle: u64) -> Option<usize> {
        let index = usize::try_from(handle).ok()? % PLACES_MAX;
        let generation = (handle >> PLACE_BITS) & GENERATION_MAX;
        let kind = handle >> (PLACE_BITS + GENERATION_BITS);
        let fits = kind == self.kind && self.places.get(index)?.generation == generation;
        fits.then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_handle_means_its_value_until_it_is_removed_and_nothing_after() {
        let mut table = Table::new(1);
        let mut oracle = BTreeMap::new();
        let mut spent = Vec::new();
        // A fixed walk: a few come, some go, in changing order.
        for step in 0..2_000_u64 {
            let handle = table.insert(step).unwrap();
            assert!(oracle.insert(handle, step).is_none(), "a handle came twice");
            if step % 3 != 0 {
                let (&gone, _) =
                    oracle.iter().nth(usize::try_from(step).unwrap() * 7 % oracle.len()).unwrap();
                assert_eq!(table.remove(gone), oracle.remove(&gone));
                spent.push(gone);
            }
        }
        assert!(oracle.iter().all(|(handle, value)| table.get(*handle) == Some(value)));
        for handle in spent {
            assert_eq!(table.get(handle), None);
            assert_eq!(table.remove(handle), None);
        }
    }

    #[test]
    fn handles_of_another_kind_and_invented_ones_mean_nothing() {
        let mut ours = Table::new(1);
        let mut others = Table::new(2);
        let handle = ours.insert('a').unwrap();
        assert_eq!(others.get(handle), None, "an empty table");
        let other = others.insert('b').unwrap();
        assert_ne!(handle, other);
        assert_eq!((ours.get(other), others.get(handle)), (None, None));
        for invented in [0, 1, u64::MAX, handle ^ (1 << 23), handle ^ (1 << 59)] {
            assert_eq!(ours.remove(invented), None, "{invented:#x}");
        }
    }

    #[test]
    fn a_place_without_generations_left_is_never_used_again() {
        let mut table = Table::new(1);
        let first = table.insert('a').unwrap();
        table.places[0].generation = GENERATION_MAX;
        let last = first | (GENERATION_MAX << PLACE_BITS);
        assert_eq!(table.remove(last), Some('a'));
        let next = table.insert('b').unwrap();
        assert_ne!(usize::try_from(next).unwrap() % PLACES_MAX, 0);
        assert_eq!((table.get(first), table.get(last)), (None, None));
    }
}
