//! From text to ids, piece by piece.
//!
//! A tokenizer first cuts its input at added tokens such as `<|im_start|>`; what lies between two of them is encoded by
//! itself. So a text may be encoded in pieces that begin at such tokens, and the ids of each piece are remembered: of a
//! conversation that grew by a turn only the turn is encoded.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::cache::Cache;
use crate::why_not::WhyNot;

/// Sent by workers with its ids, so that a router finds out whether its tokenizer is the same.
pub const CANARY: &str = "Hello, world!\n你好，世界！<|im_start|>system\n<|endoftext|><|im_end|>🦄";

/// A tokenizer and the places where it may be fed in pieces.
pub(crate) struct Tokenizer {
    inner: tokenizers::Tokenizer,
    added: Option<Added>,
    /// Ids that stand before and after every text that is encoded with special tokens.
    around: Option<(Vec<u32>, Vec<u32>)>,
    pub(crate) cache: Cache,
}

/// The added tokens that are found in the text as it came.
struct Added {
    search: AhoCorasick,
    /// May a piece begin at this token?
    begins_piece: Vec<bool>,
}

/// Ids, and how much of the text did not have to be encoded for them.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) ids: Vec<u32>,
    pub(crate) cached_bytes: usize,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("around", &self.around).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// # Errors
    /// The tokenizer cannot encode anything.
    pub(crate) fn new(
        mut inner: tokenizers::Tokenizer,
        cache_bytes: usize,
    ) -> Result<Self, WhyNot> {
        inner.with_truncation(None).map_err(failed)?;
        inner.with_padding(None);
        let added = Added::of(&inner);
        let cache = Cache::new(cache_bytes);
        let mut tokenizer = Self { inner, added, around: None, cache };
        let (plain, whole) = (tokenizer.whole("a", false)?, tokenizer.whole("a", true)?);
        tokenizer.around = around(&plain, &whole);
        // A tokenizer that does not work piece by piece after all is used as a whole.
        let pieces = tokenizer.encode(CANARY, false)?.ids;
        if pieces != tokenizer.whole(CANARY, false)? {
            tokenizer.added = None;
            tokenizer.cache = Cache::new(cache_bytes);
        }
        Ok(tokenizer)
    }

    /// The ids of `text`; `specials`: with what the tokenizer adds around a text.
    ///
    /// # Errors
    /// The tokenizer fails.
    pub(crate) fn encode(&self, text: &str, specials: bool) -> Result<Encoded, WhyNot> {
        if !specials {
            return self.in_pieces(text, Vec::new());
        }
        let Some((before, after)) = &self.around else {
            return Ok(Encoded { ids: self.whole(text, true)?, cached_bytes: 0 });
        };
        let mut encoded = self.in_pieces(text, before.clone())?;
        encoded.ids.extend(after);
        Ok(encoded)
    }

    /// The id of a token.
    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    fn in_pieces(&self, text: &str, ids: Vec<u32>) -> Result<Encoded, WhyNot> {
        let mut encoded = Encoded { ids, cached_bytes: 0 };
        let mut start = 0;
        let cuts = self.added.iter().flat_map(|added| added.cuts(text));
        for end in cuts.chain([text.len()]) {
            let Some(piece) = text.get(start..end).filter(|piece| !piece.is_empty()) else {
                continue;
            };
            let first = start == 0;
            if let Some(known) = self.cache.get(first, piece) {
                encoded.cached_bytes += piece.len();
                encoded.ids.extend_from_slice(&known);
            } else {
                let ids: Arc<[u32]> = self.whole(piece, false)?.into();
                encoded.ids.extend_from_slice(&ids);
                self.cache.put(first, piece, ids);
            }
            start = end;
        }
        Ok(encoded)
    }

    fn whole(&self, text: &str, specials: bool) -> Result<Vec<u32>, WhyNot> {
        let encoding = self.inner.encode_fast(text, specials).map_err(failed)?;
        Ok(encoding.get_ids().to_vec())
    }
}

impl Added {
    fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        let mut tokens: Vec<_> = tokenizer.get_added_tokens_decoder().into_iter().collect();
        tokens.sort_by_key(|(id, _)| *id);
        tokens.retain(|(_, token)| !token.normalized && !token.content.is_empty());
        // As the tokenizer itself searches: of several that begin at one place, the longest.
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(_, token)| &token.content))
            .ok()?;
        // One that takes the space before it, or that counts between words only, depends on what stands before it.
        let begins_piece = tokens
            .iter()
            .map(|(_, token)| {
                !token.lstrip
                    && !token.single_word
                    && !token.content.starts_with(char::is_whitespace)
            })
            .collect();
        Some(Self { search, begins_piece })
    }

    fn cuts<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> + 'a {
        let found = self.search.find_iter(text);
        let found =
            found.filter(|found| self.begins_piece.get(found.pattern().as_usize()) == Some(&true));
        found.map(|found| found.start())
    }
}

/// What stands around `plain` in `whole`.
fn around(plain: &[u32], whole: &[u32]) -> Option<(Vec<u32>, Vec<u32>)> {
    let at = whole.windows(plain.len().max(1)).position(|window| window == plain)?;
    let (before, rest) = whole.split_at(at);
    Some((before.to_vec(), rest.get(plain.len()..)?.to_vec()))
}

fn failed(error: tokenizers::Error) -> WhyNot {
    WhyNot::Tokenizer(error.to_string().into())
}
