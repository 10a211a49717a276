//! Bars: what a figure must reach, and whether it does.

use std::fmt;

/// Which side of the bound is good.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// One figure and its bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    id: String,
    value: f64,
    bound: Bound,
}

impl Bar {
    /// A figure that must not be above `bound`.
    #[must_use]
    pub fn at_most(id: impl Into<String>, value: f64, bound: f64) -> Self {
        Self { id: id.into(), value, bound: Bound::AtMost(bound) }
    }

    /// A figure that must not be below `bound`.
    #[must_use]
    pub fn at_least(id: impl Into<String>, value: f64, bound: f64) -> Self {
        Self { id: id.into(), value, bound: Bound::AtLeast(bound) }
    }

    /// Whether the figure is on the right side. A figure that is no number never is.
    #[must_use]
    pub fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtMost(bound) => self.value <= bound,
            Bound::AtLeast(bound) => self.value >= bound,
        }
    }
}

/// `BAR <id> <value> <bound> ok|short`.
impl fmt::Display for Bar {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_met() { "ok" } else { "short" };
        let Self { id, value, .. } = self;
        match self.bound {
            Bound::AtMost(bound) => write!(out, "BAR {id} {value:.3} <={bound} {verdict}"),
            Bound::AtLeast(bound) => write!(out, "BAR {id} {value:.3} >={bound} {verdict}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_inclusive_and_a_missing_figure_is_short() {
        assert_eq!(Bar::at_most("a", 1.5, 1.5).to_string(), "BAR a 1.500 <=1.5 ok");
        assert_eq!(Bar::at_most("a", 1.51, 1.5).to_string(), "BAR a 1.510 <=1.5 short");
        assert_eq!(Bar::at_least("b.c", 0.9, 0.9).to_string(), "BAR b.c 0.900 >=0.9 ok");
        assert!(!Bar::at_least("b", 0.899, 0.9).is_met());
        assert!(!Bar::at_least("b", f64::NAN, 0.0).is_met());
        assert!(!Bar::at_most("b", f64::NAN, 9.0).is_met());
    }
}
