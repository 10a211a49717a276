//! What blocks and chunks are called in the index.

use xxhash_rust::xxh3::xxh3_64;

/// Where a name comes from. Equal bits of different kinds are different names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The router's own hash.
    Router,
    /// The first 64 bits of an SGLang page's SHA-256.
    Sglang,
    /// The last 64 bits of a vLLM block's SHA-256 over CBOR.
    Vllm,
    /// The daemon's key of a chunk.
    ChunkKey,
}

/// The name of a block, or of a chunk by its last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(u64);

impl Name {
    /// The name of 64 bits of a kind.
    #[must_use]
    pub const fn new(kind: Kind, bits: u64) -> Self {
        Self(bits ^ kind.salt())
    }

    /// The name of a chunk of which only the key is known.
    #[must_use]
    pub fn of_chunk_key(key: &[u8]) -> Self {
        Self::new(Kind::ChunkKey, xxh3_64(key))
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}

impl Kind {
    /// Random numbers, so that two kinds meet only by chance.
    const fn salt(self) -> u64 {
        match self {
            Self::Router => 0,
            Self::Sglang => 0x9d6e_f6c1_13a5_7b2f,
            Self::Vllm => 0x5bf0_3635_c87d_4e19,
            Self::ChunkKey => 0xe3a8_10b4_6f29_d58c,
        }
    }
}
