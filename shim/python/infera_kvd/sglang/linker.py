"""What SGLang's `UnifiedRadixCache` calls: pages between the device's pools and the daemon. Experimental.

Nothing here decides; see `linking.py`. Whatever is wrong with the set-up, SGLang runs: the linker says why in one line,
finds nothing and stores nothing.
"""

import logging

import infera_kvd
import torch
from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import LayerWiseLoadCounter, UnifiedCacheLinker

from infera_kvd.engine.counters import Counters, in_words
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.errors import Refused, say_unused
from infera_kvd.engine.keys import Ranks, Shard, compat_key
from infera_kvd.engine.options import Keep, engine_options
from infera_kvd.sglang import environment, served
from infera_kvd.sglang.linking import Layers, Linking
from infera_kvd.sglang.pages import description
from infera_kvd.sglang.store import PageStore

log = logging.getLogger(__name__)

# By the names of their classes, because a subclass may keep more than this. Which of them holds the same on every rank.
REPLICATED = {"MHATokenToKVPool": False, "MLATokenToKVPool": True}
# SGLang's thread looks and pins, one of ours stores.
CONNECTIONS = 2


class InferaKvdLinker(UnifiedCacheLinker):
    """Pages of the device's cache, kept by the infera-kvd of this host across requests, engines and restarts."""

    def __init__(self, server_args, params, *, components, extra_config=None, forward_stream=None):
        cache = params.token_to_kv_pool_allocator.get_kvcache()
        self.forward_stream = forward_stream
        self.pools = {PoolName.KV: cache}
        self.layer_done_counter = LayerWiseLoadCounter(cache.layer_num)
        self._counters = Counters()
        self._linking = None
        try:
            self._linking = self._link(cache, params, components, engine_options(extra_config or {}))
        except Exception as error:  # noqa: BLE001 - nothing of ours may end the engine
            say_unused(log, error)
            return
        log.warning(
            "infera-kvd: the linker is experimental: SGLang ends requests with an error if a load fails%s",
            "" if environment.is_alone() else ", which happens when one rank loses a page between look-up and load",
        )

    def lookup(self, rid, transfers):
        """Every length of the prefix, in pages, that this rank can load."""
        keys = _main(transfers).keys
        return self._linking.lookup(list(keys)) if self._linking and keys else []

    def load(self, rid, transfers):
        """Takes a load for the next start. False: SGLang computes."""
        main = _main(transfers)
        return bool(self._linking) and self._linking.load(rid, list(main.keys), main.device_indices.tolist())

    def start_layer_wise_loading(self):
        """Starts what is queued."""
        return self._linking.start() if self._linking else -1

    def finish_layer_wise_loading(self, counter_index):
        """Waits until a batch writes nothing any more. Whether all of it arrived."""
        return self.layer_done_counter.finish(counter_index)

    def cancel_queued_load(self, rid):
        """Gives up a load that has not started."""
        return bool(self._linking) and self._linking.cancel(rid)

    def offload(self, transfers, session_id=None):
        """Takes pages to be stored in the background."""
        main = _main(transfers)
        return bool(self._linking) and self._linking.offload(list(main.keys), main.device_indices.tolist())

    def num_completed_offloads(self):
        """How many offloads, the oldest ones, are through."""
        return self._linking.completed() if self._linking else 0

    def pop_completed_offload(self):
        """Whether all of the oldest offload is stored."""
        return self._linking.pop()

    def reset(self):
        """Returns when nothing touches the pools any more."""
        if self._linking:
            self._linking.reset()
            log.info("infera-kvd: SGLang dropped its cache, so nothing stored before is used by it again")

    def close(self):
        """Stores what is waiting, says what was done, and ends the connections."""
        if self._linking:
            self._linking.close()
            log.info("infera-kvd: %s", in_words(self._counters.totals()) or "nothing done")
            self._daemon.close()
            self._linking = None

    def _link(self, cache, params, components, options):
        environment.check(served.LINKER)
        layers, facts, replicated = _layers(cache, params, components)
        group = params.attn_tp_cache_group or params.tp_cache_group
        rank, size = environment.rank_in(group)
        ranks = Ranks(
            (rank, size),
            (params.pp_rank, params.pp_size),
            (params.attn_cp_rank, params.attn_cp_size),
            replicated,
        )
        parts = {"way": "linker", "page_tokens": params.page_size, **environment.identity(options)}
        name = compat_key("sglang", ranks, facts, **parts)
        shard = Shard(environment.model_name(options), name, layers.page_bytes)
        client_id = f"sglang-{params.pp_rank}-{rank}"
        clients = [
            infera_kvd.Client(options.socket, client_id=client_id, deadline=options.deadline_seconds)
            for _ in range(CONNECTIONS)
        ]
        self._daemon = Daemon(clients, self._counters, log, options.socket or "its default socket")
        keep = Keep(options.retention, options.ttl_seconds)
        store = PageStore(self._daemon, shard, keep, params.page_size, self._counters, infera_kvd.Lineage)
        log.info("infera-kvd: model %s, compat_key %s, %d bytes a page: %s", shard.model, shard.compat_key,
                 shard.block_bytes, {**parts, "memory": facts, "ranks": ranks})
        return Linking(
            store,
            layers,
            params.page_size,
            options,
            keep,
            self._counters,
            self.layer_done_counter,
            alone=environment.is_alone(),
            stores=not replicated or rank == 0,
        )


def _main(transfers):
    return next(transfer for transfer in transfers if transfer.name == PoolName.KV)


def _layers(cache, params, components):
    """Where each layer's bytes are, what describes them, and whether every rank holds the same; raises `Refused`."""
    kind = type(cache).__name__
    if kind not in REPLICATED:
        raise Refused(f"pool kv is a {kind}: only {' and '.join(REPLICATED)} are served")
    extra = sorted(component.name for component in components if component.name != "FULL")
    if extra:
        raise Refused(f"the model has pools beside kv: {', '.join(extra)}")
    if getattr(params, "mtp_draft_device_pools", ()) or getattr(params, "sidecar_draft_device_pools", ()):
        raise Refused("pool draft: what a draft model stores depends on weights that are not looked at")
    if getattr(cache, "k_scale_buffer", None) is not None:
        raise Refused(f"pool kv ({kind}) keeps scales beside its pages")
    groups = [cache.kv_buffer] if REPLICATED[kind] else [cache.k_buffer, cache.v_buffer]
    buffers = [[group[layer] for group in groups] for layer in range(cache.layer_num)]
    layers = Layers([[_rows(tensor, layer) for tensor in tensors] for layer, tensors in enumerate(buffers)], params.page_size)
    shapes = [[list(tensor.shape[1:]) for tensor in tensors] for tensors in buffers]
    types = [str(tensor.dtype) for tensor in buffers[0]]
    return layers, {**description(cache, []), "shapes": shapes, "types": types}, REPLICATED[kind]


def _rows(tensor, layer):
    if tensor.device.type != "cpu":
        raise Refused(f"layer {layer} of pool kv is on {tensor.device}: the linker reaches host memory only, use HiCache")
    if not tensor.is_contiguous():
        where = f"layer {layer} of pool kv, shape {tuple(tensor.shape)}, stride {tensor.stride()}"
        raise Refused(f"{where}: a page is not one run of bytes")
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy()), tensor.nbytes // tensor.shape[0]
