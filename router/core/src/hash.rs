//! The names of blocks: the router's own, and those that engines derive from content.
//!
//! A block is named by its tokens and by everything before them, so that one name stands for a whole prefix.

use kvd_proto::events::ExtraKeys;
use kvd_proto::pack::{Value, Wire, put_array_head, put_bin, put_map_head, put_nil};
use xxhash_rust::xxh3::xxh3_64;

/// What stands before the first block of a prompt without adapter and salt.
pub const ROOT: u64 = 0;

const IDENTITY_TAG: &[u8] = b"infera-id1";

/// What stands before the first block of a prompt with an adapter or a salt.
#[must_use]
pub fn root(adapter: Option<&str>, salt: Option<&str>) -> u64 {
    if adapter.is_none() && salt.is_none() {
        return ROOT;
    }
    let mut bytes = IDENTITY_TAG.to_vec();
    for part in [adapter, salt] {
        bytes.push(0);
        bytes.extend_from_slice(part.unwrap_or_default().as_bytes());
    }
    xxh3_64(&bytes)
}

/// Hashes block after block and keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct BlockHasher {
    bytes: Vec<u8>,
}

impl BlockHasher {
    /// A hasher without memory yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// The name of the block with these tokens after `parent`. `extra`: what an engine adds to the block's identity,
    /// as an encoded msgpack array; empty for nothing.
    pub fn block(
        &mut self,
        parent: u64,
        tokens: impl IntoIterator<Item = u32>,
        extra: &[u8],
    ) -> u64 {
        self.bytes.clear();
        self.bytes.extend_from_slice(&parent.to_le_bytes());
        for token in tokens {
            self.bytes.extend_from_slice(&token.to_le_bytes());
        }
        self.bytes.extend_from_slice(extra);
        xxh3_64(&self.bytes)
    }

    /// Appends the names of all whole blocks of `tokens`; a rest below one block has none, nor has anything in blocks
    /// of no token.
    pub fn chain(&mut self, root: u64, tokens: &[u32], block_size: u32, out: &mut Vec<u64>) {
        if block_size == 0 {
            return;
        }
        let mut parent = root;
        for block in tokens.chunks_exact(block_size as usize) {
            parent = self.block(parent, block.iter().copied(), &[]);
            out.push(parent);
        }
    }
}

/// The names of all whole blocks of `tokens`, see [`BlockHasher::chain`].
#[must_use]
pub fn chain(root: u64, tokens: &[u32], block_size: u32) -> Vec<u64> {
    let mut names = Vec::new();
    BlockHasher::new().chain(root, tokens, block_size, &mut names);
    names
}

/// The salt among the extra keys of a prompt's first block: the one text that is not the adapter.
#[must_use]
pub fn salt_of<'a>(keys: &ExtraKeys<'a>, adapter: Option<&str>) -> Option<&'a str> {
    let texts = keys.of_block(0).filter_map(<&str>::from_value);
    let mut texts = texts.filter(|text| Some(*text) != adapter);
    let salt = texts.next()?;
    texts.next().is_none().then_some(salt)
}

/// Appends what is left of a block's extra keys, without adapter and salt, as a msgpack array; nothing if nothing is.
pub fn put_extra(
    keys: &ExtraKeys<'_>,
    block: usize,
    adapter: Option<&str>,
    salt: Option<&str>,
    out: &mut Vec<u8>,
) {
    let is_left = |value: &Value<'_>| match value {
        Value::Text(text) => Some(*text) != adapter && (block != 0 || Some(*text) != salt),
        Value::Nil
        | Value::Bool(_)
        | Value::Unsigned(_)
        | Value::Negative(_)
        | Value::Float(_)
        | Value::Bytes(_)
        | Value::Array(_)
        | Value::Map(_)
        | Value::Extension => true,
    };
    let count = keys.of_block(block).filter(is_left).count();
    if count > 0 {
        put_array_head(out, count);
        keys.of_block(block).filter(is_left).for_each(|value| put_value(value, out));
    }
}

fn put_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Nil | Value::Extension => put_nil(out),
        Value::Bool(value) => value.put(out),
        Value::Unsigned(value) => value.put(out),
        Value::Negative(value) => value.put(out),
        Value::Float(value) => value.put(out),
        Value::Text(value) => value.put(out),
        Value::Bytes(value) => put_bin(out, value),
        Value::Array(items) => {
            put_array_head(out, items.count() as usize);
            items.values().for_each(|value| put_value(value, out));
        }
        Value::Map(items) => {
            put_map_head(out, items.count() as usize);
            items.values().for_each(|value| put_value(value, out));
        }
    }
}

/// SHA-256 names of SGLang's pages.
pub mod sglang {
    use sha2::{Digest as _, Sha256};

    /// The digest of the page with these tokens after `prior`; no prior for the first page, except where an engine
    /// seeds it.
    #[must_use]
    pub fn page(prior: Option<&[u8; 32]>, tokens: &[u32]) -> [u8; 32] {
        let mut hasher = Sha256::new();
        if let Some(prior) = prior {
            hasher.update(prior);
        }
        for token in tokens {
            hasher.update(token.to_le_bytes());
        }
        hasher.finalize().into()
    }

