"""Writes a tiny model with seeded random weights: small enough for any machine, and its output depends on its KV cache.

    python3 make_tiny_model.py FOLDER [--kind llama|deepseek|gemma] [--seed N]

One token a byte, bf16. The same seed gives the same bytes. Gains above 1 on the projections let attention decide what
comes next: one wrong KV block changes the text, which a model with weights near zero would hide.

llama: grouped-query attention, 2.6 M parameters. deepseek: latent attention (MLA), with the sizes of latents that a CPU
can run. gemma: every other layer sees a window only, so there are two cache groups; it comes without weights
(`load_format` dummy).
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD = 256, 512, 4, 4, 2, 64
VOCABULARY, POSITIONS = 512, 4096
LATENT, ROPE, NOPE, VALUE = 512, 64, 64, 64
WINDOW = 64
# A line for each message.
CHAT_TEMPLATE = """{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""
SPECIAL = {"bos": ("<s>", 256), "eos": ("</s>", 257), "pad": ("<pad>", 258)}

COMMON = {
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "attention_bias": False,
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
}
CONFIGS = {
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "mlp_bias": False,
    },
    "deepseek": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "num_key_value_heads": HEADS,
        "kv_lora_rank": LATENT,
        "q_lora_rank": None,
        "qk_rope_head_dim": ROPE,
        "qk_nope_head_dim": NOPE,
        "v_head_dim": VALUE,
        "hidden_act": "silu",
        "mlp_bias": False,
        # All layers are dense.
        "first_k_dense_replace": LAYERS,
        "n_routed_experts": 2,
    },
    "gemma": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": HEAD,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2),
        "tie_word_embeddings": True,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in ("sliding_attention", "full_attention")
        },
    },
}


def write_json(path, content):
    """One JSON file."""
    path.write_text(json.dumps(content, indent=1) + "\n")


def write_tokenizer(folder):
    """A token for each byte, and three special ones; and how a chat becomes text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {sign: number for number, sign in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text, _ in SPECIAL.values()])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    names = {f"{name}_token": text for name, (text, _) in SPECIAL.items()}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": POSITIONS}
    write_json(folder / "tokenizer_config.json", about | names | {"clean_up_tokenization_spaces": False})


def weights(kind, seed):
    """Every tensor, drawn in one fixed order."""
    random = torch.Generator().manual_seed(seed)

    def matrix(rows, columns, gain=1.0):
        drawn = torch.randn(rows, columns, generator=random)
        return (drawn * gain / columns**0.5).to(torch.bfloat16)

    def ones(length=HIDDEN):
        return torch.ones(length, dtype=torch.bfloat16)

    tensors = {
        "model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN, HIDDEN**0.5),
        "lm_head.weight": matrix(VOCABULARY, HIDDEN, 3.0),
        "model.norm.weight": ones(),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        attention = ATTENTION[kind](matrix, ones)
        tensors |= {f"{at}.self_attn.{name}.weight": tensor for name, tensor in attention.items()}
        tensors |= {
            f"{at}.mlp.gate_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{at}.mlp.up_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{at}.mlp.down_proj.weight": matrix(HIDDEN, INTERMEDIATE),
            f"{at}.input_layernorm.weight": ones(),
            f"{at}.post_attention_layernorm.weight": ones(),
        }
    return tensors


def grouped_query(matrix, ones):
    """The attention of one Llama layer."""
    return {
        "q_proj": matrix(HEADS * HEAD, HIDDEN, 2.0),
        "k_proj": matrix(KV_HEADS * HEAD, HIDDEN, 2.0),
        "v_proj": matrix(KV_HEADS * HEAD, HIDDEN, 2.0),
        "o_proj": matrix(HIDDEN, HEADS * HEAD, 2.0),
    }


def latent(matrix, ones):
    """The attention of one DeepSeek layer."""
    return {
        "q_proj": matrix(HEADS * (NOPE + ROPE), HIDDEN, 2.0),
        "kv_a_proj_with_mqa": matrix(LATENT + ROPE, HIDDEN, 2.0),
        "kv_a_layernorm": ones(LATENT),
        "kv_b_proj": matrix(HEADS * (NOPE + VALUE), LATENT, 2.0),
        "o_proj": matrix(HIDDEN, HEADS * VALUE, 2.0),
    }


ATTENTION = {"llama": grouped_query, "deepseek": latent}


def main():
    """Writes the folder that an engine takes as a model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kind", choices=CONFIGS, default="llama")
    parser.add_argument("--seed", type=int, default=1234)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ids = {f"{name}_token_id": number for name, (_, number) in SPECIAL.items()}
    write_json(options.folder / "config.json", COMMON | CONFIGS[options.kind] | ids)
    write_json(options.folder / "generation_config.json", ids)
    write_tokenizer(options.folder)
    if options.kind in ATTENTION:
        tensors = weights(options.kind, options.seed)
        save_file(tensors, options.folder / "model.safetensors", metadata={"format": "pt"})
        print(f"{options.folder}: {sum(tensor.numel() for tensor in tensors.values())} parameters")


if __name__ == "__main__":
    main()
