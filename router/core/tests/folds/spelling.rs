//! What engines send, in every form, and a prompt's tree to draw blocks from.

use kvd_proto::pack::{
    put_array_head, put_bin, put_f64, put_i64, put_map_head, put_nil, put_str, put_u64,
};
use router_core::hash;

/// Tokens in a block.
pub(crate) const BLOCK_SIZE: u32 = 2;
/// Blocks of every prompt.
pub(crate) const DEPTH: usize = 200;
/// Where each prompt leaves the first one.
const FORKS: [usize; 4] = [0, 3, 70, 150];

/// The tokens of a prompt.
pub(crate) fn tokens(branch: usize) -> Vec<u32> {
    let fork = FORKS[branch];
    (0..DEPTH)
        .flat_map(|depth| {
            let branch = if depth < fork { 0 } else { branch };
            [u32::try_from(branch).unwrap(), u32::try_from(depth).unwrap()]
        })
        .collect()
}

/// The router's names of its blocks.
pub(crate) fn chain(branch: usize) -> Vec<u64> {
    hash::chain(hash::ROOT, &tokens(branch), BLOCK_SIZE)
}

/// An engine's name of a block; it may have several.
pub(crate) fn label(name: u64, variant: u8) -> u64 {
    name.rotate_left(17) ^ u64::from(variant).wrapping_mul(0x1234_5678_9abc_def1)
}

/// How an event is spelled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) is_map: bool,
    pub(crate) has_digests: bool,
}

/// What an engine says.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Stored { hashes: Vec<u64>, parent: Option<u64>, tokens: Vec<u32>, medium: &'static str },
    Removed { hashes: Vec<u64>, medium: &'static str },
    Cleared,
}

fn put_hash(hash: u64, form: Form, out: &mut Vec<u8>) {
    if form.has_digests {
        let mut digest = [0xab; 32];
        digest[24..].copy_from_slice(&hash.to_be_bytes());
        put_bin(out, &digest);
    } else {
        put_i64(out, hash.cast_signed());
    }
}

fn put_hashes(hashes: &[u64], form: Form, out: &mut Vec<u8>) {
    put_array_head(out, hashes.len());
    hashes.iter().for_each(|hash| put_hash(*hash, form, out));
}

/// A payload with one event.
pub(crate) fn payload(said: &Said, form: Form) -> Vec<u8> {
    let mut out = Vec::new();
    put_array_head(&mut out, 3);
    put_f64(&mut out, 1.5);
    put_array_head(&mut out, 1);
    put_event(said, form, &mut out);
    put_u64(&mut out, 0);
    out
}

fn put_event(said: &Said, form: Form, out: &mut Vec<u8>) {
    let field = |name: &str, out: &mut Vec<u8>| {
        if form.is_map {
            put_str(out, name);
        }
    };
    let head = |fields: usize, tag: &str, out: &mut Vec<u8>| {
        if form.is_map {
            put_map_head(out, fields + 1);
            put_str(out, "type");
        } else {
            put_array_head(out, fields + 1);
        }
        put_str(out, tag);
    };
    match said {
        Said::Stored { hashes, parent, tokens, medium } => {
            head(6, "BlockStored", out);
            field("block_hashes", out);
            put_hashes(hashes, form, out);
            field("parent_block_hash", out);
            match parent {
                Some(parent) => put_hash(*parent, form, out),
                None => put_nil(out),
            }
            field("token_ids", out);
            put_array_head(out, tokens.len());
            tokens.iter().for_each(|token| put_u64(out, (*token).into()));
            field("block_size", out);
            put_u64(out, BLOCK_SIZE.into());
            field("lora_id", out);
            put_nil(out);
            field("medium", out);
            put_str(out, medium);
        }
        Said::Removed { hashes, medium } => {
            head(2, "BlockRemoved", out);
            field("block_hashes", out);
            put_hashes(hashes, form, out);
            field("medium", out);
            put_str(out, medium);
        }
        Said::Cleared => head(0, "AllBlocksCleared", out),
    }
}
