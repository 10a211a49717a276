//! `size`: how much a model keeps of each token, how many tokens a tier holds, and how fast it must be. Needs no daemon.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::exit::codes;
use crate::model::{Dtype, Model, Token};
use crate::text;

/// Tell what a model needs: bytes a token, tokens a tier holds, break-even bandwidth
///
/// Reads the `config.json` that lies beside a model's weights. A tier that loads faster than the break-even bandwidth beats
/// computing the same tokens again; a slower one does not pay. Block headers and the devices' bookkeeping are not counted:
/// they are far below 1 % for blocks of 64 KiB and more.
#[derive(Debug, Args)]
#[command(after_help = codes!("0 told, 1 no such file, or no model that is known"))]
pub(crate) struct Size {
    /// The model's config.json, or the folder that holds it
    #[arg(long, value_name = "PATH")]
    model: PathBuf,
    /// How the engine keeps numbers in its cache [default: as the weights]
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
    /// Tokens of one block, as the engine is set to
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    block_tokens: u64,
    /// Ranks of tensor parallelism on this host
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1024))]
    tensor_parallel: u64,
    /// Memory for the arena, as the daemon's --max-bytes
    #[arg(long, value_name = "SIZE", value_parser = text::size, default_value = "8G")]
    host_bytes: u64,
    /// Room on disk, as the daemon's --long-bytes
    #[arg(long, value_name = "SIZE", value_parser = text::size)]
    disk_bytes: Option<u64>,
    /// Tokens a second that the engine computes of a prompt, all ranks together
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    prefill_tokens_per_second: Option<u64>,
    /// Print all figures as JSON
    #[arg(long)]
    json: bool,
}

/// Largest file that is read.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

pub(crate) fn run(asked: &Size) -> Result<ExitCode> {
    let path =
        if asked.model.is_dir() { asked.model.join("config.json") } else { asked.model.clone() };
    let model = read(&path).and_then(|text| Model::parse(&text));
    let model = model.with_context(|| path.display().to_string())?;
    let answer = Answer::of(&model, asked)?;
    if asked.json {
        text::print_json(&answer.as_json())?;
    } else {
        answer.print()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)?.take(CONFIG_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// All figures.
#[derive(Debug)]
struct Answer<'a> {
    model: &'a Model,
    dtype: Dtype,
    asked: &'a Size,
    token: Token,
    /// One block of all ranks.
    block_bytes: u64,
}

/// How much of the model a tier holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    bytes: u64,
    blocks: u64,
    tokens: u64,
}

impl<'a> Answer<'a> {
    fn of(model: &'a Model, asked: &'a Size) -> Result<Self> {
        let dtype = asked.dtype.or(model.dtype).unwrap_or(Dtype::Bf16);
        let token = model.token(dtype, asked.tensor_parallel)?;
        let block_bytes = token.host_bytes.checked_mul(asked.block_tokens);
        Ok(Self {
            model,
            dtype,
            asked,
            token,
            block_bytes: block_bytes.context("too large a block")?,
        })
    }

    fn room(&self, bytes: u64) -> Room {
        let blocks = bytes / self.block_bytes.max(1);
        Room { bytes, blocks, tokens: blocks.saturating_mul(self.asked.block_tokens) }
    }

    fn tiers(&self) -> Vec<(&'static str, Room)> {
        let disk = self.asked.disk_bytes.map(|bytes| ("disk", self.room(bytes)));
        [("memory", self.room(self.asked.host_bytes))].into_iter().chain(disk).collect()
    }

    /// Bytes a second at which loading takes as long as computing.
    fn break_even(&self) -> Option<u64> {
        let rate = self.asked.prefill_tokens_per_second?;
        Some(self.token.host_bytes.saturating_mul(rate))
    }

    fn as_json(&self) -> Value {
        let groups = self.model.groups.iter().map(|group| {
            let bytes = group.token_bytes(self.dtype, self.asked.tensor_parallel);
            let (rank, host) = bytes.unwrap_or_default();
            json!({ "layers": group.layers, "kind": group.kind.to_string(), "keeps": group.keeps(),
                "token_bytes_rank": rank, "token_bytes": host })
        });
        let tiers = self.tiers().into_iter().map(|(name, room)| {
            json!({ "tier": name, "bytes": room.bytes, "blocks": room.blocks, "tokens": room.tokens })
        });
        json!({
            "model_type": self.model.name,
            "dtype": self.dtype.name(),
            "tensor_parallel": self.asked.tensor_parallel,
            "block_tokens": self.asked.block_tokens,
            "groups": groups.collect::<Vec<_>>(),
            "token_bytes_rank": self.token.rank_bytes,
            "token_bytes": self.token.host_bytes,
            "block_bytes": self.block_bytes,
            "tiers": tiers.collect::<Vec<_>>(),
            "break_even_bytes_per_second": self.break_even(),
            "remarks": self.model.remarks,
        })
    }

