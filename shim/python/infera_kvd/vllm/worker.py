"""The half of the connector that lives with one rank of the engine: it moves bytes between the cache and the arena."""

import time

from infera_kvd.engine.keys import block_key
from infera_kvd.engine.loader import AT_ONCE, Loader
from infera_kvd.engine.options import Keep
from infera_kvd.engine.saver import Item, Saver


class WorkerHalf:
    """Loads and saves beside the forward pass, in threads of their own.

    `loads_from`: a `Daemon` for `AT_ONCE` threads, `saves_to`: one for one thread.

    `pages`: for each layer an array of uint8 rows, one row a page, and how many pages a block has there; writing to a
    row writes to the engine's cache. `make_lineage`: what describes a block for those who follow tier events.
    `stores`: false on a rank whose bytes another rank stores.
    """

    def __init__(self, loads_from, saves_to, shard, pages, block_tokens, options, counters, make_lineage, *, stores=True):
        self._loads_from = loads_from
        self._saves_to = saves_to
        self._shard = shard
        self._pages = pages
        self._block_tokens = block_tokens
        self._drain_seconds = options.save_drain_seconds
        self._make_lineage = make_lineage
        self._stores = stores
        self._held = set()
        self._loader = Loader(self._fill, AT_ONCE)
        self._saver = Saver(self._store, counters, shard.block_bytes, options.save_queue_blocks)

    def begin(self, step):
        """Before anything of a step runs: lets go of the memory that it hands out anew."""
        if step.written:
            self._saver.let_go(step.written)

    def load(self, step):
        """Begins to fill the blocks of a step. The end is told by `take_loaded` and `take_failed_blocks`."""
        for load in step.loads:
            self._loader.add(load)

    def save(self, step):
        """Hands the blocks that a step names to the background."""
        for save in step.saves if self._stores else ():
            keep = Keep(save.retention, save.ttl_seconds)
            self._saver.add([
                Item(save.request_id, block_id, block_key(block_hash), keep, self._lineage(save, number))
                for number, (block_hash, _, block_id) in enumerate(save.blocks)
            ])
        self._held |= step.held

    def take_finished(self):
        """Requests whose blocks were held and are not needed any more."""
        if not self._held:
            return set()
        finished = {request_id for request_id in self._held if self._saver.is_done(request_id)}
        self._held -= finished
        return finished

    def take_loaded(self):
        """Requests whose load has ended since the last call, well or not."""
        return self._loader.take_loaded()

    def take_failed_blocks(self):
        """Blocks that could not be filled, of every request that `take_loaded` has named and perhaps some more."""
        return self._loader.take_failed_blocks()

    def close(self):
        """Stores what is still waiting, within the time that was set for it, and ends the connections."""
        self._loader.close()
        self._saver.close(self._drain_seconds)
        self._loads_from.close()
        self._saves_to.close()

    def _fill(self, load, goes_on):
        if any(block_hash is None for block_hash, _ in load.blocks):
            return {block_id for _, block_id in load.blocks}
        end = None if load.seconds is None else time.monotonic() + load.seconds
        keys = [block_key(block_hash) for block_hash, _ in load.blocks]
        targets = [self._buffers(block_id) for _, block_id in load.blocks]
        failed = self._loads_from.load(
            self._shard, keys, targets, lambda: goes_on() and (end is None or time.monotonic() < end)
        )
        return {load.blocks[index][1] for index in failed}

    def _buffers(self, block_id):
        return [rows[block_id * count + i] for rows, count in self._pages for i in range(count)]

    def _lineage(self, save, number):
        block_hash, parent, _ = save.blocks[number]
        return self._make_lineage(
            [block_hash],
            save.router_hashes[number : number + 1],
            parent=parent,
            tokens_per_block=self._block_tokens,
            lora=save.lora,
            salt=save.salt,
        )

    def _store(self, items):
        self._saves_to.save_missing(self._shard, items, self._buffers)
