"""What HiCache calls: pages between its host pools and the daemon.

Nothing here decides; see `hicache.py`. Whatever is wrong with the set-up, SGLang runs: the backend says why in one line,
finds nothing and stores nothing. No call raises, because some of SGLang's threads end with an exception.
"""

import dataclasses
import functools
import logging
import time

import infera_kvd
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolTransferResult

from infera_kvd.engine.counters import Counters, in_words
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.errors import Refused, say_unused
from infera_kvd.engine.keys import Shard, compat_key
from infera_kvd.engine.options import Keep, engine_options
from infera_kvd.sglang import environment, served
from infera_kvd.sglang.hicache import MAIN, Pool, Pools, plain, ranks_of
from infera_kvd.sglang.pages import check_pool, description
from infera_kvd.sglang.store import PageStore

log = logging.getLogger(__name__)

# In the extra configuration, but SGLang's.
SGLANGS_OWN = {
    "allocator",
    "backend_name",
    "class_name",
    "file_storage_path",
    "interface_v1",
    "module_path",
}
# Transfers waiting to be counted; SGLang asks after each step.
TRANSFERS_MAX = 1024
# SGLang looks, fills and stores in a thread each.
CONNECTIONS = 3


def unfailing(nothing):
    """A method that answers `nothing(arguments)` when it would raise; the first time, the log says why."""

    def decorate(method):
        @functools.wraps(method)
        def wrapped(self, *arguments, **named):
            try:
                return method(self, *arguments, **named)
            except Exception:
                if method.__name__ not in self._failed:
                    self._failed.add(method.__name__)
                    log.exception("infera-kvd: %s failed; said once", method.__name__)
                return nothing(*arguments)

        return wrapped

    return decorate


def _none_of(items=(), *_):
    return [False] * len(items)


def _none_of_pools(transfers=(), *_):
    return {transfer.name: [False] * len(transfer.keys or ()) for transfer in transfers}


