//! What a model keeps of each token, from the `config.json` that lies beside its weights. Pure: text in, figures out.
//!
//! `kinds.rs` finds out which layer is of which kind, `attention.rs` what a layer of attention keeps. A model that says something
//! that is not understood here is refused: no figure is better than a wrong one.

mod attention;
mod fields;
mod kinds;
#[cfg(test)]
mod tests;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use attention::Attention;
use fields::Fields;
pub(crate) use kinds::Kind;

/// What a model keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    /// `model_type` of the file.
    pub(crate) name: String,
    /// The number format of its weights, which engines use for the cache too unless they are told otherwise.
    pub(crate) dtype: Option<Dtype>,
    /// Layers that keep the same, in the order of their first one.
    pub(crate) groups: Vec<Group>,
    /// What is kept but not counted, in words.
    pub(crate) remarks: Vec<String>,
}

/// Layers that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) kind: Kind,
    pub(crate) layers: u64,
    /// `None`: nothing for each token.
    attention: Option<Attention>,
}

/// How a number of the cache is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dtype {
    /// 1 byte, any of its variants
    Fp8,
    /// 2 bytes
    Bf16,
    /// 2 bytes
    Fp16,
    /// 4 bytes
    Fp32,
}

impl Dtype {
    pub(crate) const fn bytes(self) -> u64 {
        match self {
            Self::Fp8 => 1,
            Self::Bf16 | Self::Fp16 => 2,
            Self::Fp32 => 4,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fp8 => "fp8",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp32 => "fp32",
        }
    }

    fn of(text: &str) -> Option<Self> {
        match text {
            "bfloat16" => Some(Self::Bf16),
            "float16" | "half" => Some(Self::Fp16),
            "float32" | "float" => Some(Self::Fp32),
            _ => None,
        }
    }
}

/// Most layers that are taken for meant.
const LAYERS_MAX: u64 = 4_096;

impl Model {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// It is no such file, or what the model keeps can't be told from it.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let whole: Value = serde_json::from_str(text).context("not JSON")?;
        let fields = Fields::of_text(&whole);
        let name = fields.text("model_type").unwrap_or("unknown").to_owned();
        if fields.has("block_configs") {
            bail!("the layers of this model differ in their heads (block_configs): not supported");
        }
        if fields.truth("is_encoder_decoder") == Some(true) || fields.has("cross_attention_layers")
        {
            bail!(
                "this model attends to more than its own tokens (cross-attention): not supported"
            );
        }
        let layers = fields
            .number(&["num_hidden_layers", "n_layer", "n_layers", "num_layers"])
            .context("no num_hidden_layers: is this the config.json of a language model?")?;
        ensure!((1..=LAYERS_MAX).contains(&layers), "{layers} layers");
        let kinds = kinds::of(&fields, layers)?;
        let mut groups: Vec<Group> = Vec::new();
        for kind in kinds {
            match groups.iter_mut().find(|group| group.kind == kind) {
                Some(group) => group.layers += 1,
                None => groups.push(Group::new(kind, &fields)?),
            }
        }
        if groups.iter().all(|group| group.attention.is_none()) {
            bail!("no layer keeps anything for each token: there is nothing to cache by tokens");
        }
        let dtype = fields.text("torch_dtype").or_else(|| fields.text("dtype")).and_then(Dtype::of);
        Ok(Self { name, dtype, groups, remarks: remarks(&fields) })
    }

    /// What a host with so many ranks of tensor parallelism keeps for one token.
    ///
    /// # Errors
    /// The heads can't be shared out like that.
    pub(crate) fn token(&self, dtype: Dtype, ranks: u64) -> Result<Token> {
        let mut token = Token { rank_bytes: 0, host_bytes: 0 };
        for group in &self.groups {
            let (rank_bytes, host_bytes) = group.token_bytes(dtype, ranks)?;
            token.rank_bytes += rank_bytes;
            token.host_bytes += host_bytes;
        }
        Ok(token)
    }
}

/// Bytes of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// What one rank keeps.
    pub(crate) rank_bytes: u64,
    /// What all ranks have the daemon keep. What all of them hold the same is kept once.
    pub(crate) host_bytes: u64,
}

impl Group {
    fn new(kind: Kind, fields: &Fields<'_>) -> Result<Self> {
        let attention = if kind.keeps_tokens() { Some(Attention::of(fields)?) } else { None };
        Ok(Self { kind, layers: 1, attention })
    }

    /// What these layers keep of a token: one rank, and all ranks together.
    pub(crate) fn token_bytes(&self, dtype: Dtype, ranks: u64) -> Result<(u64, u64)> {
        let Some(attention) = &self.attention else { return Ok((0, 0)) };
        let (rank, host) = attention.numbers(ranks)?;
        let scale = |numbers: u64| {
            let layers = numbers.checked_mul(self.layers);
            layers.and_then(|layers| layers.checked_mul(dtype.bytes())).context("too large a model")
        };
        Ok((scale(rank)?, scale(host)?))
    }

    /// What one layer keeps, in words.
    pub(crate) fn keeps(&self) -> String {
        self.attention.as_ref().map_or_else(|| "a state, no tokens".to_owned(), Attention::describe)
    }
}

fn remarks(fields: &Fields<'_>) -> Vec<String> {
    let mut remarks = Vec::new();
    if fields.has("index_head_dim") {
        remarks.push(
            "the indexer of sparse attention keeps a cache of its own: not counted".to_owned(),
        );
    }
    if fields.number(&["num_nextn_predict_layers", "mtp_num_hidden_layers"]).unwrap_or(0) > 0 {
        remarks.push(
            "layers that predict several tokens keep blocks too if they are used: not counted"
                .to_owned(),
        );
    }
    remarks
}
