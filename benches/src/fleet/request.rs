//! A request, as the simulation sees it.

use std::sync::Arc;

use kvd_proto::events::Token;
use router_core::hash::{BlockHasher, ROOT};

/// Tokens in a block. Blocks of the shared trace have as many.
pub const BLOCK_TOKENS: u32 = 512;

/// Blocks, one after the other. A block has one token that stands for all its 512, so that the real chain of hashes and
/// the real events can be used without half a gigabyte of tokens.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// What the blocks are called.
    pub names: Arc<[u64]>,
    /// What is in them.
    pub tokens: Arc<[Token]>,
}

impl Chain {
    /// The chain of blocks with these contents.
    pub fn new(contents: impl Iterator<Item = u64>) -> Self {
        let mut hasher = BlockHasher::new();
        let mut parent = ROOT;
        let (mut names, mut tokens) = (Vec::new(), Vec::new());
        for content in contents {
            let [low, high] = [content, content >> 32].map(|half| (half & 0xffff_ffff) as u32);
            let token = low ^ high.rotate_left(16);
            parent = hasher.block(parent, [token], &[]);
            names.push(parent);
            tokens.push(Token(token));
        }
        Self { names: names.into(), tokens: tokens.into() }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// When it comes, in seconds.
    pub arrival: f64,
    /// The conversation that it is part of.
    pub session: u32,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// The whole blocks of the prompt, then those that the answer completes, as far as a later request may want them.
    pub chain: Chain,
}

impl Request {
    /// Whole blocks of the prompt.
    #[must_use]
    pub fn prompt_blocks(&self) -> usize {
        (self.prompt_tokens / BLOCK_TOKENS) as usize
    }

    /// The names of those.
    #[must_use]
    pub fn prompt_names(&self) -> &[u64] {
        &self.chain.names[..self.prompt_blocks()]
    }

    /// Blocks that it takes of a device until it is over, as long as that has room for them.
    #[must_use]
    pub fn device_blocks(&self) -> usize {
        (self.prompt_tokens + self.output_tokens).div_ceil(BLOCK_TOKENS) as usize
    }
}
