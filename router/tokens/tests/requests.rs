//! Requests that are not only text, models of other shapes, and what must not cost much.

#![expect(clippy::unwrap_used, reason = "a test whose model cannot be made fails")]

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use proptest::prelude::*;
use router_tokens::{
    Engine, Limits, LoadError, Manner, PARITY_CHATS, Prompt, Request, Route, Tokens, WhyNot,
};

/// A model in a folder: its tokenizer, and further files.
fn folder(model: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let folder = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(models.join(model).join(file), folder.path().join(file)).unwrap();
    }
    for (name, content) in files {
        fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn with_template(template: &str) -> Tokens {
    let folder = folder("byte_level", &[("chat_template.jinja", template)]);
    Tokens::load(folder.path(), Limits::default()).unwrap()
}

fn asked(tokens: &Tokens, route: Route, engine: Engine, body: &str) -> Result<Prompt, WhyNot> {
    let request = Request::parse(route, body.as_bytes(), 1 << 26).unwrap();
    tokens.of(&request, &Manner { engine, ..Manner::default() }, UNIX_EPOCH)
}

fn chat(tokens: &Tokens, body: &str) -> Result<Prompt, WhyNot> {
    asked(tokens, Route::Chat, Engine::Vllm, body)
}

fn completion(tokens: &Tokens, body: &str) -> Result<Prompt, WhyNot> {
    asked(tokens, Route::Completions, Engine::Vllm, body)
}

/// The ids of a text, without special tokens around it.
fn ids(tokens: &Tokens, text: &str) -> Vec<u32> {
    let body = serde_json::json!({"prompt": text, "add_special_tokens": false});
    completion(tokens, &body.to_string()).unwrap().ids
}

const PARTS: &str = include_str!("templates/parts.jinja");
const TEXTS: &str = include_str!("templates/chatml.jinja");
const PICTURE: &str = r#"{"messages": [{"role": "user", "content": "See:"}, {"role": "assistant", "content": "What?"},
    {"role": "user", "content": [{"type": "text", "text": "This one: "}, {"type": "image_url", "image_url": {"url": "http://a"}},
    {"type": "text", "text": "and?"}]}]}"#;
const HI: &str = r#"{"messages": [{"role": "user", "content": "Hi"}]}"#;

#[test]
fn what_stands_before_a_picture_is_certain() {
    let tokens = with_template(PARTS);
    let before = "<|im_start|>user\nSee:<|im_end|>\n<|im_start|>assistant\nWhat?<|im_end|>\n<|im_start|>user\nThis one: ";
    for engine in [Engine::Vllm, Engine::Sglang] {
        let prompt = asked(&tokens, Route::Chat, engine, PICTURE).unwrap();
        let before = ids(&tokens, before);
        // The last one may be another with what follows; nothing further is lost.
        assert!((before.len() - 1..=before.len()).contains(&prompt.certain), "{}", prompt.certain);
        assert_eq!(prompt.ids[..prompt.certain], before[..prompt.certain]);
        assert!(prompt.ids.len() > prompt.certain);
    }
}

#[test]
fn where_the_place_of_a_picture_is_unknown_its_message_is_uncertain() {
    let tokens = with_template(TEXTS);
    let prompt = chat(&tokens, PICTURE).unwrap();
    let head = "<|im_start|>system\nYou are a test assistant.<|im_end|>\n";
    let before = format!(
        "{head}<|im_start|>user\nSee:<|im_end|>\n\n<|im_start|>assistant\nWhat?<|im_end|>\n\n<|im_start|>user\n"
    );
    let before = ids(&tokens, &before);
    assert!((before.len() - 1..=before.len()).contains(&prompt.certain));
    assert_eq!(prompt.ids[..prompt.certain], before[..prompt.certain]);
}

