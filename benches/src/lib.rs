//! Whole-system benches and their bars.
