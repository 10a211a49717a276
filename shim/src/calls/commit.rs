//! What was written becomes blocks.

use kvd_client::{Commit, LINEAGE_BYTES_MAX, Lineage};

use crate::codes::Refusal;
use crate::failure::Failure;
use crate::foreign::Caller;
use crate::registry;
use crate::shapes::{self, CommitItem, Namespace};

pub(crate) fn commit(
    caller: Caller<'_>,
    client: shapes::Client,
    space: *const Namespace,
    (items, count): (*const CommitItem, usize),
    (retention, ttl_ms): (u8, u64),
    refusals: *mut u8,
) -> Result<(), Failure> {
    let mut places = caller.outputs("the array for the answers", refusals, count)?;
    places.fill(Refusal::NotAsked as u8);
    let space = super::namespace(caller, space)?;
    let items = caller.items("the array of commits", items, count)?;
    let retention = super::retention(retention)?;
    let mut keys = Vec::with_capacity(items.len());
    let mut lineages = Vec::with_capacity(items.len());
    for item in items {
        keys.push(super::key(caller, item.key)?);
        lineages.push(lineage(caller, item.lineage)?);
    }
    let client = registry::client(client)?;
    let handles: Vec<u64> = items.iter().map(|item| item.ticket).collect();
    let tickets = registry::take_tickets(&handles)?;
    let rows = tickets.into_iter().zip(items).zip(keys.iter().zip(&lineages));
    let commits = rows.map(|((ticket, item), (key, lineage))| Commit {
        ticket,
        key,
        len_bytes: item.len,
        lineage: lineage.as_ref(),
    });
    let outcomes = client.commit(space, commits.collect(), retention, super::ttl(ttl_ms))?;
    for (index, outcome) in outcomes.into_iter().enumerate() {
        places.set(index, outcome.map_or_else(kvd_client::Refusal::code, |()| 0));
    }
    Ok(())
}

fn lineage(
    caller: Caller<'_>,
    lineage: *const shapes::Lineage,
) -> Result<Option<Lineage>, Failure> {
    if lineage.is_null() {
        return Ok(None);
    }
    let given = caller.item("a lineage", lineage)?;
    let hashes = caller.items("the engine hashes", given.engine_hashes, given.engine_hash_count)?;
    let owned = |what, bytes| Ok::<_, Failure>(caller.bytes(what, bytes)?.to_vec());
    let parent = (!given.parent.data.is_null()).then_some(given.parent);
    let lineage = Lineage {
        engine_hashes: hashes
            .iter()
            .map(|hash| owned("an engine hash", *hash))
            .collect::<Result<_, _>>()?,
        router_hashes: caller
            .items("the router hashes", given.router_hashes, given.router_hash_count)?
            .to_vec(),
        parent: parent.map(|parent| owned("the parent", parent)).transpose()?,
        tokens_per_block: given.tokens_per_block,
        lora: caller.optional_text("the lora", given.lora)?.map(ToOwned::to_owned),
        salt: caller.optional_text("the salt", given.salt)?.map(ToOwned::to_owned),
    };
    super::at_most("a lineage", lineage.encode().len(), LINEAGE_BYTES_MAX)?;
    Ok(Some(lineage))
}
