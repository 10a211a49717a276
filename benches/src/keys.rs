//! Keys by number, the namespace they live in, and how to store many of them.

use anyhow::Context as _;
use kvd_client::{Client, Commit, Namespace, Retention};

use crate::content::Content;
use crate::patience::PATIENCE;

/// As long as the digests that engines use.
pub const KEY_BYTES: usize = 32;

/// A key.
pub type Key = [u8; KEY_BYTES];

/// The namespace of all keys of the benches; as long as a real one.
pub const NAMESPACE: Namespace<'static> =
    Namespace { model: "meta-llama/Llama-3.1-8B-Instruct", compat_key: "bf16-tp1-r0" };

/// Blocks stored in one go, and their bytes: a session may not hold more at once.
const BATCH: u64 = 4096;
const BATCH_BYTES: u64 = 16 << 20;

/// Key number `number`: 32 bytes that look like a digest.
#[must_use]
pub fn key(number: u64) -> Key {
    let mut key = [0; KEY_BYTES];
    Content::of(&number.to_le_bytes()).fill(&mut key);
    key
}

/// The numbers below `count` in an order that looks random; another one for each `seed`.
#[must_use]
pub fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let random = Content::of(&seed.to_be_bytes());
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, below(random.word(last), last + 1));
    }
    order
}

/// A random word as a number below `limit`.
///
/// # Panics
/// If `limit` is 0.
#[must_use]
pub fn below(word: u64, limit: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "smaller than `limit`, which is a usize")]
    let number = (word % limit as u64) as usize;
    number
}

/// Stores the blocks with these numbers, each with the first `len_bytes` of its content.
///
/// # Errors
/// If one of them is refused, or there is no answer.
pub fn store(
    client: &Client,
    numbers: std::ops::Range<u64>,
    len_bytes: usize,
) -> anyhow::Result<()> {
    let mut bytes = vec![0; len_bytes];
    let batch = (BATCH_BYTES / (len_bytes as u64).max(1)).clamp(1, BATCH);
    for begin in numbers.clone().step_by(usize::try_from(batch)?) {
        let keys: Vec<Key> = (begin..numbers.end.min(begin + batch)).map(key).collect();
        let lens = vec![len_bytes as u64; keys.len()];
        let granted = client.reserve(&lens, Retention::Short, PATIENCE).context("reserving")?;
        let mut commits = Vec::with_capacity(keys.len());
        for (key, room) in keys.iter().zip(granted) {
            let ticket =
                room.map_err(|refusal| anyhow::anyhow!("reserving: {}", refusal.as_str()))?;
            Content::of(key).fill(&mut bytes);
            ticket.write(0, &bytes)?;
            commits.push(Commit { ticket, key, len_bytes: len_bytes as u64, lineage: None });
        }
        for outcome in
            client.commit(NAMESPACE, commits, Retention::Short, None).context("committing")?
        {
            outcome.map_err(|refusal| anyhow::anyhow!("committing: {}", refusal.as_str()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_holds_every_number_once_and_seeds_differ() {
        let order = shuffled(1000, 1);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        assert_ne!(order, sorted);
        assert_ne!(order, shuffled(1000, 2));
    }
}