#[test]
fn a_client_that_sends_the_mark_gains_nothing() {
    let tokens = with_template(PARTS);
    let marked = PICTURE.replace("See:", "\u{e0f5}\u{e0f6}");
    assert!(chat(&tokens, &marked).unwrap().certain < chat(&tokens, PICTURE).unwrap().certain);
}

#[test]
fn a_turn_more_is_all_that_is_encoded() {
    let tokens = with_template(TEXTS);
    let first = chat(&tokens, HI).unwrap();
    assert_eq!(first.cached_bytes, 0);
    let longer = r#"{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "No."}]}"#;
    let second = chat(&tokens, longer).unwrap();
    assert!(second.ids.starts_with(&first.ids));
    let new = second.text_bytes - second.cached_bytes;
    assert!(new < second.text_bytes / 2, "{new} of {}", second.text_bytes);
    assert_eq!(
        chat(&tokens, longer).unwrap(),
        Prompt { cached_bytes: second.text_bytes, ..second }
    );
    assert!(tokens.cache_bytes() > 0);
}

#[test]
fn prompts_come_in_every_shape() {
    let tokens = with_template(TEXTS);
    let hello = ids(&tokens, "Hello");
    let begin = ids(&tokens, "<s>");
    let with_begin = [begin, hello.clone()].concat();
    for (prompt, expected) in [
        (r#""Hello""#, &with_begin),
        (r#"["Hello", "b"]"#, &with_begin),
        ("[1, 2, 3]", &vec![1, 2, 3]),
        ("[[1, 2], [3]]", &vec![1, 2]),
    ] {
        let prompt = completion(&tokens, &format!(r#"{{"prompt": {prompt}}}"#)).unwrap();
        assert_eq!((&prompt.ids, prompt.certain), (expected, expected.len()));
    }
    for wrong in [
        "{}",
        r#"{"prompt": []}"#,
        r#"{"prompt": 1}"#,
        r#"{"prompt": [1, "a"]}"#,
        r#"{"prompt": null}"#,
    ] {
        assert!(matches!(completion(&tokens, wrong), Err(WhyNot::Invalid(_))), "{wrong}");
    }
}

#[test]
fn ids_that_are_given_are_taken() {
    let tokens = with_template(TEXTS);
    let body = r#"{"messages": [{"role": "user", "content": "Hi"}], "input_ids": [7, 8], "kv_transfer_params": {"prompt_token_ids": [9]}}"#;
    assert_eq!(asked(&tokens, Route::Chat, Engine::Sglang, body).unwrap().ids, [7, 8]);
    assert_eq!(asked(&tokens, Route::Chat, Engine::Vllm, body).unwrap().ids, [9]);
    // vLLM needs the messages if it is to repeat them.
    let echoed = body.replace("\"input_ids\"", "\"echo\": true, \"input_ids\"");
    assert_eq!(chat(&tokens, &echoed).unwrap().ids, chat(&tokens, HI).unwrap().ids);
}

#[test]
fn what_only_the_engine_knows_gets_no_ids() {
    let tokens = with_template(TEXTS);
    let with = |field: &str| {
        format!(r#"{{"prompt": "a", "messages": [{{"role": "user", "content": "Hi"}}], {field}}}"#)
    };
    let cut = with(r#""truncate_prompt_tokens": 5"#);
    for outcome in [chat(&tokens, &cut), completion(&tokens, &cut)] {
        assert_eq!(outcome, Err(WhyNot::Unknowable("truncate_prompt_tokens")));
    }
    assert_eq!(completion(&tokens, &with(r#""suffix": "z""#)), Err(WhyNot::Unknowable("suffix")));
    assert_eq!(
        completion(&tokens, &with(r#""prompt_embeds": "z""#)),
        Err(WhyNot::Unknowable("prompt_embeds"))
    );
    let keyed = with(r#""extra_key": "k""#);
    for route in [Route::Chat, Route::Completions] {
        assert_eq!(
            asked(&tokens, route, Engine::Sglang, &keyed),
            Err(WhyNot::Unknowable("extra_key"))
        );
    }
    assert!(completion(&tokens, &with(r#""suffix": """#)).is_ok());
}

#[test]
fn the_chats_to_compare_with_workers_have_ids_that_differ() {
    let tokens = with_template(include_str!("templates/thinking_tools.jinja"));
    let [without, with_tools] = PARITY_CHATS.map(|body| chat(&tokens, body).unwrap().ids);
    assert!(!without.is_empty() && with_tools.len() > without.len());
}

#[test]
fn a_template_that_comes_with_the_request_is_never_run() {
    let tokens = with_template(TEXTS);
    for own in
        [r#""chat_template": "{{ 1 }}""#, r#""chat_template_kwargs": {"chat_template": "{{ 1 }}"}"#]
    {
        let body = format!(r#"{{"messages": [{{"role": "user", "content": "Hi"}}], {own}}}"#);
        for engine in [Engine::Vllm, Engine::Sglang] {
            assert_eq!(asked(&tokens, Route::Chat, engine, &body), Err(WhyNot::OwnTemplate));
        }
    }
}

#[test]
fn everything_has_its_limit() {
    let model = folder("byte_level", &[("chat_template.jinja", TEXTS)]);
    let limited = |limits| Tokens::load(model.path(), limits).unwrap();
    let tokens = limited(Limits { text_bytes: 100, ..Limits::default() });
    let long = "a".repeat(101);
    assert_eq!(completion(&tokens, &format!(r#"{{"prompt": "{long}"}}"#)), Err(WhyNot::TooLarge));
    assert_eq!(chat(&tokens, &HI.replace("Hi", &long)), Err(WhyNot::TooLarge));
    let many = serde_json::to_string(&vec![1; 101]).unwrap();
    assert_eq!(completion(&tokens, &format!(r#"{{"prompt": {many}}}"#)), Err(WhyNot::TooLarge));
    let tokens = limited(Limits { template_fuel: 10, ..Limits::default() });
    assert_eq!(chat(&tokens, HI), Err(WhyNot::TooCostly));
}

#[test]
fn templates_are_chosen_by_name_and_tools() {
    let tools = r#", "tools": [{"type": "function", "function": {"name": "f"}}]}"#;
    let with_tools = HI.strip_suffix('}').unwrap().to_owned() + tools;
    let about = r#"{"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]}"#;
    let in_json = folder("byte_level", &[("tokenizer_config.json", about)]);
    let in_files = folder(
        "byte_level",
        &[
            ("tokenizer_config.json", r#"{"chat_template": "older"}"#),
            ("chat_template.jinja", "plain"),
            ("chat_templates/tool_use.jinja", "tools"),
        ],
    );
    for model in [in_json, in_files] {
        let tokens = Tokens::load(model.path(), Limits::default()).unwrap();
        assert_eq!(chat(&tokens, HI).unwrap().ids, ids(&tokens, "plain"));
        assert_eq!(chat(&tokens, &with_tools).unwrap().ids, ids(&tokens, "tools"));
    }
    let none = folder("byte_level", &[]);
    let tokens = Tokens::load(&none.path().join("tokenizer.json"), Limits::default()).unwrap();
    assert_eq!(chat(&tokens, HI), Err(WhyNot::NoTemplate));
    assert!(completion(&tokens, r#"{"prompt": "a"}"#).is_ok());
}

#[test]
fn models_that_engines_encode_themselves_have_completions_only() {
    let model = |architecture: &str| {
        let config = format!(r#"{{"architectures": ["{architecture}"]}}"#);
        let folder =
            folder("byte_level", &[("chat_template.jinja", TEXTS), ("config.json", &config)]);
        Tokens::load(folder.path(), Limits::default()).unwrap()
    };
    let both = model("DeepseekV4ForCausalLM");
    let one = model("GptOssForCausalLM");
    assert_eq!(chat(&both, HI), Err(WhyNot::NativeEncoder));
    assert_eq!(asked(&both, Route::Chat, Engine::Sglang, HI), Err(WhyNot::NativeEncoder));
    assert_eq!(chat(&one, HI), Err(WhyNot::NativeEncoder));
    assert!(asked(&one, Route::Chat, Engine::Sglang, HI).is_ok());
    assert!(completion(&both, r#"{"prompt": "a"}"#).is_ok());
    assert!(chat(&model("LlamaForCausalLM"), HI).is_ok());
    assert_eq!(chat(&with_template(TEXTS).without_template(), HI), Err(WhyNot::NativeEncoder));
}

#[test]
fn a_model_that_cannot_be_used_says_why() {
    let empty = tempfile::tempdir().unwrap();
    let load = |folder: &Path| Tokens::load(folder, Limits::default()).map(|_| ());
    assert!(matches!(load(empty.path()), Err(LoadError::Missing { .. })));
    fs::write(empty.path().join("tiktoken.model"), "IQ== 0\n").unwrap();
    assert!(matches!(load(empty.path()), Err(LoadError::Tiktoken { .. })));
    for (file, content) in [
        ("tokenizer.json", "{"),
        ("tokenizer_config.json", "{"),
        ("config.json", "nothing"),
        ("chat_template.jinja", "{% if %}"),
        // An id that is not what the tokenizer would give.
        (
            "tokenizer_config.json",
            r#"{"added_tokens_decoder": {"99999": {"content": "<new>", "special": true}}}"#,
        ),
    ] {
        let damaged = folder("byte_level", &[(file, content)]);
        let outcome = load(damaged.path());
        assert!(matches!(outcome, Err(LoadError::Malformed { .. })), "{file}: {outcome:?}");
    }
}

#[test]
fn tokens_that_only_the_second_file_has_are_added() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let known = tokenizers::Tokenizer::from_file(models.join("byte_level/tokenizer.json")).unwrap();
    let first_free = u32::try_from(known.get_vocab_size(true)).unwrap();
    let about = format!(
        r#"{{"added_tokens_decoder": {{"{first_free}": {{"content": "<new>", "special": true}}}}}}"#
    );
    let model = folder("byte_level", &[("tokenizer_config.json", &about)]);
    let tokens = Tokens::load(model.path(), Limits::default()).unwrap();
    assert_eq!(ids(&tokens, "<new>"), [first_free]);
}

proptest! {
    /// Whatever stands between added tokens, pieces give what the whole gives: the library's own answer.
    #[test]
    fn pieces_are_the_whole(parts in prop::collection::vec(prop_oneof![
        Just("<|im_start|>".to_owned()), Just("<|im_end|>".to_owned()), Just("<mask>".to_owned()), Just("<sep>".to_owned()),
        Just("<think>".to_owned()), Just("café".to_owned()), Just(" ".to_owned()), Just("\n".to_owned()), "[a-c ]{0,4}", "\\PC{0,3}",
    ], 0..12)) {
        let text = parts.concat();
        for model in ["byte_level", "pieces"] {
            let folder = folder(model, &[]);
            let whole = tokenizers::Tokenizer::from_file(folder.path().join("tokenizer.json")).unwrap();
            let tokens = Tokens::load(folder.path(), Limits::default()).unwrap();
            for _ in 0..2 {
                let expected = whole.encode_fast(text.as_str(), false).unwrap();
                prop_assert_eq!(&ids(&tokens, &text), expected.get_ids());
            }
        }
    }

    /// No body makes it panic, and none takes long.
    #[test]
    fn any_body_is_answered(body in "[\\[\\]{}\":, a-z0-9]{0,80}") {
        let tokens = with_template(TEXTS);
        for route in [Route::Chat, Route::Completions] {
            if let Ok(request) = Request::parse(route, body.as_bytes(), 1000) {
                let _outcome = tokens.of(&request, &Manner::default(), UNIX_EPOCH);
            }
        }
    }
}
