//! What identifies a block: an opaque key inside a namespace.

/// Longest key that the store keeps, in bytes. Engines use 8 bytes or a page hash as text with a
/// short suffix; a longer key is refused with [`crate::refusal::Refusal::BadKey`].
pub const KEY_BYTES_MAX: usize = 256;

/// Longest model name or compatibility key, in bytes each.
pub const NAMESPACE_PART_BYTES_MAX: usize = 1024;

/// Keys are equal only within one namespace: blocks of another model, or of another parallel
/// layout of the same model, are different blocks even under equal key bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace<'a> {
    /// Name or path of the model.
    pub model: &'a str,
    /// Whatever else must agree for the bytes to be usable: rank, layout, weights.
    pub compat_key: &'a str,
}

impl Namespace<'_> {
    /// Whether both parts are within [`NAMESPACE_PART_BYTES_MAX`].
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        self.model.len() <= NAMESPACE_PART_BYTES_MAX
            && self.compat_key.len() <= NAMESPACE_PART_BYTES_MAX
    }
}
