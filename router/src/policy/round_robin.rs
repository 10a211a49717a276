//! One after the other.

/// The order in which `count` targets are tried, as indices, for the request of number `turn`: the
/// next one, then those after it.
#[must_use]
pub fn round_robin(count: usize, turn: usize) -> Vec<usize> {
    let first = turn.checked_rem(count).unwrap_or(0);
    (first..count).chain(0..first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_begins_one_further_and_names_all() {
        assert_eq!(round_robin(3, 0), [0, 1, 2]);
        assert_eq!(round_robin(3, 1), [1, 2, 0]);
        assert_eq!(round_robin(3, 5), [2, 0, 1]);
        assert_eq!(round_robin(1, usize::MAX), [0]);
        assert_eq!(round_robin(0, 7), [0; 0]);
    }
}
