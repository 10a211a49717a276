//! A block's name as it is typed: a key in hexadecimal or as text, and a namespace.

use anyhow::{Result, anyhow};
use clap::Args;
use kvd_client::{KEY_BYTES_MAX, Namespace};

use crate::wrong_usage::WrongUsage;

#[derive(Debug, Args)]
pub(crate) struct Space {
    /// Model of the block
    #[arg(long, default_value = "")]
    pub(crate) model: String,
    /// Compatibility key of the block
    #[arg(long, default_value = "")]
    pub(crate) compat_key: String,
}

impl Space {
    pub(crate) fn namespace(&self) -> Namespace<'_> {
        Namespace { model: &self.model, compat_key: &self.compat_key }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Key {
    /// The key, in hexadecimal
    key: String,
    /// KEY is text, not hexadecimal
    #[arg(long)]
    text: bool,
    #[command(flatten)]
    pub(crate) space: Space,
}

/// Bytes that were typed as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HexBytes(pub(crate) Vec<u8>);

impl Key {
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, WrongUsage> {
        let bytes = if self.text {
            self.key.clone().into_bytes()
        } else {
            let wrong = |error| {
                WrongUsage(format!("key {:?}: {error}; give --text if it is text", self.key))
            };
            from_hex(&self.key).map_err(wrong)?.0
        };
        match bytes.len() {
            // Engines never use it; on a command line it is a variable that was not set.
            0 => Err(WrongUsage("the key is empty".to_owned())),
            1..=KEY_BYTES_MAX => Ok(bytes),
            len => Err(WrongUsage(format!(
                "the key has {len} bytes, at most {KEY_BYTES_MAX} are allowed"
            ))),
        }
    }
}

/// Reads pairs of hexadecimal digits in either case.
pub(crate) fn from_hex(text: &str) -> Result<HexBytes> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    let expected = || anyhow!("expected pairs of hexadecimal digits");
    bytes.map(HexBytes).ok_or_else(expected)
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_reads_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)).expect("valid").0, bytes);
        assert_eq!(from_hex("0Aff").expect("valid").0, [10, 255]);
        assert!(from_hex("").expect("valid").0.is_empty());
        for wrong in ["0", "0g", "+1", "é0", "0x1"] {
            assert!(from_hex(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn empty_and_long_keys_are_wrong_usage() {
        let key = |text: &str| Key {
            key: text.to_owned(),
            text: true,
            space: Space { model: String::new(), compat_key: String::new() },
        };
        assert!(key("").bytes().is_err());
        assert_eq!(key("k").bytes().expect("valid"), b"k");
        assert!(key(&"k".repeat(KEY_BYTES_MAX)).bytes().is_ok());
        assert!(key(&"k".repeat(KEY_BYTES_MAX + 1)).bytes().is_err());
    }
}
