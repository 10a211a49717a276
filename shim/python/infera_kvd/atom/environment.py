"""What this engine is: everything about ATOM and its model that decides what a block's bytes mean.

The scheduler and the workers are processes that tell each other nothing at the start, so all of it comes from ATOM's
configuration and environment, which they share.
"""

import importlib.metadata
import os
import pathlib

from infera_kvd.engine import fingerprint, keys
from infera_kvd.engine.errors import Refused

# ATOM's switches that arrange the bytes in a block.
SWITCHES = (
    "ATOM_FORCE_ATTN_TRITON",
    "ATOM_MLA_PAGE_SIZE",
    "ATOM_USE_TRITON_MLA",
    "ATOM_USE_TRITON_MLA_SHUFFLE_KV",
    "ATOM_USE_UNIFIED_ATTN",
)
# What is read of ATOM's configuration and of its requests.
CONFIGURATION = ("hf_config", "kv_cache_block_size", "kv_cache_dtype", "model")
REQUEST = (
    "block_table",
    "id",
    "is_finished",
    "kv_transfer_params",
    "multimodal_data",
    "num_cached_tokens",
    "num_prompt_tokens",
    "token_ids",
)
ROLES = {"offload": (True, True), "kv_both": (True, True), "kv_producer": (False, True), "kv_consumer": (True, False)}


def check(config):
    """Raises `Refused` if this engine is not served."""
    _check_interface("configuration", config, CONFIGURATION)
    role(config)
    if _size(config, "pipeline_parallel_size") > 1:
        raise Refused("with pipeline parallelism ATOM counts tokens as computed before they are")
    if _size(config, "decode_context_parallel_size") > 1:
        raise Refused("context parallelism spreads one block over ranks")
    if getattr(config, "speculative_config", None) is not None:
        raise Refused("the draft model of speculative decoding has a cache of its own")
    model = config.hf_config
    kinds = set(getattr(model, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        raise Refused(f"layers of {', '.join(sorted(kinds))} keep more than their blocks: only full attention is served")
    if getattr(model, "compress_ratios", None):
        raise Refused("compressed attention keeps a state of each request beside its blocks")


def check_request(seq):
    """Raises `Refused` if this ATOM's requests are others than those that are known here."""
    _check_interface("request", seq, REQUEST)


def role(config):
    """Whether this engine loads, and whether it saves; raises `Refused` for a role that ATOM does not have."""
    name = _transfer(config).get("kv_role", "offload")
    if name not in ROLES:
        raise Refused(f"kv_role is {name!r}, expected one of {', '.join(ROLES)}")
    return ROLES[name]


def extra(config):
    """What people have set for the connector."""
    return _transfer(config).get("kv_connector_extra_config") or {}


def block_tokens(config):
    """Tokens of one block."""
    return int(config.kv_cache_block_size)


def ranks(config):
    """How many workers there are."""
    return _size(config, "tensor_parallel_size")


def shards(config, options):
    """What each rank stores, and the parts that the names were made from. How many bytes a block has is not known yet."""
    parts = {
        "atom": _version(),
        "configuration": fingerprint.of_configuration(config.hf_config.to_dict()),
        "weights": options.weights_id or _weights(config.model),
        "dtype": str(getattr(config, "torch_dtype", None)),
        # Some models choose the scale of their positions by it.
        "context_tokens": getattr(config, "max_model_len", None),
        "cache_dtype": str(config.kv_cache_dtype),
        "index_cache_dtype": str(getattr(config, "index_cache_dtype", None)),
        "quantization": repr(getattr(config, "online_quant_config", None)),
        "block_tokens": block_tokens(config),
        "switches": {name: os.environ.get(name) for name in SWITCHES},
    }
    name, size = options.model or keys.model_name(config.model), ranks(config)
    named = [
        keys.Shard(name, keys.compat_key("atom", keys.Ranks((rank, size)), **parts), None)
        for rank in range(size)
    ]
    return named, parts


def _check_interface(what, found, names):
    missing = [name for name in names if not hasattr(found, name)]
    if missing:
        raise Refused(f"this ATOM's {what} has no {', '.join(missing)}, so it is not the one that this was written for")


def _version():
    try:
        return importlib.metadata.version("atom")
    except importlib.metadata.PackageNotFoundError as error:
        raise Refused("ATOM is not installed as a package, so its version is not known") from error


def _transfer(config):
    return getattr(config, "kv_transfer_config", None) or {}


def _size(config, name):
    return int(getattr(config, name, 1) or 1)


def _weights(model):
    if not pathlib.Path(model).is_dir():
        raise Refused(f"{model} is no folder, so its weights cannot be identified: set weights_id")
    try:
        return fingerprint.of_weights(model)
    except OSError as error:
        raise Refused(f"the weights of {model} cannot be identified ({error}): set weights_id") from error
