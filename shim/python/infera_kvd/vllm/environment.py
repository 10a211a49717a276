"""What this engine is: everything about vLLM, its model and its machine that decides what a block's bytes mean."""

import os

import torch
import vllm
from vllm.distributed.parallel_state import get_pp_group, get_tp_group

from infera_kvd.engine import fingerprint, keys
from infera_kvd.engine.errors import Refused
from infera_kvd.vllm import layout

# Which releases the connector's tests ran against.
SERVED = ("0.30.", "0.31.", "0.32.")


def refusal(vllm_config, served=SERVED):
    """Why this engine is not served, or `None`. `served`: how the versions begin that are."""
    if not vllm.__version__.startswith(served):
        return f"vLLM {vllm.__version__} is not served (only {', '.join(series + 'x' for series in served)})"
    if not vllm_config.cache_config.enable_prefix_caching:
        # Not only a wish: vLLM turns it off where attention cannot go on from a prefix, and would compute nonsense.
        return "prefix caching is off, by --no-enable-prefix-caching or because vLLM cannot go on from a prefix here"
    parallel = vllm_config.parallel_config
    if parallel.decode_context_parallel_size > 1 or parallel.prefill_context_parallel_size > 1:
        return "context parallelism spreads one block over ranks"
    if parallel.nnodes_within_dp > 1:
        return "ranks on several hosts would need each host's daemon asked"
    speculative = vllm_config.speculative_config
    if speculative is not None and speculative.method != "ngram":
        return f"the draft model of speculative decoding ({speculative.method}) has a cache of its own"
    return None


def ranks(vllm_config):
    """How many ranks one engine has."""
    parallel = vllm_config.parallel_config
    return parallel.tensor_parallel_size * parallel.pipeline_parallel_size


def unstable_hashes(vllm_config):
    """What to do if block hashes differ from process to process, or `None`."""
    algorithm = vllm_config.cache_config.prefix_caching_hash_algo
    if algorithm.startswith("xxhash") and os.environ.get("PYTHONHASHSEED") is None:
        return (
            f"block hashes of {algorithm} differ in each process, so nothing is found again: "
            "set PYTHONHASHSEED to the same number everywhere, or --prefix-caching-hash-algo sha256"
        )
    return None


def block_tokens(kv_cache_config):
    """Tokens of one block; raises `Refused` if the engine's hashes cover another number."""
    size = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size
    # Before 0.32 it is not told, and with one group always the same.
    hashed = getattr(kv_cache_config, "hash_block_size", None)
    if hashed is not None and hashed != size:
        raise Refused(f"blocks of {size} tokens are named by hashes over {hashed}")
    return size


def groups(kv_cache_config):
    """The cache groups as `layout.check_groups` wants them."""
    return [
        [(name, _kind(group.kv_cache_spec, name)) for name in group.layer_names]
        for group in kv_cache_config.kv_cache_groups
    ]


def _kind(spec, name):
    each = getattr(spec, "kv_cache_specs", None)
    return type(each[name] if each else spec).__name__


def describe(caches):
    """The layers as `layout` wants them, from vLLM's tensors by name."""
    return [
        layout.Layer(
            name,
            tensor.device.type,
            str(tensor.dtype).removeprefix("torch."),
            tensor.element_size(),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.data_ptr(),
        )
        for name, tensor in caches.items()
    ]


def rows(tensor, pages):
    """The pages of one layer as rows of bytes in place: numpy, uint8."""
    count = tensor.shape[0]
    flat = tensor.as_strided((count, pages.bytes // tensor.element_size()), (tensor.stride(0), 1))
    return flat.view(torch.uint8).numpy()


def shard(vllm_config, kv_cache_config, layers, pages, options, replicated):
    """What this rank stores, and the parts that its name was made from."""
    model = vllm_config.model_config
    ranks = keys.Ranks(_place_in(get_tp_group()), _place_in(get_pp_group()), replicated=replicated)
    parts = {
        **computation(vllm_config, options),
        "cache_dtype": vllm_config.cache_config.cache_dtype,
        "block_tokens": block_tokens(kv_cache_config),
        "layout": kv_cache_config.kv_cache_layout,
        "machine": machine({layer.device for layer in layers}),
        # Which layers are on which stage, as far as it is not the same everywhere.
        "stages": os.environ.get("VLLM_PP_LAYER_PARTITION"),
    }
    stage = {"layers": layout.description(layers), "backends": _backends(vllm_config, layers)}
    name = options.model or keys.model_name(model.model)
    compat_key = keys.compat_key("vllm", ranks, stage, **parts)
    return keys.Shard(name, compat_key, layout.block_bytes(pages)), {**parts, **stage, "ranks": ranks}


def _place_in(group):
    return group.rank_in_group, group.world_size


def computation(vllm_config, options):
    """What decides about the numbers that this engine computes, however it stores them. For JSON."""
    model, lora = vllm_config.model_config, vllm_config.lora_config
    return {
        "vllm": vllm.__version__,
        "configuration": fingerprint.of_configuration(model.hf_config.to_dict()),
        "weights": options.weights_id or weights(vllm_config),
        "dtype": str(model.dtype),
        "quantization": [str(model.quantization), str(model.quantization_config)],
        # Some models choose the scale of their positions or their attention by it.
        "context_tokens": model.max_model_len,
        # How images become numbers; blocks are named by the images.
        "images": str(getattr(model.multimodal_config, "mm_processor_kwargs", None)),
        # How much of an adapter is used.
        "adapters": lora and [str(lora.lora_dtype), sorted(lora.target_modules or ())],
    }


def stores(replicated):
    """Whether this rank stores: of ranks with equal bytes only the first."""
    return not replicated or get_tp_group().rank_in_group == 0


def _backends(vllm_config, layers):
    modules = vllm_config.compilation_config.static_forward_context
    names = set()
    for layer in layers:
        backend = getattr(modules.get(layer.name), "attn_backend", None)
        names.add(backend.get_name() if backend is not None else "unknown")
    return sorted(names)


def machine(devices):
    """What of this machine decides about bytes of a cache on these kinds of devices, torch's names."""
    if "cpu" in devices:
        # What vLLM chooses its kernels by; they pack a page each in their own way.
        asked = ("_is_avx2_supported", "_is_avx512_supported", "_is_avx512_bf16_supported", "_is_amx_tile_supported")
        found = [name for name in asked if getattr(torch.cpu, name, bool)()]
        return ["cpu", torch.backends.cpu.get_cpu_capability(), *found]
    return sorted(devices)


def weights(vllm_config):
    """The identity of the model's weights; raises `Refused` if they cannot be looked at."""
    model, load_format = vllm_config.model_config, str(vllm_config.load_config.load_format)
    if load_format.endswith("dummy"):
        return f"dummy {model.seed}"
    try:
        if os.path.isdir(model.model):
            return fingerprint.of_weights(model.model)
        if os.path.isfile(model.model):
            return fingerprint.of_file(model.model)
        from huggingface_hub import snapshot_download

        return fingerprint.of_weights(snapshot_download(model.model, revision=model.revision, local_files_only=True))
    except Exception as error:
        raise Refused(f"the weights of {model.model} cannot be identified ({error}): set weights_id") from error
