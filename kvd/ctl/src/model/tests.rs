//! Published figures of models, from files that hold the numbers and nothing else.

use serde_json::json;

use super::*;

/// Bytes of a token on one rank.
fn rank_bytes(config: &Value, dtype: Dtype, ranks: u64) -> u64 {
    let model = Model::parse(&config.to_string()).expect("understood");
    model.token(dtype, ranks).expect("shared out").rank_bytes
}

fn refused(config: &Value) -> String {
    format!("{:#}", Model::parse(&config.to_string()).expect_err("refused"))
}

fn kinds_of(config: &Value) -> Vec<(String, u64)> {
    let model = Model::parse(&config.to_string()).expect("understood");
    model.groups.iter().map(|group| (group.kind.to_string(), group.layers)).collect()
}

fn llama_8b() -> Value {
    json!({ "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
        "num_attention_heads": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16" })
}

fn deepseek_v3() -> Value {
    json!({ "model_type": "deepseek_v3", "num_hidden_layers": 61, "num_attention_heads": 128,
        "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "num_nextn_predict_layers": 1 })
}

#[test]
fn grouped_heads() {
    let llama = llama_8b();
    assert_eq!(rank_bytes(&llama, Dtype::Bf16, 1), 128 << 10);
    assert_eq!(rank_bytes(&llama, Dtype::Fp8, 1), 64 << 10);
    let large = json!({ "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
        "num_key_value_heads": 8 });
    assert_eq!(rank_bytes(&large, Dtype::Bf16, 1), 320 << 10);
    let qwen = json!({ "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28,
        "num_key_value_heads": 4, "sliding_window": 131_072, "use_sliding_window": false });
    assert_eq!(rank_bytes(&qwen, Dtype::Bf16, 1), 56 << 10);
    let with_head_dim = json!({ "num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128 });
    assert_eq!(rank_bytes(&with_head_dim, Dtype::Bf16, 1), 144 << 10);
}

#[test]
fn every_head_for_itself_and_one_for_all() {
    let gpt2 = json!({ "n_layer": 12, "n_head": 12, "n_embd": 768 });
    assert_eq!(rank_bytes(&gpt2, Dtype::Fp16, 1), 36 << 10);
    let falcon = json!({ "num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544,
        "multi_query": true, "new_decoder_architecture": false, "num_kv_heads": 71 });
    assert_eq!(rank_bytes(&falcon, Dtype::Bf16, 1), 32 * 2 * 64 * 2);
}

#[test]
fn heads_may_be_named_inside() {
    let dbrx = json!({ "n_layers": 40, "n_heads": 48, "d_model": 6144, "attn_config": { "kv_n_heads": 8 } });
    assert_eq!(rank_bytes(&dbrx, Dtype::Bf16, 1), 160 << 10);
}

#[test]
fn a_latent_is_the_same_on_every_rank_and_stored_once() {
    let deepseek = deepseek_v3();
    assert_eq!(rank_bytes(&deepseek, Dtype::Bf16, 1), 70_272);
    let model = Model::parse(&deepseek.to_string()).unwrap();
    let eight = model.token(Dtype::Bf16, 8).unwrap();
    assert_eq!((eight.rank_bytes, eight.host_bytes), (70_272, 70_272));
    assert_eq!(model.groups[0].keeps(), "MLA, 512 + 64");
    assert_eq!(model.remarks.len(), 1, "{:?}", model.remarks);
}

#[test]
fn heads_are_shared_out_or_repeated() {
    let model = Model::parse(&llama_8b().to_string()).unwrap();
    let of =
        |ranks| model.token(Dtype::Bf16, ranks).map(|token| (token.rank_bytes, token.host_bytes));
    assert_eq!(of(8).unwrap(), (16 << 10, 128 << 10));
    assert_eq!(of(16).unwrap(), (16 << 10, 256 << 10), "two ranks keep the same head");
    assert!(of(3).unwrap_err().to_string().contains("32 heads"));
    let odd = json!({ "num_hidden_layers": 1, "num_attention_heads": 24, "num_key_value_heads": 8,
        "head_dim": 64 });
    let odd = Model::parse(&odd.to_string()).unwrap();
    assert!(odd.token(Dtype::Bf16, 12).unwrap_err().to_string().contains("8 key-value heads"));
}

#[test]
fn windows_are_told_from_full_layers() {
    let mut config = llama_8b();
    config["layer_types"] = json!(vec!["sliding_attention"; 32]);
    assert!(refused(&config).contains("without sliding_window"));
    config["sliding_window"] = json!(4096);
    for layer in [5, 11, 17] {
        config["layer_types"][layer] = json!("full_attention");
    }
    let expected = [("window of 4096 tokens".to_owned(), 29), ("full attention".to_owned(), 3)];
    assert_eq!(kinds_of(&config), expected);
    assert_eq!(
        rank_bytes(&config, Dtype::Bf16, 1),
        128 << 10,
        "each layer keeps as much of a token"
    );
    let nested = json!({ "text_config": { "model_type": "gemma3_text", "num_hidden_layers": 62,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "hidden_size": 5376,
        "sliding_window": 1024, "sliding_window_pattern": 6 }, "vision_config": { "num_hidden_layers": 27 } });
    let expected = [("window of 1024 tokens".to_owned(), 52), ("full attention".to_owned(), 10)];
    assert_eq!(kinds_of(&nested), expected);
    let mistral = json!({ "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "hidden_size": 4096, "sliding_window": 4096 });
    assert_eq!(kinds_of(&mistral), [("window of 4096 tokens".to_owned(), 32)]);
}

#[test]
fn states_keep_nothing_of_a_token() {
    let interval = json!({ "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
        "head_dim": 256, "full_attention_interval": 4 });
    assert_eq!(rank_bytes(&interval, Dtype::Bf16, 1), 12 * 2 * 2 * 256 * 2);
    let period = json!({ "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "hidden_size": 4096, "attn_layer_period": 8, "attn_layer_offset": 4 });
    assert_eq!(rank_bytes(&period, Dtype::Bf16, 1), 4 * 2 * 8 * 128 * 2);
    let pattern = json!({ "num_hidden_layers": 6, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "hybrid_override_pattern": "M-M*-M" });
    assert_eq!(kinds_of(&pattern).len(), 3);
    let only_states = json!({ "num_hidden_layers": 2, "layer_types": ["mamba", "mamba"] });
    assert!(refused(&only_states).contains("nothing to cache"));
}

#[test]
fn layers_that_share_are_not_counted() {
    let mut config = llama_8b();
    config["num_kv_shared_layers"] = json!(12);
    assert_eq!(rank_bytes(&config, Dtype::Bf16, 1), 80 << 10);
}

#[test]
fn what_is_not_understood_is_refused() {
    assert!(refused(&json!({})).contains("num_hidden_layers"));
    assert!(refused(&json!({ "num_hidden_layers": 2 })).contains("num_attention_heads"));
    let mut config = llama_8b();
    config["layer_types"] = json!(["full_attention"]);
    assert!(refused(&config).contains("1 kinds for 32 layers"));
    config["layer_types"] = json!(vec!["telepathy"; 32]);
    assert!(refused(&config).contains("telepathy"));
    config = llama_8b();
    config["num_key_value_heads"] = json!([8, 4]);
    assert!(refused(&config).contains("differ"));
    config["num_hidden_layers"] = json!(u64::MAX);
    assert!(refused(&config).contains("layers"));
    assert!(refused(&json!({ "is_encoder_decoder": true })).contains("cross-attention"));
    let huge = json!({ "num_hidden_layers": 2, "num_attention_heads": 1, "head_dim": u64::MAX });
    let huge = Model::parse(&huge.to_string()).unwrap();
    assert!(huge.token(Dtype::Bf16, 1).is_err());
    assert!(Model::parse("{").is_err());
}
