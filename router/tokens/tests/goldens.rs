//! The same text and the same ids as the real engines and Transformers made (`make_goldens.py`).

#![expect(clippy::unwrap_used, reason = "a test that cannot read its goldens fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use router_tokens::{CANARY, Engine, Json, Limits, Manner, Request, Route, Tokens, WhyNot};
use serde_json::Value;

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn golden(name: &str) -> Value {
    let path = here().join("golden").join(name);
    serde_json::from_slice(&fs::read(&path).unwrap()).unwrap()
}

/// What the goldens take for now.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

/// A model in a folder of its own, with this template.
fn model(name: &str, template: &str) -> (tempfile::TempDir, Tokens) {
    let folder = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(here().join("models").join(name).join(file), folder.path().join(file)).unwrap();
    }
    fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    let tokens = Tokens::load(folder.path(), Limits::default()).unwrap();
    (folder, tokens)
}

fn ids_of(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
        .collect()
}
/// What `tokens` makes of a body; a refusal of any kind is one.
fn outcome(tokens: &Tokens, body: &str, manner: &Manner) -> Result<Vec<u32>, WhyNot> {
    let request = Request::parse(Route::Chat, body.as_bytes(), 1 << 20)?;
    tokens.of(&request, manner, now()).map(|prompt| prompt.ids)
}

fn decoded(ids: &[u32]) -> String {
    let path = here().join("models/byte_level/tokenizer.json");
    tokenizers::Tokenizer::from_file(path).unwrap().decode(ids, false).unwrap()
}

fn chats_are_as_in(engine: Engine, folder: &str) {
    let chats: Vec<Value> = golden("chats.json").as_array().unwrap().clone();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for entry in fs::read_dir(here().join("templates")).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let (_folder, tokens) = model("byte_level", &fs::read_to_string(&path).unwrap());
        let expected = golden(&format!("{folder}/{stem}.json"));
        for (chat, expected) in chats.iter().zip(expected.as_array().unwrap()) {
            assert_eq!(chat["name"], expected["name"]);
            let template_kwargs = serde_json::from_value::<Json>(chat["defaults"].clone()).unwrap();
            let Json::Map(template_kwargs) = template_kwargs else { panic!("defaults are a map") };
            let manner = Manner { engine, template_kwargs, ..Manner::default() };
            let name = format!("{stem} {}", chat["name"]);
            compared += 1;
            match (
                outcome(&tokens, chat["body"].as_str().unwrap(), &manner),
                expected.get("raises"),
            ) {
                // Never run here, whatever the engine does.
                (Err(WhyNot::OwnTemplate), _) if chat["name"] == "own_template" => {}
                (Err(WhyNot::Refused(_) | WhyNot::Invalid(_)), Some(_)) => {}
                (Ok(ids), None) if ids == ids_of(&expected["ids"]) => {}
                (Ok(ids), None) => {
                    wrong.push(format!("{name}:\n  {:?}\n  {:?}", decoded(&ids), expected["text"]))
                }
                (outcome, raises) => wrong.push(format!("{name}: {outcome:?} but {raises:?}")),
            }
        }
    }
    assert!(compared > 300, "{compared}");
    assert!(wrong.is_empty(), "{} of {compared}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn chats_are_what_vllm_makes_of_them() {
    chats_are_as_in(Engine::Vllm, "vllm");
}

#[test]
fn chats_are_what_sglang_makes_of_them() {
    chats_are_as_in(Engine::Sglang, "sglang");
}

/// What chat templates don't do, and what is not worth following Python in: no credit, or another text.
const DIFFERENT: [&str; 15] = [
    "{{ '%s-%d' % ('a', 3) }}",
    "{{ '%05d' % 42 }}",
    "{{ 'a<b>&\"' | e }}",
    "{{ messages[0].content | e }}",
    "{{ 'é'.encode }}",
    "{{ 'long text here' | wordcount }}",
    "{{ 'x'.ljust(3) }}|",
    "{{ 'x'.zfill(3) }}",
    "{{ 'x'|center(5) }}|",
    "{{ lipsum is defined }}",
    "{{ 07 }}",
    "{{ 'http://x' | urlencode }}",
    "{{ 3 | filesizeformat }}",
    "{{ 'text' | truncate(3) }}",
    "{{ 'b' | attr('upper') is defined }}",
];

