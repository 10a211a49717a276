"""The half of the connector that lives with one rank of ATOM: it moves bytes between the cache and the arena.

Whatever is asked for is reported, also by a rank that was refused: the scheduler, which does not know of that, would
otherwise wait for ever.
"""

import dataclasses
import logging

import infera_kvd
from atom.kv_transfer.disaggregation.base import KVConnectorBase
from atom.kv_transfer.disaggregation.types import KVConnectorOutput

from infera_kvd.atom import environment, layout
from infera_kvd.engine.counters import Counters, in_words
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.errors import say_unused
from infera_kvd.engine.keys import block_key
from infera_kvd.engine.loader import Loader
from infera_kvd.engine.options import engine_options
from infera_kvd.engine.saver import Item, Saver

# Below ATOM's own name, so that its log level and format hold for us too.
log = logging.getLogger("atom.infera_kvd")


class InferaKvdWorker(KVConnectorBase):
    """Loads and saves beside the forward pass, each in a thread of its own with a connection of its own."""

    is_producer = False

    def __init__(self, config):
        self._config = config
        self._planes = None
        self._loading = {}
        self._saving = set()
        # Blocks that could not be filled, until their request is reported.
        self._unfilled = set()
        self._unserved = KVConnectorOutput()

    def register_kv_caches(self, kv_caches, transfer_tensors=None, num_blocks=None):
        """The cache is there. From here on it is known how many bytes a block has."""
        from aiter.dist.parallel_state import get_tp_group

        try:
            environment.check(self._config)
            options = engine_options(environment.extra(self._config))
            planes = layout.planes(kv_caches, num_blocks)
            shards, parts = environment.shards(self._config, options)
        except Exception as error:  # noqa: BLE001 - nothing of ours may end the engine
            say_unused(log, error)
            return
        block_bytes = sum(plane.bytes for plane in planes)
        self._shard = dataclasses.replace(shards[get_tp_group().rank_in_group], block_bytes=block_bytes)
        log.info("infera-kvd: model %s, compat_key %s, %d bytes a block: %s", self._shard.model,
                 self._shard.compat_key, block_bytes, parts)
        self._options, self._counters = options, Counters()
        self._block_tokens = environment.block_tokens(self._config)
        self._loads_from, self._saves_to = self._daemon("load"), self._daemon("save")
        self._loader = Loader(self._fill)
        self._saver = Saver(self._store, self._counters, block_bytes, options.save_queue_blocks)
        self._planes = planes

    def start_load_kv(self, metadata):
        """Before a forward pass: lets go of memory, then begins loads and saves, which no pass waits for."""
        step = getattr(metadata, "step", None)
        if step is None:
            return
        if self._planes is None:
            self._unserved.failed_loading.update(load.request_id for load in step.loads)
            self._unserved.finished_saving.update(save.request_id for save in step.saves)
            return
        if step.lost:
            self._saver.let_go(step.lost)
        for load in step.loads:
            self._loading[load.request_id] = {block_id for _, block_id in load.blocks}
            self._loader.add(load)
        for save in step.saves:
            self._saving.add(save.request_id)
            self._saver.add([
                Item(save.request_id, block_id, block_key(block_hash), save.keep, self._lineage(block_hash, parent))
                for block_hash, parent, block_id in save.blocks
            ])

    def get_finished(self):
        """What has ended since the last call."""
        if self._planes is None:
            unserved, self._unserved = self._unserved, KVConnectorOutput()
            return unserved
        loaded = self._loader.take_loaded()
        self._unfilled |= self._loader.take_failed_blocks()
        failed = {request_id for request_id in loaded if self._loading[request_id] & self._unfilled}
        for request_id in loaded:
            self._unfilled -= self._loading.pop(request_id)
        saved = {request_id for request_id in self._saving if self._saver.is_done(request_id)}
        self._saving -= saved
        return KVConnectorOutput(finished_loading=loaded - failed, failed_loading=failed, finished_saving=saved)

    def close(self):
        """Stores what is waiting, says what was done, and ends threads and connections."""
        if self._planes is None:
            return
        self._loader.close()
        self._saver.close(self._options.save_drain_seconds)
        self._loads_from.close()
        self._saves_to.close()
        log.info("infera-kvd, worker: %s", in_words(self._counters.totals()) or "nothing done")
        self._planes = None

    def _daemon(self, part):
        options = self._options
        client = infera_kvd.Client(options.socket, client_id=f"atom-{part}", deadline=options.deadline_seconds)
        return Daemon([client], self._counters, log, options.socket or "its default socket")

    def _buffers(self, block_id):
        return [plane.block(block_id) for plane in self._planes]

    def _lineage(self, block_hash, parent):
        return infera_kvd.Lineage([block_hash], parent=parent, tokens_per_block=self._block_tokens)

    def _fill(self, load, goes_on):
        keys = [block_key(block_hash) for block_hash, _ in load.blocks]
        targets = [self._buffers(block_id) for _, block_id in load.blocks]
        failed = self._loads_from.load(self._shard, keys, targets, goes_on)
        return {load.blocks[index][1] for index in failed}

    def _store(self, items):
        self._saves_to.save_missing(self._shard, items, self._buffers)
