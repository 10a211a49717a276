//! The files of a model: its tokenizer, its chat templates, its special tokens.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokenizers::AddedToken;

use crate::json::{Json, Map};

/// A tokenizer's file is below this; the largest vocabularies take some 30 MB.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The special tokens that templates know as variables.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Models that both engines encode in code of their own, and those that only vLLM does.
const NATIVE: [&str; 8] = [
    "DeepseekV32ForCausalLM",
    "DeepseekV4ForCausalLM",
    "DeepseekV4ForConditionalGeneration",
    "DeepseekV41ForCausalLM",
    "InklingForCausalLM",
    "InklingForConditionalGeneration",
    "KimiK3ForConditionalGeneration",
    "MoonshotKimiaForCausalLM",
];
const NATIVE_IN_VLLM: [&str; 1] = ["GptOssForCausalLM"];

/// Why a model cannot be used for token ids; its requests are routed by load alone.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is no file to make a tokenizer of.
    #[error("{folder}: no tokenizer.json")]
    Missing {
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The vocabulary is there, but not the rules by which text is split: these are in Python code of the model.
    #[error(
        "{folder}: tiktoken.model without tokenizer.json is unsupported: convert it, or route by load alone"
    )]
    Tiktoken {
        /// Where it lies.
        folder: PathBuf,
    },
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What reading it said.
        source: io::Error,
    },
    /// A file is not what its name says.
    #[error("{path}: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// What was read, before anything is compiled.
pub(crate) struct ModelFiles {
    pub(crate) tokenizer: tokenizers::Tokenizer,
    /// By name; a model's only one is called `default`.
    pub(crate) templates: BTreeMap<String, String>,
    pub(crate) special_tokens: Map,
    pub(crate) native: Native,
}

/// Who encodes chats of this model without a template.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Native {
    Nowhere,
    InVllm,
    Everywhere,
}

/// Reads what `path` has: the folder of a model, or its `tokenizer.json`.
pub(crate) fn read(path: &Path) -> Result<ModelFiles, LoadError> {
    let folder = if path.is_file() { path.parent().unwrap_or(path) } else { path };
    let about = json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let older = json(&folder.join("special_tokens_map.json"))?.unwrap_or_default();
    let token = |name: &&str| {
        let text = about.get(name).or_else(|| older.get(name)).and_then(token_text)?;
        Some(((*name).into(), Json::Text(text)))
    };
    Ok(ModelFiles {
        tokenizer: tokenizer(folder, &about)?,
        templates: templates(folder, &about)?,
        special_tokens: SPECIAL_TOKENS.iter().filter_map(token).collect(),
        native: native(folder)?,
    })
}

/// A token is written as a text or as an object around it.
fn token_text(token: &Json) -> Option<Arc<str>> {
    token.as_text().or_else(|| token.get("content")?.as_text()).cloned()
}

fn tokenizer(folder: &Path, about: &Json) -> Result<tokenizers::Tokenizer, LoadError> {
    let path = folder.join("tokenizer.json");
    let Some(bytes) = bytes(&path)? else {
        let folder = folder.to_owned();
        let tiktoken = matches!(folder.join("tiktoken.model").try_exists(), Ok(true));
        return Err(if tiktoken {
            LoadError::Tiktoken { folder }
        } else {
            LoadError::Missing { folder }
        });
    };
    let malformed = |why: String| LoadError::Malformed { path: path.clone(), why };
    let mut tokenizer =
        tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| malformed(error.to_string()))?;
    // Transformers adds what only the other file has, in the order of the ids.
    let mut further: Vec<(u32, AddedToken)> = about
        .get("added_tokens_decoder")
        .and_then(Json::as_map)
        .into_iter()
        .flatten()
        .filter_map(|(id, token)| Some((id.parse().ok()?, added_token(token)?)))
        .collect();
    further.sort_by_key(|(id, _)| *id);
    let known = tokenizer.get_added_tokens_decoder();
    further.retain(|(id, token)| known.get(id) != Some(token));
    for (id, token) in further {
        let content = token.content.clone();
        tokenizer.add_tokens([token]).map_err(|error| malformed(error.to_string()))?;
        if tokenizer.token_to_id(&content) != Some(id) {
            return Err(malformed(format!(
                "{content:?} is not {id} as tokenizer_config.json says"
            )));
        }
    }
    Ok(tokenizer)
}

