//! A key as a row keeps it: in place if short, as nearly all are.

/// Longest key kept inside the row. Chosen so that a key takes 40 bytes in all.
const INLINE_BYTES: usize = 38;

pub(crate) enum Key {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Boxed(Box<[u8]>),
}

impl Key {
    pub(crate) fn new(key: &[u8]) -> Self {
        match u8::try_from(key.len()) {
            Ok(len) if key.len() <= INLINE_BYTES => {
                let mut bytes = [0; INLINE_BYTES];
                bytes[..key.len()].copy_from_slice(key);
                Self::Inline { len, bytes }
            }
            Ok(_) | Err(_) => Self::Boxed(key.into()),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Boxed(key) => key,
        }
    }
}

impl core::fmt::Debug for Key {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "Key({})", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::Key;

    #[test]
    fn short_and_long_keys_come_back() {
        assert_eq!(size_of::<Key>(), 40);
        for len in [0, 1, 38, 39, 255, 256] {
            let key: Vec<u8> = (0..=255).cycle().take(len).collect();
            let kept = Key::new(&key);
            assert_eq!(kept.as_bytes(), key);
            assert_eq!(matches!(kept, Key::Inline { .. }), len <= 38);
        }
    }
}