#[test]
fn expressions_give_what_they_give_in_python() {
    let tokenizer =
        tokenizers::Tokenizer::from_file(here().join("models/byte_level/tokenizer.json")).unwrap();
    let body = r#"{"messages": [{"role": "system", "content": "It's a \"test\"."}, {"role": "user", "content": "  Hello  "},
        {"role": "assistant", "content": "Hi\n"}]}"#;
    let mut wrong = Vec::new();
    let mut different = 0;
    let golden = golden("expressions.json");
    for expected in golden.as_array().unwrap() {
        let source = expected["source"].as_str().unwrap();
        let folder = tempfile::tempdir().unwrap();
        for file in ["tokenizer.json", "tokenizer_config.json"] {
            fs::copy(here().join("models/byte_level").join(file), folder.path().join(file))
                .unwrap();
        }
        fs::write(folder.path().join("chat_template.jinja"), source).unwrap();
        // A template that cannot be compiled is refused as well, only earlier.
        let outcome =
            Tokens::load(folder.path(), Limits::default()).map_err(|error| error.to_string());
        let outcome = outcome.and_then(|tokens| outcome_text(&tokens, body));
        let differs = DIFFERENT.contains(&source);
        different += usize::from(differs);
        match (outcome, expected["text"].as_str()) {
            (Err(_), None) if !differs => {}
            (Ok(ids), Some(text))
                if !differs && ids == tokenizer.encode_fast(text, false).unwrap().get_ids() => {}
            _ if differs => {}
            (outcome, text) => wrong.push(format!(
                "{source}\n  ours {:?}\n  python {text:?}",
                outcome.map(|ids| decoded(&ids))
            )),
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(different, DIFFERENT.len());
}

fn outcome_text(tokens: &Tokens, body: &str) -> Result<Vec<u32>, String> {
    outcome(tokens, body, &Manner::default()).map_err(|why| why.to_string())
}

#[test]
fn texts_are_encoded_in_pieces_as_they_are_as_a_whole() {
    for name in ["byte_level", "pieces"] {
        let (_folder, tokens) = model(name, "");
        let golden = golden(&format!("texts_{name}.json"));
        // The second time from the cache.
        for round in 0..2 {
            for expected in golden.as_array().unwrap() {
                for (ids, specials) in [("ids", false), ("with_specials", true)] {
                    let body = serde_json::json!({"prompt": expected["text"], "add_special_tokens": specials});
                    let request =
                        Request::parse(Route::Completions, body.to_string().as_bytes(), 1 << 20)
                            .unwrap();
                    let prompt = tokens.of(&request, &Manner::default(), now()).unwrap();
                    assert_eq!(prompt.ids, ids_of(&expected[ids]), "{name} {expected}");
                    assert_eq!(prompt.certain, prompt.ids.len());
                    assert_eq!(prompt.text_bytes, expected["text"].as_str().unwrap().len());
                    assert!(round == 0 || prompt.cached_bytes == prompt.text_bytes);
                }
            }
        }
    }
}

#[test]
fn the_canary_tells_tokenizers_apart() {
    let canary = |name: &str| {
        let golden = golden(&format!("texts_{name}.json"));
        ids_of(
            &golden.as_array().unwrap().iter().find(|text| text["text"] == CANARY).unwrap()["ids"],
        )
    };
    let (_folder, tokens) = model("byte_level", "");
    assert!(tokens.agrees(&canary("byte_level")));
    assert!(!tokens.agrees(&canary("pieces")));
    assert!(!tokens.agrees(&[]));
}
