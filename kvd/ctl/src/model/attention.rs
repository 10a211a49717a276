//! What a layer of attention keeps of a token.

use anyhow::{Context as _, Result, bail, ensure};

use super::fields::Fields;

/// By the shape of what is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attention {
    /// A key and a value for each key-value head: MHA, GQA and MQA differ in how many there are.
    Heads { heads: u64, kv_heads: u64, key_numbers: u64, value_numbers: u64 },
    /// One compressed vector and the rotated part of the key, the same on every rank (MLA).
    Latent { rank: u64, rotated: u64 },
}

impl Attention {
    pub(super) fn of(fields: &Fields<'_>) -> Result<Self> {
        if let Some(rank) = fields.number(&["kv_lora_rank"]) {
            let rotated = fields
                .number(&["qk_rope_head_dim"])
                .context("kv_lora_rank without qk_rope_head_dim: what is kept is not known")?;
            return Ok(Self::Latent { rank, rotated });
        }
        let heads = fields
            .number(&["num_attention_heads", "n_head", "n_heads"])
            .context("no num_attention_heads")?;
        let kv_heads = kv_heads(fields, heads)?;
        let key_numbers = match fields.number(&["head_dim", "kv_channels"]) {
            Some(numbers) => numbers,
            None => {
                let hidden = fields.number(&["hidden_size", "n_embd", "d_model"]);
                let hidden = hidden.context("neither head_dim nor hidden_size")?;
                ensure!(
                    heads > 0 && hidden % heads == 0,
                    "hidden_size {hidden} over {heads} heads"
                );
                hidden / heads
            }
        };
        let value_numbers = fields.number(&["v_head_dim"]).unwrap_or(key_numbers);
        ensure!(kv_heads > 0 && key_numbers > 0, "{kv_heads} key-value heads of {key_numbers}");
        Ok(Self::Heads { heads, kv_heads, key_numbers, value_numbers })
    }

    /// How many numbers one rank keeps of a token, and all ranks together. Ranks beyond the key-value heads keep copies
    /// under keys of their own; what is the same on all ranks is stored once.
    pub(super) fn numbers(&self, ranks: u64) -> Result<(u64, u64)> {
        match *self {
            Self::Latent { rank, rotated } => {
                let numbers = rank.checked_add(rotated).context("too large a rank")?;
                Ok((numbers, numbers))
            }
            Self::Heads { heads, kv_heads, key_numbers, value_numbers } => {
                ensure!(heads % ranks == 0, "{heads} heads can't be shared out to {ranks} ranks");
                let shares = kv_heads.is_multiple_of(ranks) || ranks.is_multiple_of(kv_heads);
                ensure!(shares, "{kv_heads} key-value heads can't be shared out to {ranks} ranks");
                let each = key_numbers.checked_add(value_numbers).context("too large heads")?;
                let rank = (kv_heads / ranks).max(1).checked_mul(each).context("too many heads")?;
                Ok((rank, rank.checked_mul(ranks).context("too many ranks")?))
            }
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Heads { heads, kv_heads, key_numbers, value_numbers } => {
                let name = match kv_heads {
                    1 => "MQA",
                    _ if kv_heads == heads => "MHA",
                    _ => "GQA",
                };
                if key_numbers == value_numbers {
                    format!("{name}, {kv_heads} heads of {key_numbers}")
                } else {
                    format!("{name}, {kv_heads} heads of {key_numbers} and {value_numbers}")
                }
            }
            Self::Latent { rank, rotated } => format!("MLA, {rank} + {rotated}"),
        }
    }
}

fn kv_heads(fields: &Fields<'_>, heads: u64) -> Result<u64> {
    const NAMES: [&str; 4] =
        ["num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"];
    // Some models write the field and mean it only together with a switch.
    if fields.truth("new_decoder_architecture") == Some(false)
        && fields.truth("multi_query") == Some(true)
    {
        return Ok(1);
    }
    if fields.truth("multi_query_attention") == Some(false) {
        return Ok(heads);
    }
    if let Some(list) = NAMES.iter().find_map(|name| fields.numbers(name)) {
        return match list.first() {
            Some(first) if list.iter().all(|one| one == first) => Ok(*first),
            _ => bail!("the layers of this model differ in their heads: not supported"),
        };
    }
    if let Some(kv_heads) =
        fields.inside("attn_config").and_then(|inside| inside.number(&["kv_n_heads"]))
    {
        return Ok(kv_heads);
    }
    match fields.number(&NAMES) {
        Some(kv_heads) => Ok(kv_heads),
        None if fields.truth("multi_query") == Some(true) => Ok(1),
        None => Ok(heads),
    }
}
