"""What a tier decides: which rows are there, what is stored of a request, and what a failure means.

A row is a chunk of vLLM's host memory: the bytes of all layers and all ranks for some blocks. It is one value in the
daemon, under vLLM's own key: the hash of the tokens up to its end, and the number of its cache group.
"""

import dataclasses
import itertools
import time

from infera_kvd.engine.daemon import KEYS_MAX
from infera_kvd.engine.keys import GROUP_BYTES
from infera_kvd.engine.options import Keep, Keeps
from infera_kvd.engine.saver import Item
from infera_kvd.vllm.tier_lookups import Lookups
from infera_kvd.vllm.tier_transfers import Cascades, Promotions


@dataclasses.dataclass
class TierRequest:
    """What is known of one request. `chain`: the hash of the chunk that ends at a token, for each cache group."""

    keep: Keep
    positions: dict[bytes, int] = dataclasses.field(default_factory=dict)
    chain: dict[tuple[bytes, int], bytes] = dataclasses.field(default_factory=dict)
    seen: int = 0

    def parent(self, key, chunk_tokens):
        """The hash of the chunk before `key`, and whether it is known: `None` and true for the first chunk."""
        # Only what has come since the last call: prompts are long.
        for other, end in itertools.islice(self.positions.items(), self.seen, None):
            self.chain[other[-GROUP_BYTES:], end] = other[:-GROUP_BYTES]
        self.seen = len(self.positions)
        end = self.positions.get(key)
        if end == chunk_tokens:
            return None, True
        parent = self.chain.get((key[-GROUP_BYTES:], end - chunk_tokens)) if end is not None else None
        return parent, parent is not None


@dataclasses.dataclass(frozen=True)
class Connections:
    """One `Daemon` for each thread, so that none waits for what another moves."""

    lookups: object
    loads: object
    saves: object

    def close(self):
        """Ends all three."""
        for daemon in (self.lookups, self.loads, self.saves):
            daemon.close()


class RowStore:
    """The rows of one engine.

    `rows`: an array of uint8, one row a chunk; writing to a row writes to vLLM's memory. `chunk_tokens`: by the four
    bytes that name a cache group in a key, how many tokens a chunk has. `make_lineage`: what describes a row for those
    who follow tier events. All methods are for the scheduler's thread, and none waits but `drain` and `close`.
    """

    def __init__(self, connections, shard, rows, chunk_tokens, options, counters, make_lineage, log):
        self._connections = connections
        self._shard = self._first_shard = shard
        self._rows = rows
        self._row_numbers = range(len(rows))
        self._chunk_tokens = chunk_tokens
        self._options = options
        self._counters = counters
        self._make_lineage = make_lineage
        self._keeps = Keeps(options, log)
        self._lookups = Lookups(self._ask)
        self._promotions = Promotions(self._fill)
        self._cascades = Cascades(self._store, counters, shard.block_bytes, options.save_queue_blocks)

    def request(self, request_id, parameters, positions):
        """A request begins. `parameters`: its `kv_transfer_params`; `positions`: by key the token at which it ends."""
        return TierRequest(self._keeps.of(request_id, parameters), positions)

    def lookup(self, key):
        """Whether the row is stored; `None`: ask again in the next step."""
        return self._lookups.answer(key)

    def step_ends(self):
        """Asks the daemon what this step wanted to know."""
        self._lookups.step_ends()

    def load(self, job_id, keys, row_numbers):
        """Begins to fill rows."""
        self._promotions.add(job_id, zip(keys, row_numbers, strict=True))

    def store(self, job_id, keys, row_numbers, request):
        """Begins to store rows, as far as the request lets itself be stored and the queue has room."""
        wanted = zip(keys, row_numbers, strict=True) if request.keep.stored else ()
        self._cascades.add(
            job_id,
            keys,
            [Item(job_id, number, key, request.keep, self._lineage(key, request)) for key, number in wanted],
        )

    def take_finished(self):
        """The jobs that have ended since the last call, once each."""
        finished = self._promotions.take_finished() + self._cascades.take_finished()
        for job in finished:
            if job.is_load:
                self._lookups.fail(job.failed)
            else:
                self._lookups.stored(job.done)
        return finished

    def drain(self):
        """Until nothing of ours touches a row: each job ends, if need be by failing."""
        begun = time.monotonic()
        self._cascades.drain(self._options.save_drain_seconds, self._row_numbers)
        self._promotions.drain(max(self._options.save_drain_seconds - (time.monotonic() - begun), 0))

    def forget(self):
        """From now on this engine has a namespace of its own, where nothing is that was stored so far or that others store.

        For when it drops its cache: it may have got other weights, of which nobody else knows.
        """
        self._shard = self._first_shard.private()
        self._lookups.forget()

    def close(self):
        """Stores what is still waiting, within the time that was set for it, and ends threads and connections."""
        self._lookups.close()
        self._promotions.close()
        self._cascades.close(self._options.save_drain_seconds)
        self._connections.close()
        # vLLM unmaps its memory next, which it cannot while somebody refers to it.
        self._rows = None

    def _ask(self, keys):
        shard, found = self._shard, []
        self._counters.add("lookups")
        self._counters.add("lookup_blocks", len(keys))
        deadline = time.monotonic() + self._options.deadline_seconds
        for first in range(0, len(keys), KEYS_MAX):
            # Whoever waits behind a daemon that is slow to answer computes instead.
            if time.monotonic() > deadline:
                break
            found += self._connections.lookups.present(shard, keys[first : first + KEYS_MAX])
        self._counters.add("lookup_hit_blocks", sum(found))
        return found + [False] * (len(keys) - len(found))

    def _fill(self, rows, goes_on):
        return self._connections.loads.load(
            self._shard, [key for key, _ in rows], [[self._rows[number]] for _, number in rows], goes_on
        )

    def _store(self, items):
        saves, shard = self._connections.saves, self._shard
        present = saves.present(shard, [item.key for item in items])
        # What is there and could not be loaded is stored anew.
        missing = [
            item
            for item, is_there in zip(items, present, strict=True)
            if not is_there or self._lookups.has_failed(item.key)
        ]
        there = {item.key for item in items} - {item.key for item in missing}
        self._counters.add("save_present_blocks", len(items) - len(missing))
        if not missing:
            return there
        stored = saves.save(
            shard,
            [item.key for item in missing],
            [[self._rows[item.block_id]] for item in missing],
            missing[0].keep,
            [item.lineage for item in missing],
        )
        return there | {item.key for item, is_stored in zip(missing, stored, strict=True) if is_stored}

    def _lineage(self, key, request):
        chunk_tokens = self._chunk_tokens.get(key[-GROUP_BYTES:])
        if chunk_tokens is None:
            return None
        parent, is_known = request.parent(key, chunk_tokens)
        if not is_known:
            return None
        return self._make_lineage([key[:-GROUP_BYTES]], parent=parent, tokens_per_block=chunk_tokens)
