"""The worker's background thread: stores blocks off the engine's path, straight from its cache into the arena.

Bounded: a full queue drops new blocks and counts them, the engine never waits for room. The engine waits in one case
only: it is about to write over a block that is being copied at this moment (see `let_go`).
"""

import collections
import dataclasses
import threading
import time

# One batch: long enough to fill the copy threads, short enough that `let_go` waits for milliseconds.
BATCH_BLOCKS_MAX = 128
BATCH_BYTES_MAX = 32 << 20


@dataclasses.dataclass(frozen=True)
class Item:
    """One block on its way: whose it is, where it is, what it is called and how it is kept."""

    request_id: str
    block_id: int
    key: bytes
    keep: object
    lineage: object


class Saver:
    """A queue and the thread that empties it.

    `store(items)` stores a batch; items of one batch have equal `keep`.
    """

    def __init__(self, store, counters, block_bytes, queue_blocks_max, name="infera-kvd-save"):
        self._store = store
        self._counters = counters
        self._queue_blocks_max = queue_blocks_max
        self._batch_blocks = max(1, min(BATCH_BLOCKS_MAX, BATCH_BYTES_MAX // max(block_bytes, 1)))
        self._condition = threading.Condition()
        self._queue = collections.deque()
        self._copying = ()
        self._unfinished = collections.Counter()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, items):
        """Takes as many of `items` as there is room for, from the first on: a prefix is worth more than its tail.

        Returns how many it took.
        """
        with self._condition:
            room = 0 if self._closed else max(self._queue_blocks_max - len(self._queue), 0)
            taken = items[:room]
            self._queue.extend(taken)
            self._unfinished.update(item.request_id for item in taken)
            if taken:
                self._condition.notify_all()
        self._counters.add("save_dropped_blocks", len(items) - len(taken))
        return len(taken)

    def let_go(self, block_ids):
        """Returns when none of `block_ids` will be read any more: what waits is given up, what is being copied ends."""
        with self._condition:
            if not self._queue and not self._copying:
                return
            kept = collections.deque(item for item in self._queue if item.block_id not in block_ids)
            if len(kept) != len(self._queue):
                abandoned = [item for item in self._queue if item.block_id in block_ids]
                self._queue = kept
                self._forget(abandoned)
                self._counters.add("save_abandoned_blocks", len(abandoned))
            while any(item.block_id in block_ids for item in self._copying):
                self._condition.wait()

    def is_done(self, request_id):
        """Whether nothing of this request is waiting or being copied."""
        with self._condition:
            return self._unfinished[request_id] == 0 if request_id in self._unfinished else True

    def drain(self, seconds):
        """Waits until everything is stored, at most so long. Whether it is."""
        deadline = time.monotonic() + seconds
        with self._condition:
            return self._condition.wait_for(
                lambda: not self._queue and not self._copying, max(deadline - time.monotonic(), 0)
            )

    def close(self, seconds):
        """Stores what it can within `seconds`, gives up the rest and ends the thread."""
        self.drain(seconds)
        with self._condition:
            self._closed = True
            abandoned = list(self._queue)
            self._queue.clear()
            self._forget(abandoned)
            self._counters.add("save_abandoned_blocks", len(abandoned))
            self._condition.notify_all()
        self._thread.join()

    def _run(self):
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                batch = self._copying = self._next_batch()
            try:
                self._store(batch)
            except Exception:  # noqa: BLE001 - the thread must live: requests are held until it is through with them
                self._counters.add("save_failed_blocks", len(batch))
            finally:
                with self._condition:
                    self._copying = ()
                    self._forget(batch)
                    self._condition.notify_all()

    def _next_batch(self):
        batch = [self._queue.popleft()]
        while self._queue and len(batch) < self._batch_blocks and self._queue[0].keep == batch[0].keep:
            batch.append(self._queue.popleft())
        return batch

    def _forget(self, items):
        for item in items:
            self._unfinished[item.request_id] -= 1
            if self._unfinished[item.request_id] <= 0:
                del self._unfinished[item.request_id]