    /// The 64 bits that events carry: the first ones.
    #[must_use]
    pub fn bits(digest: &[u8; 32]) -> u64 {
        digest.first_chunk().map_or(0, |first: &[u8; 8]| u64::from_be_bytes(*first))
    }

    /// The 64 bits of all whole pages of `tokens`.
    #[must_use]
    pub fn chain(tokens: &[u32], page_size: u32) -> Vec<u64> {
        let mut prior = None;
        let pages = tokens.chunks_exact(page_size.max(1) as usize);
        pages
            .map(|tokens| {
                let digest = page(prior.as_ref(), tokens);
                prior = Some(digest);
                bits(&digest)
            })
            .collect()
    }
}

/// SHA-256 names of vLLM's blocks with `--prefix-caching-hash-algo sha256_cbor`, and the daemon's keys made of them.
pub mod vllm {
    use sha2::{Digest as _, Sha256};

    /// One more thing that separates equal tokens.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Extra<'a> {
        /// The name of an adapter, a salt.
        Text(&'a str),
        /// The same, with a word in front that tells what it is.
        Pair(&'a str, &'a str),
    }

    /// What stands before the first block. `seed`: the engines' `PYTHONHASHSEED`.
    #[must_use]
    pub fn root(seed: &str) -> [u8; 32] {
        let mut cbor = Vec::new();
        put_text(seed, &mut cbor);
        Sha256::digest(&cbor).into()
    }

    /// The digest of the block with these tokens after `parent`.
    #[must_use]
    pub fn block(parent: &[u8; 32], tokens: &[u32], extra: &[Extra<'_>]) -> [u8; 32] {
        let mut cbor = Vec::with_capacity(64 + 5 * tokens.len());
        put_head(ARRAY, 3, &mut cbor);
        put_head(BYTES, 32, &mut cbor);
        cbor.extend_from_slice(parent);
        put_head(ARRAY, tokens.len() as u64, &mut cbor);
        for token in tokens {
            put_head(UNSIGNED, (*token).into(), &mut cbor);
        }
        if extra.is_empty() {
            cbor.push(NULL);
        } else {
            put_head(ARRAY, extra.len() as u64, &mut cbor);
        }
        for extra in extra {
            match extra {
                Extra::Text(text) => put_text(text, &mut cbor),
                Extra::Pair(word, text) => {
                    put_head(ARRAY, 2, &mut cbor);
                    put_text(word, &mut cbor);
                    put_text(text, &mut cbor);
                }
            }
        }
        Sha256::digest(&cbor).into()
    }

    /// The 64 bits that events carry: the last ones.
    #[must_use]
    pub fn bits(digest: &[u8; 32]) -> u64 {
        digest.last_chunk().map_or(0, |last: &[u8; 8]| u64::from_be_bytes(*last))
    }

    /// The digests of all whole blocks of `tokens`. `every`: what separates each block. `first`: what only the first
    /// block has besides.
    #[must_use]
    pub fn chain(
        root: &[u8; 32],
        tokens: &[u32],
        block_size: u32,
        every: &[Extra<'_>],
        first: &[Extra<'_>],
    ) -> Vec<[u8; 32]> {
        let mut parent = *root;
        let mut extra = [every, first].concat();
        let blocks = tokens.chunks_exact(block_size.max(1) as usize);
        blocks
            .map(|tokens| {
                parent = block(&parent, tokens, &extra);
                extra.truncate(every.len());
                parent
            })
            .collect()
    }

    /// The daemon's key of a chunk: seven bytes of a SHA-256 over the digests of its blocks, and the cache group.
    #[must_use]
    pub fn chunk_key(digests: &[[u8; 32]], group: u8) -> [u8; 8] {
        let mut hasher = Sha256::new();
        for digest in digests {
            hasher.update(digest);
        }
        let digest: [u8; 32] = hasher.finalize().into();
        let mut key = [group; 8];
        for (to, from) in key.iter_mut().zip(digest.iter().take(7)) {
            *to = *from;
        }
        key
    }

    const UNSIGNED: u8 = 0x00;
    const BYTES: u8 = 0x40;
    const TEXT: u8 = 0x60;
    const ARRAY: u8 = 0x80;
    const NULL: u8 = 0xf6;

    fn put_text(text: &str, out: &mut Vec<u8>) {
        put_head(TEXT, text.len() as u64, out);
        out.extend_from_slice(text.as_bytes());
    }

    /// The shortest head, as canonical CBOR wants it.
    fn put_head(kind: u8, value: u64, out: &mut Vec<u8>) {
        let bytes = value.to_be_bytes();
        let (mark, from) = match value {
            0..=23 => return out.push(kind | bytes[7]),
            24..=0xff => (24, 7),
            0x100..=0xffff => (25, 6),
            0x1_0000..=0xffff_ffff => (26, 4),
            _ => (27, 0),
        };
        out.push(kind | mark);
        out.extend_from_slice(bytes.get(from..).unwrap_or_default());
    }
}
