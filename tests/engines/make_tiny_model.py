"""Writes a tiny Llama with seeded random weights: small enough for any machine, and its output depends on its KV cache.

    python3 make_tiny_model.py FOLDER [--seed N]

2.6 M parameters, 5 MB, bf16, one token a byte. The same seed gives the same bytes. Gains above 1 on the projections let
attention decide what comes next: one wrong KV block changes the text, which a model with weights near zero would hide.
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD = 256, 512, 4, 4, 2, 64
VOCABULARY, POSITIONS = 512, 4096
SPECIAL = {"bos": ("<s>", 256), "eos": ("</s>", 257), "pad": ("<pad>", 258)}

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
}


def write_json(path, content):
    """One JSON file."""
    path.write_text(json.dumps(content, indent=1) + "\n")


def write_tokenizer(folder):
    """A token for each byte, and three special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {sign: number for number, sign in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text, _ in SPECIAL.values()])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {f"{name}_token": text for name, (text, _) in SPECIAL.items()}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": POSITIONS}
    write_json(folder / "tokenizer_config.json", about | names | {"clean_up_tokenization_spaces": False})


def weights(seed):
    """Every tensor, drawn in one fixed order."""
    random = torch.Generator().manual_seed(seed)

    def matrix(rows, columns, gain=1.0):
        drawn = torch.randn(rows, columns, generator=random)
        return (drawn * gain / columns**0.5).to(torch.bfloat16)

    ones = torch.ones(HIDDEN, dtype=torch.bfloat16)
    tensors = {
        "model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN, HIDDEN**0.5),
        "lm_head.weight": matrix(VOCABULARY, HIDDEN, 3.0),
        "model.norm.weight": ones.clone(),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        tensors |= {
            f"{at}.self_attn.q_proj.weight": matrix(HEADS * HEAD, HIDDEN, 2.0),
            f"{at}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD, HIDDEN, 2.0),
            f"{at}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD, HIDDEN, 2.0),
            f"{at}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD, 2.0),
            f"{at}.mlp.gate_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{at}.mlp.up_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{at}.mlp.down_proj.weight": matrix(HIDDEN, INTERMEDIATE),
            f"{at}.input_layernorm.weight": ones.clone(),
            f"{at}.post_attention_layernorm.weight": ones.clone(),
        }
    return tensors


def main():
    """Writes the folder that an engine takes as a model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1234)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ids = {f"{name}_token_id": number for name, (_, number) in SPECIAL.items()}
    write_json(options.folder / "config.json", CONFIG | ids)
    write_json(options.folder / "generation_config.json", ids)
    write_tokenizer(options.folder)
    tensors = weights(options.seed)
    save_file(tensors, options.folder / "model.safetensors", metadata={"format": "pt"})
    print(f"{options.folder}: {sum(tensor.numel() for tensor in tensors.values())} parameters")


if __name__ == "__main__":
    main()
