//! One copy routine for memory that other processes may be writing.
//!
//! Every access is made by an assembler block or by a relaxed atomic, so a racing store of another
//! process can tear the result but not the program.

#[cfg(any(test, not(target_arch = "x86_64")))]
mod words;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Copies of at least this many bytes bypass the cache.
pub(crate) const NON_TEMPORAL_MIN: usize = 256 << 10;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use words::copy;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::copy;

#[cfg(test)]
mod tests;
