//! Which layer is of which kind. Models say it in several ways; what none of them says is full attention.

use std::fmt;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::fields::Fields;

/// What a layer looks back at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All tokens.
    Full,
    /// The last so many tokens.
    Window(u64),
    /// The tokens of a chunk of so many.
    Chunk(u64),
    /// A state of fixed size: linear attention, Mamba, convolutions.
    State,
    /// What an earlier layer has kept.
    Shared,
    /// No tokens at all: only a feed-forward part.
    Nothing,
}

impl Kind {
    /// Whether the layer keeps something for each token.
    pub(super) const fn keeps_tokens(self) -> bool {
        matches!(self, Self::Full | Self::Window(_) | Self::Chunk(_))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => out.write_str("full attention"),
            Self::Window(tokens) => write!(out, "window of {tokens} tokens"),
            Self::Chunk(tokens) => write!(out, "chunks of {tokens} tokens"),
            Self::State => out.write_str("state (linear attention, Mamba)"),
            Self::Shared => out.write_str("shares an earlier layer's"),
            Self::Nothing => out.write_str("no attention"),
        }
    }
}

/// The kind of each layer, in order.
pub(super) fn of(fields: &Fields<'_>, layers: u64) -> Result<Vec<Kind>> {
    let mut kinds = said(fields, layers)?;
    ensure!(kinds.len() as u64 == layers, "{} kinds for {layers} layers", kinds.len());
    let shared = fields.number(&["num_kv_shared_layers"]).unwrap_or(0);
    for kind in kinds.iter_mut().rev().take(usize::try_from(shared)?) {
        *kind = Kind::Shared;
    }
    Ok(kinds)
}

fn said(fields: &Fields<'_>, layers: u64) -> Result<Vec<Kind>> {
    if let Some(words) = fields.words("layer_types").or_else(|| fields.words("layers_block_type")) {
        return words.into_iter().map(|word| by_word(word, fields)).collect();
    }
    if let Some(pattern) = fields.text("hybrid_override_pattern") {
        return pattern.chars().map(by_letter).collect();
    }
    if let Some(of_linear) = fields.inside("linear_attn_config") {
        // Numbered from 1.
        let full = of_linear
            .numbers("full_attn_layers")
            .context("linear_attn_config without full_attn_layers")?;
        return Ok((1..=layers).map(|layer| full_or_state(full.contains(&layer))).collect());
    }
    if let Some(full) = fields.numbers("attn_layer_indices") {
        return Ok((0..layers).map(|layer| full_or_state(full.contains(&layer))).collect());
    }
    if let Some(period) = fields.number(&["attn_layer_period"]) {
        let offset = fields.number(&["attn_layer_offset"]).unwrap_or(0);
        ensure!(period > 0, "attn_layer_period is 0");
        return Ok((0..layers).map(|layer| full_or_state(layer % period == offset)).collect());
    }
    if let Some(every) = fields.number(&["full_attention_interval"]) {
        ensure!(every > 0, "full_attention_interval is 0");
        return Ok((1..=layers).map(|layer| full_or_state(layer % every == 0)).collect());
    }
    windows(fields, layers)
}

fn full_or_state(is_full: bool) -> Kind {
    if is_full { Kind::Full } else { Kind::State }
}

fn by_word(word: &str, fields: &Fields<'_>) -> Result<Kind> {
    Ok(match word {
        "full_attention" | "attention" | "global_attention" | "global" => Kind::Full,
        "sliding_attention" | "local_attention" | "local" | "sliding_window" => {
            Kind::Window(window(fields).with_context(|| format!("{word} without sliding_window"))?)
        }
        "chunked_attention" => {
            let chunk = fields.number(&["attention_chunk_size"]);
            Kind::Chunk(chunk.context("chunked_attention without attention_chunk_size")?)
        }
        "linear_attention" | "mamba" | "mamba2" | "recurrent" | "conv" | "linear" => Kind::State,
        "mlp" | "moe" => Kind::Nothing,
        unknown => bail!("layers of kind {unknown:?} are not known"),
    })
}

fn by_letter(letter: char) -> Result<Kind> {
    Ok(match letter {
        '*' => Kind::Full,
        'M' => Kind::State,
        '-' | 'E' => Kind::Nothing,
        unknown => bail!("layers of kind {unknown:?} are not known"),
    })
}

fn window(fields: &Fields<'_>) -> Option<u64> {
    fields.number(&[
        "sliding_window",
        "sliding_window_size",
        "local_attention",
        "attention_window_size",
    ])
}

/// Models that name a window and no kinds: all layers have it, or all but each n-th.
fn windows(fields: &Fields<'_>, layers: u64) -> Result<Vec<Kind>> {
    let is_used = fields.truth("use_sliding_window") != Some(false);
    let Some(window) = window(fields).filter(|_| is_used) else {
        let full = usize::try_from(layers)?;
        return Ok(vec![Kind::Full; full]);
    };
    let pattern = fields.get("sliding_window_pattern");
    let every = match (pattern.and_then(Value::as_u64), fields.text("model_type")) {
        (Some(every), _) => every,
        (None, _) if pattern.is_some() => bail!("sliding_window_pattern is not a number"),
        (None, Some("gemma2")) => 2,
        (None, Some("gemma3_text")) => 6,
        (None, _) => 0,
    };
    // Where a switch turned windows on, they begin after so many layers.
    let is_switched = fields.truth("use_sliding_window") == Some(true);
    let first = fields.number(&["max_window_layers"]).filter(|_| is_switched).unwrap_or(0);
    let is_full = |layer: u64| layer < first || (layer + 1).is_multiple_of(every);
    Ok((0..layers)
        .map(|layer| if is_full(layer) { Kind::Full } else { Kind::Window(window) })
        .collect())
}
