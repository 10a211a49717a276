//! What a request costs on a target, in seconds or in blocks.
//!
//! 1. [`facts`] – speeds, links and load, and what stands in for those nobody told;
//! 2. [`segments`] – which tokens of a prompt come from where, and how far loading pays;
//! 3. [`ettft`] – the expected time to the first token, term by term;
//! 4. [`mod@reference`] – the reference's cost in blocks;
//! 5. [`fit`] – speeds learnt from answers.
//!
//! **Invariant:** more residency or more bandwidth never makes a target look worse, if its engine loads only what pays.

pub mod ettft;
pub mod facts;
pub mod fit;
pub mod reference;
pub mod segments;

pub use ettft::{Request, Terms};
pub use facts::{Link, Load, Speed, Way};
pub use segments::Segments;