fn added_token(token: &Json) -> Option<AddedToken> {
    let flag = |name: &str| token.get(name).and_then(Json::as_bool).unwrap_or(false);
    let special = flag("special");
    let normalized = token.get("normalized").and_then(Json::as_bool).unwrap_or(!special);
    let added = AddedToken::from(token_text(token)?.to_string(), special);
    Some(
        added
            .lstrip(flag("lstrip"))
            .rstrip(flag("rstrip"))
            .single_word(flag("single_word"))
            .normalized(normalized),
    )
}

/// `chat_template.jinja` and `chat_templates/*.jinja` before what older files hold.
fn templates(folder: &Path, about: &Json) -> Result<BTreeMap<String, String>, LoadError> {
    let mut templates = BTreeMap::new();
    if let Some(template) = text(&folder.join("chat_template.jinja"))? {
        templates.insert("default".to_owned(), template);
    }
    let named = folder.join("chat_templates");
    for entry in fs::read_dir(&named).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
        let is_template = path.extension().is_some_and(|extension| extension == "jinja");
        if let (true, Some(name), Some(template)) = (is_template, name, text(&path)?) {
            templates.insert(name, template);
        }
    }
    if !templates.is_empty() {
        return Ok(templates);
    }
    let processor = json(&folder.join("chat_template.json"))?.unwrap_or_default();
    match about.get("chat_template").or_else(|| processor.get("chat_template")) {
        Some(Json::Text(template)) => {
            templates.insert("default".to_owned(), template.to_string());
        }
        Some(Json::List(named)) => templates.extend(named.iter().filter_map(|named| {
            let field = |name| named.get(name)?.as_text().map(|text| text.to_string());
            Some((field("name")?, field("template")?))
        })),
        _ => {}
    }
    Ok(templates)
}

fn native(folder: &Path) -> Result<Native, LoadError> {
    // Mistral's own tokenizer file: engines then use its own library for chats, too.
    if matches!(folder.join("tekken.json").try_exists(), Ok(true)) {
        return Ok(Native::Everywhere);
    }
    let config = json(&folder.join("config.json"))?.unwrap_or_default();
    let architectures = config.get("architectures").and_then(Json::as_list).unwrap_or_default();
    let any_of = |names: &[&str]| {
        architectures.iter().filter_map(Json::as_text).any(|name| names.contains(&&**name))
    };
    Ok(match (any_of(&NATIVE), any_of(&NATIVE_IN_VLLM)) {
        (true, _) => Native::Everywhere,
        (false, true) => Native::InVllm,
        (false, false) => Native::Nowhere,
    })
}

fn json(path: &Path) -> Result<Option<Json>, LoadError> {
    let Some(bytes) = bytes(path)? else { return Ok(None) };
    let malformed = |error: serde_json::Error| LoadError::Malformed {
        path: path.to_owned(),
        why: error.to_string(),
    };
    Json::parse(&bytes).map(Some).map_err(malformed)
}

fn text(path: &Path) -> Result<Option<String>, LoadError> {
    let Some(bytes) = bytes(path)? else { return Ok(None) };
    let malformed = |_| LoadError::Malformed { path: path.to_owned(), why: "not UTF-8".to_owned() };
    String::from_utf8(bytes).map(Some).map_err(malformed)
}

/// What a file holds; none if there is no such file.
fn bytes(path: &Path) -> Result<Option<Vec<u8>>, LoadError> {
    let unreadable = |source| LoadError::Read { path: path.to_owned(), source };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
        Ok(about) if about.len() > FILE_BYTES_MAX => {
            let why = format!("more than {FILE_BYTES_MAX} bytes");
            return Err(LoadError::Malformed { path: path.to_owned(), why });
        }
        Ok(_) => {}
    }
    fs::read(path).map(Some).map_err(unreadable)
}
