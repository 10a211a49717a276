//! What a value covers, in the words of the engine and of the router.
//!
//! A connector sends a lineage with a commit. The daemon keeps its bytes beside the entry and
//! hands them on with tier events; it decides nothing by it. Encoded as one msgpack map:
//! `engine_hashes` list of bin, `router_hashes` list of u64, `parent` bin or nil, `tokens_per_block` u32,
//! `lora` str or nil, `salt` str or nil. Further entries are ignored.

use crate::malformed::Malformed;
use crate::pack::{
    Array, Fields, Reader, Wire, put_array_head, put_bin, put_map_head, put_str, put_u64,
};

/// Largest encoded lineage, in bytes: room for some 2000 block hashes of 32 bytes.
pub const LINEAGE_BYTES_MAX: usize = 64 << 10;

/// Which blocks of the engine one value stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// The engine's block hashes, first block first.
    pub engine_hashes: Vec<Vec<u8>>,
    /// The router's hashes of the same blocks, if the connector knows them.
    pub router_hashes: Vec<u64>,
    /// The engine's hash of the block before the first; none at the start of a prompt.
    pub parent: Option<Vec<u8>>,
    /// Tokens in one engine block.
    pub tokens_per_block: u32,
    /// Adapter that the tokens were computed with.
    pub lora: Option<String>,
    /// Salt that separates tenants with equal prompts.
    pub salt: Option<String>,
}

/// The same, in place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineageView<'a> {
    /// See [`Lineage::engine_hashes`].
    pub engine_hashes: Array<'a, &'a [u8]>,
    /// See [`Lineage::router_hashes`].
    pub router_hashes: Array<'a, u64>,
    /// See [`Lineage::parent`].
    pub parent: Option<&'a [u8]>,
    /// See [`Lineage::tokens_per_block`].
    pub tokens_per_block: u32,
    /// See [`Lineage::lora`].
    pub lora: Option<&'a str>,
    /// See [`Lineage::salt`].
    pub salt: Option<&'a str>,
}

const OP: &str = "lineage";

impl<'a> LineageView<'a> {
    /// Reads an encoded lineage without copying; allocates nothing.
    ///
    /// # Errors
    /// As [`Lineage::decode`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() > LINEAGE_BYTES_MAX {
            return Err(Malformed::TooLong {
                field: "lineages",
                len_bytes: bytes.len() as u64,
                limit_bytes: LINEAGE_BYTES_MAX as u64,
            });
        }
        let mut reader = Reader::new(bytes);
        let count = reader.map_head()?;
        let fields = Fields::parse_entries(reader, count)?;
        fields.check_count()?;
        Ok(Self {
            engine_hashes: fields.required(OP, "engine_hashes")?,
            router_hashes: fields.required(OP, "router_hashes")?,
            parent: fields.optional::<Option<_>>("parent")?.flatten(),
            tokens_per_block: fields.required(OP, "tokens_per_block")?,
            lora: fields.optional::<Option<_>>("lora")?.flatten(),
            salt: fields.optional::<Option<_>>("salt")?.flatten(),
        })
    }
}

impl Lineage {
    /// The encoded form. Compare its length with [`LINEAGE_BYTES_MAX`] before sending it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_map_head(&mut out, 6);
        put_str(&mut out, "engine_hashes");
        put_array_head(&mut out, self.engine_hashes.len());
        for hash in &self.engine_hashes {
            put_bin(&mut out, hash);
        }
        put_str(&mut out, "router_hashes");
        Array::Slice(&self.router_hashes).put(&mut out);
        put_str(&mut out, "parent");
        self.parent.as_deref().put(&mut out);
        put_str(&mut out, "tokens_per_block");
        put_u64(&mut out, self.tokens_per_block.into());
        put_str(&mut out, "lora");
        self.lora.as_deref().put(&mut out);
        put_str(&mut out, "salt");
        self.salt.as_deref().put(&mut out);
        out
    }

    /// Reads an encoded lineage.
    ///
    /// # Errors
    /// What is wrong with it, [`Malformed::TooLong`] above [`LINEAGE_BYTES_MAX`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let view = LineageView::parse(bytes)?;
        Ok(Self {
            engine_hashes: view.engine_hashes.iter().map(<[u8]>::to_vec).collect(),
            router_hashes: view.router_hashes.iter().collect(),
            parent: view.parent.map(<[u8]>::to_vec),
            tokens_per_block: view.tokens_per_block,
            lora: view.lora.map(str::to_owned),
            salt: view.salt.map(str::to_owned),
        })
    }

    /// Whether `bytes` would decode; allocates nothing.
    ///
    /// # Errors
    /// As [`Lineage::decode`].
    pub fn check(bytes: &[u8]) -> Result<(), Malformed> {
        LineageView::parse(bytes).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_limits() {
        let lineage = Lineage {
            engine_hashes: vec![vec![1; 32], vec![]],
            router_hashes: vec![u64::MAX, 0],
            parent: Some(vec![2; 32]),
            tokens_per_block: 16,
            lora: Some("adapter".to_owned()),
            salt: None,
        };
        let bytes = lineage.encode();
        assert_eq!(Lineage::decode(&bytes), Ok(lineage));
        assert_eq!(Lineage::decode(&Lineage::default().encode()), Ok(Lineage::default()));
        for end in 0..bytes.len() {
            assert!(Lineage::check(&bytes[..end]).is_err());
        }
        let large =
            Lineage { engine_hashes: vec![vec![0; LINEAGE_BYTES_MAX]], ..Lineage::default() };
        assert!(matches!(Lineage::check(&large.encode()), Err(Malformed::TooLong { .. })));
        assert!(Lineage::check(b"\x80").is_err());
    }
}
