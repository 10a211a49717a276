"""What this engine is, for a tier: all about the bytes of a row that the scheduler's process knows."""

import inspect

from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import KVCacheConfig

from infera_kvd.engine import keys
from infera_kvd.engine.errors import Refused
from infera_kvd.vllm import environment

# Which releases the tier's tests ran against.
SERVED = ("0.31.", "0.32.")


def configurations():
    """The engine's configuration and that of its cache; raises `Refused` if they are out of reach.

    vLLM gives a tier what concerns offloading, which does not tell one model of a name from another. The rest are
    arguments of the connector that has the tier made, so they are found among its callers' variables.
    """
    frame = inspect.currentframe()
    while frame is not None:
        found = [frame.f_locals.get(name) for name in ("vllm_config", "kv_cache_config")]
        if isinstance(found[0], VllmConfig) and isinstance(found[1], KVCacheConfig):
            return found
        frame = frame.f_back
    raise Refused("the engine's configuration is out of reach of its tiers, so its model cannot be identified")


def shard(vllm_config, kv_cache_config, offloading, row_bytes, options):
    """What the rows of this engine are called, and the parts that the name was made from. Raises `Refused`.

    `offloading`: vLLM's `OffloadingConfig`.
    """
    reason = environment.refusal(vllm_config, SERVED)
    if reason is not None:
        raise Refused(reason)
    model = vllm_config.model_config
    parts = {
        **environment.computation(vllm_config, options),
        "cache_dtype": offloading.model.dtype,
        "tokens_per_hash": offloading.cache.tokens_per_hash,
        "blocks_per_chunk": offloading.cache.blocks_per_chunk,
        "layout": [offloading.kv_cache_layout, offloading.canonical_layout, offloading.replicated_layout],
        "groups": [
            # In words: everything that vLLM's own description of a cache has, whatever its kind.
            [group.group_id, group.layer_names, repr(kv_cache_config.kv_cache_groups[group.group_id].kv_cache_spec)]
            for group in offloading.groups
        ],
        "backend": repr(vllm_config.attention_config),
        "machine": environment.machine({current_platform.device_type}),
        "tensor_parallel": offloading.parallel.tp_size,
        "pipeline": offloading.parallel.pp_size,
        "row_bytes": row_bytes,
    }
    name = options.model or keys.model_name(model.model)
    return keys.Shard(name, keys.compat_key("vllm-tier", **parts), row_bytes), parts


def chunk_tokens(offloading):
    """By the bytes that name a cache group in a key: tokens of one chunk."""
    return {
        group.group_id.to_bytes(keys.GROUP_BYTES, "big"): group.tokens_per_block * offloading.cache.blocks_per_chunk
        for group in offloading.groups
    }