class InferaKvdStorage(HiCacheStorage):
    """Pages of HiCache's host pools, kept by the infera-kvd of this host across requests, engines and restarts."""

    def __init__(self, storage_config, kwargs):
        self._config = storage_config
        self._counters = Counters()
        self._pools = Pools(log)
        self._failed = set()
        self._transfers = []
        self._daemon = None
        extra = storage_config.extra_config or {}
        self._interface = "v1" if extra.get("interface_v1") else "values"
        try:
            environment.check(served.STORAGE)
            if getattr(storage_config, "dcp_size", 1) > 1:
                raise Refused("decode context parallelism spreads one page over ranks")
            options = engine_options({name: value for name, value in extra.items() if name not in SGLANGS_OWN})
            self._model, self._identity = environment.model_name(options), environment.identity(options)
        except Exception as error:  # noqa: BLE001 - nothing of ours may end the engine
            say_unused(log, error)
            return
        self._keep = Keep(options.retention, options.ttl_seconds)
        rank = f"{storage_config.pp_rank}-{storage_config.tp_rank}"
        clients = [
            infera_kvd.Client(options.socket, client_id=f"sglang-{rank}", deadline=options.deadline_seconds)
            for _ in range(CONNECTIONS)
        ]
        self._daemon = Daemon(clients, self._counters, log, options.socket or "its default socket")
        if self._interface != "v1":
            log.warning('infera-kvd: each page is copied once more: set "interface_v1": 1')

    # Pools, once at the start.

    @unfailing(lambda *_: None)
    def register_mem_pool_host(self, mem_pool_host):
        """The main pool."""
        super().register_mem_pool_host(mem_pool_host)
        self._register(MAIN, mem_pool_host)

    @unfailing(lambda *_: None)
    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        """A pool by name; the main one may come a second time."""
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        if plain(host_pool_name) not in self._pools:
            self._register(plain(host_pool_name), host_pool)

    # Pages in their pools: `interface_v1` and, by name, v2.

    @unfailing(lambda *_: 0)
    def batch_exists(self, keys, extra_info=None):
        """How many pages, from the first on, are stored."""
        return self._pools.leading(keys)

    @unfailing(_none_of)
    def batch_get_v1(self, keys, host_indices, extra_info=None):
        """Fills pages of the main pool. Whether each is filled."""
        return self._timed("get", keys, self._pools.get, MAIN, keys, host_indices)

    @unfailing(_none_of)
    def batch_set_v1(self, keys, host_indices, extra_info=None):
        """Stores pages of the main pool. Whether each is stored."""
        return self._timed("set", keys, self._pools.set, MAIN, keys, host_indices, _before(extra_info))

    @unfailing(lambda *_: PoolTransferResult.empty())
    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None):
        """Which lengths of a prefix all pools can restore."""
        lengths, reach = self._pools.restorable(keys, pool_transfers)
        sparse = {"restorable_prefix_pages": lengths} if _has_sparse_results() else {}
        found = {name: pages for name, pages in reach.items() if pages}
        return PoolTransferResult(max(lengths, default=0), found, **sparse)

    @unfailing(_none_of_pools)
    def batch_get_v2(self, transfers, extra_info=None):
        """Fills pages of several pools. For each pool, whether each of its pages is filled."""
        return {one.name: self._pools.get(plain(one.name), list(one.keys or ()), one.host_indices) for one in transfers}

    @unfailing(_none_of_pools)
    def batch_set_v2(self, transfers, extra_info=None):
        """Stores pages of several pools. For each pool, whether each of its pages is stored."""
        return {one.name: self._pools.set(plain(one.name), list(one.keys or ()), one.host_indices) for one in transfers}

    # Pages as tensors of SGLang's, without `interface_v1`.

    @unfailing(lambda *_: None)
    def get(self, key, target_location=None, target_sizes=None):
        """Fills a tensor; itself, or `None`."""
        return self.batch_get([key], [target_location])[0]

    @unfailing(lambda keys=(), *_: [None] * len(keys))
    def batch_get(self, keys, target_locations=None, target_sizes=None):
        """Fills a tensor for each page; the tensors, `None` for what is not there."""
        targets = list(target_locations or ())
        filled = self._timed("get", keys, self._pools.get_values, keys, [environment.bytes_of(one) for one in targets])
        return [target if is_filled else None for target, is_filled in zip(targets, filled, strict=True)]

    @unfailing(lambda *_: False)
    def set(self, key, value=None, target_location=None, target_sizes=None):
        """Stores a tensor. Whether it is stored."""
        return self.batch_set([key], [value])

    @unfailing(lambda *_: False)
    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        """Stores a tensor for each page. Whether all are stored."""
        sources = [environment.bytes_of(one.contiguous()) for one in values or ()]
        return all(self._timed("set", keys, self._pools.set_values, keys, sources))

    @unfailing(lambda *_: False)
    def exists(self, key):
        """Whether a page is stored."""
        return self._pools.leading([key]) == 1

    # Housekeeping.

    @unfailing(lambda *_: False)
    def clear(self):
        """Forgets everything that engines like this one have stored. Whether the daemon did."""
        return self._pools.clear()

    @unfailing(lambda *_: None)
    def get_stats(self):
        """Pages and bandwidths of the transfers since the last call, for SGLang's histograms; `None` if they are off."""
        if not self._config.enable_storage_metrics:
            return None
        # Here, because it draws in much that a backend has no use for.
        from sglang.srt.observability.metrics_collector import StorageMetrics

        taken, self._transfers = self._transfers, []
        metrics = StorageMetrics()
        histograms = {
            "get": (metrics.prefetch_pgs, metrics.prefetch_bandwidth),
            "set": (metrics.backup_pgs, metrics.backup_bandwidth),
        }
        for kind, *values in taken:
            for histogram, value in zip(histograms[kind], values, strict=True):
                histogram.append(value)
        return metrics

    def close(self):
        """Says what was done and ends the connections."""
        if self._daemon is not None:
            log.info("infera-kvd: %s", in_words(self._counters.totals()) or "nothing done")
            self._daemon.close()
            self._daemon, self._pools = None, Pools(log)

    def _register(self, name, pool):
        if self._daemon is None:
            return
        try:
            sizes = check_pool(name, pool, environment.first_page(pool))
        except Refused as error:
            log.error("infera-kvd is not used for models that need it: %s", error)
            return
        ranks, stores = ranks_of(self._config, name)
        parts = {
            "way": f"hicache {self._interface}",
            "pool": name,
            **self._identity,
        }
        memory = description(pool, sizes)
        shard = Shard(self._model, compat_key("sglang", ranks, memory, **parts), sum(sizes))
        store = PageStore(self._daemon, shard, self._keep, pool.page_size, self._counters, infera_kvd.Lineage)
        self._pools.add(name, Pool(pool, store, pool.page_size, stores))
        log.info("infera-kvd: model %s, compat_key %s, %d bytes a page: %s", shard.model, shard.compat_key,
                 shard.block_bytes, {**parts, "memory": memory, "ranks": ranks})

    def _timed(self, kind, keys, call, *arguments):
        begun = time.monotonic()
        done = call(*arguments)
        seconds = time.monotonic() - begun
        if self._config.enable_storage_metrics and MAIN in self._pools and len(self._transfers) < TRANSFERS_MAX:
            moved = sum(done) * self._pools.page_bytes(MAIN)
            self._transfers.append((kind, len(keys), moved / max(seconds, 1e-9) / 1e9))
        return done


def _before(extra_info):
    """The name of the page before a batch, "" at the start of a prompt, `None` if SGLang does not say."""
    prefix = getattr(extra_info, "prefix_keys", None)
    if prefix is None:
        return None
    return prefix[-1] if prefix else ""


@functools.cache
def _has_sparse_results():
    return any(field.name == "restorable_prefix_pages" for field in dataclasses.fields(PoolTransferResult))
