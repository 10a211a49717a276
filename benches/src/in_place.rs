//! Checks a block where it lies, without copying it.
//!
//! The arena is shared, so no reference to its bytes may exist; they are read one word at a time, through volatile
//! loads that the compiler neither repeats nor merges.

#![expect(unsafe_code, reason = "volatile loads from the arena")]

use kvd_client::View;

use crate::content::{Content, WORD_BYTES};

/// As [`Content::first_difference`], for the bytes of a view.
#[must_use]
pub fn first_difference(view: &View, content: Content) -> Option<usize> {
    let base = view.as_ptr();
    #[expect(clippy::cast_ptr_alignment, reason = "no word is read of a block that is not aligned")]
    let words = base.cast::<u64>();
    let whole = if words.is_aligned() { view.len() / WORD_BYTES } else { 0 };
    for index in 0..whole {
        // SAFETY: the word lies inside the view's bytes, which are mapped and readable while the view lives, and is
        // aligned (checked above). Volatile: another process may be writing it.
        let word = unsafe { words.wrapping_add(index).read_volatile() };
        if u64::from_le(word) != content.word(index) {
            return Some(index * WORD_BYTES);
        }
    }
    for index in whole * WORD_BYTES..view.len() {
        // SAFETY: the byte lies inside the view's bytes, as above. Volatile as above.
        let byte = unsafe { base.wrapping_add(index).read_volatile() };
        let word = content.word(index / WORD_BYTES).to_le_bytes();
        if byte != word[index % WORD_BYTES] {
            return Some(index / WORD_BYTES * WORD_BYTES);
        }
    }
    None
}
