//! The one with the least to do.

use super::round_robin;

/// The order in which targets with these loads (requests in flight) are tried, as indices: the least loaded first.
/// Equals are taken in turn, so that idle targets share what comes.
#[must_use]
pub fn least_load(loads: &[u32], turn: usize) -> Vec<usize> {
    let mut order = round_robin(loads.len(), turn);
    // Stable: equals stay in the order of this turn.
    order.sort_by_key(|index| loads[*index]);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_loaded_is_first_and_equals_take_turns() {
        assert_eq!(least_load(&[4, 0, 2], 0), [1, 2, 0]);
        assert_eq!(least_load(&[1, 1, 0, 1], 0), [2, 0, 1, 3]);
        assert_eq!(least_load(&[1, 1, 0, 1], 1), [2, 1, 3, 0]);
        let first: Vec<usize> = (0..4).map(|turn| least_load(&[0, 0], turn)[0]).collect();
        assert_eq!(first, [0, 1, 0, 1]);
        assert_eq!(least_load(&[], 3), [0; 0]);
    }
}
