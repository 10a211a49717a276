//! The reference's cost of a request on a target, in blocks: what would have to be computed, and what is under way.

use serde::Serialize;

use super::ettft::IMAGE_BLOCKS;

/// How long the client wants its blocks to be kept, as far as it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Nothing, or a short while.
    #[default]
    Usual,
    /// Long.
    Long,
    /// Expressly not at all.
    Never,
}

impl Hint {
    /// How much more, or less, its blocks weigh.
    #[must_use]
    pub const fn factor(self) -> f64 {
        match self {
            Self::Usual => 1.0,
            Self::Long => 2.0,
            Self::Never => 0.1,
        }
    }
}

/// A request, in the reference's words.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    /// Whole blocks of the prompt; 0 if they are not known.
    pub blocks: u32,
    /// Images in it. Blocks of a request with images do not count.
    pub images: u32,
    /// The weight of a block against one under way, before the hint.
    pub weight: f64,
    /// The client's hint.
    pub hint: Hint,
}

/// A target, in the reference's words.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    /// Blocks that it has on its device, from the first one on, as far as they are believed to be there.
    pub hits: f64,
    /// Images of the request that it has seen.
    pub images_held: u32,
    /// Blocks under way, and recent ones.
    pub load: f64,
}

/// The terms of one target's cost, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Blocks that it has.
    pub hits: f64,
    /// Blocks that it does not have.
    pub missing: f64,
    /// Images that it has not seen.
    pub images_missing: u32,
    /// The weight of a missing block.
    pub weight: f64,
    /// Blocks under way, and recent ones.
    pub load: f64,
    /// What is compared: the least wins.
    pub cost: f64,
}

impl Cost {
    /// The cost of a request on a target.
    #[must_use]
    pub fn of(asked: &Asked, known: &Known) -> Self {
        let weight = asked.weight * asked.hint.factor();
        let of_text = if asked.images > 0 { 0.0 } else { weight };
        let missing = (f64::from(asked.blocks) - known.hits).max(0.0);
        let images_missing = asked.images.saturating_sub(known.images_held);
        let images = weight * IMAGE_BLOCKS * f64::from(images_missing);
        Self {
            hits: known.hits,
            missing,
            images_missing,
            weight,
            load: known.load,
            cost: of_text * missing + images + known.load,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "sums of small whole numbers, and what stays as it was")]

    use super::*;

    fn cost(asked: Asked, hits: f64, images_held: u32, load: f64) -> f64 {
        Cost::of(&asked, &Known { hits, images_held, load }).cost
    }

    #[test]
    fn missing_blocks_and_load_add_up() {
        let asked = Asked { blocks: 2048, weight: 1.0, ..Asked::default() };
        assert_eq!(cost(asked, 512.0, 0, 0.0), 1536.0);
        assert_eq!(cost(asked, 1792.0, 0, 1250.0), 1506.0);
        assert_eq!(cost(Asked { hint: Hint::Long, ..asked }, 2000.0, 0, 5.0), 101.0);
        let never = cost(Asked { hint: Hint::Never, ..asked }, 2000.0, 0, 5.0);
        assert!((never - 9.8).abs() < 1e-9);
    }

    #[test]
    fn images_count_instead_of_blocks() {
        let asked = Asked { blocks: 100, images: 3, weight: 2.0, hint: Hint::Usual };
        assert_eq!(cost(asked, 0.0, 1, 4.0), 2.0 * 48.0 * 2.0 + 4.0);
    }

    #[test]
    fn what_is_not_known_leaves_the_load() {
        assert_eq!(cost(Asked { weight: 1.0, ..Asked::default() }, 0.0, 0, 7.0), 7.0);
    }
}