    fn print(&self) -> Result<()> {
        let mut layers = text::table(&["layers", "kind", "keeps", "bytes a token"], 3);
        for group in &self.model.groups {
            let (_, bytes) = group.token_bytes(self.dtype, self.asked.tensor_parallel)?;
            let cells = [group.layers.to_string(), group.kind.to_string(), group.keeps()];
            layers.add_row(cells.into_iter().chain([text::count(bytes)]));
        }
        text::print(&layers)?;
        let ranks = self.asked.tensor_parallel;
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "\n{}, {}, {ranks} rank{}",
            self.model.name,
            self.dtype.name(),
            plural(ranks)
        )?;
        let token = self.token;
        writeln!(
            out,
            "a token: {} ({} bytes)",
            text::bytes(token.host_bytes),
            text::count(token.host_bytes)
        )?;
        if ranks > 1 {
            writeln!(out, "  of which one rank keeps {} bytes", text::count(token.rank_bytes))?;
        }
        let block = text::bytes(self.block_bytes);
        writeln!(out, "a block of {} tokens: {block}", self.asked.block_tokens)?;
        if let (Some(bytes), Some(rate)) = (self.break_even(), self.asked.prefill_tokens_per_second)
        {
            writeln!(
                out,
                "break-even at {} tokens/s: {}/s",
                text::count(rate),
                text::bytes(bytes)
            )?;
        }
        for remark in self.model.remarks.iter().map(String::as_str).chain(self.windows()) {
            writeln!(out, "note: {remark}")?;
        }
        writeln!(out)?;
        drop(out);
        let mut tiers = text::table(&["tier", "size", "blocks", "tokens"], 1);
        for (name, room) in self.tiers() {
            let figures =
                [text::bytes(room.bytes), text::count(room.blocks), text::count(room.tokens)];
            tiers.add_row([name.to_owned()].into_iter().chain(figures));
        }
        text::print(&tiers)
    }

    /// Layers that need less than is counted.
    fn windows(&self) -> Option<&'static str> {
        use crate::model::Kind;
        let has = |of: fn(&Kind) -> bool| self.model.groups.iter().any(|group| of(&group.kind));
        has(|kind| matches!(kind, Kind::Window(_) | Kind::Chunk(_))).then_some(
            "layers with a window need only its tokens of each request; counted is what blocks of all layers take",
        )
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        size: Size,
    }

    const CONFIG: &str = r#"{ "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
        "num_attention_heads": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16" }"#;

    fn figures(words: &[&str]) -> Value {
        let line = ["size", "--model", "config.json"].iter().chain(words);
        let asked = Line::try_parse_from(line).expect("right usage").size;
        let model = Model::parse(CONFIG).expect("understood");
        Answer::of(&model, &asked).expect("answered").as_json()
    }

    #[test]
    fn tiers_hold_whole_blocks() {
        let found = figures(&["--host-bytes", "64G", "--disk-bytes", "2T"]);
        assert_eq!(
            (&found["token_bytes"], &found["block_bytes"]),
            (&json!(131_072), &json!(2 << 20))
        );
        assert_eq!(found["tiers"][0]["tokens"], json!(524_288));
        assert_eq!(found["tiers"][1]["blocks"], json!(1 << 20));
        let small = figures(&["--host-bytes", "3M"]);
        assert_eq!(
            (&small["tiers"][0]["blocks"], &small["tiers"][0]["tokens"]),
            (&json!(1), &json!(16))
        );
    }

    #[test]
    fn break_even_is_what_computing_makes() {
        assert_eq!(figures(&[])["break_even_bytes_per_second"], Value::Null);
        let found = figures(&["--prefill-tokens-per-second", "10000", "--dtype", "fp8"]);
        assert_eq!(found["break_even_bytes_per_second"], json!(655_360_000));
        assert_eq!(found["dtype"], "fp8");
    }

    #[test]
    fn ranks_keep_their_share() {
        let found = figures(&["--tensor-parallel", "8", "--block-tokens", "64"]);
        assert_eq!(
            (&found["token_bytes_rank"], &found["token_bytes"]),
            (&json!(16_384), &json!(131_072))
        );
        assert_eq!(found["block_bytes"], json!(8 << 20));
    }
}
