"""The worker's other background threads: they fill blocks while their requests wait beside the batch."""

import collections
import threading


# Loads that go on at once where each thread has its connection: what memory holds need not wait for what a disk holds.
AT_ONCE = 2


class Loader:
    """Loads in the order in which they come. Each ends and is reported, whatever happens.

    `fill(load)` fills the blocks of a load and returns the ids of those that could not be filled; `threads` call it.
    What waits is bounded by the engine: it has made room for every block.
    """

    def __init__(self, fill, threads=1, name="infera-kvd-load"):
        self._fill = fill
        self._condition = threading.Condition()
        self._queue = collections.deque()
        self._loaded = set()
        self._failed_blocks = set()
        self._closed = False
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def add(self, load):
        """Takes a load."""
        with self._condition:
            self._queue.append(load)
            self._condition.notify_all()

    def take_loaded(self):
        """Requests whose load has ended since the last call."""
        # Asked in every step, nearly always in vain. What comes in at this moment is told in the next.
        if not self._loaded:
            return set()
        with self._condition:
            loaded, self._loaded = self._loaded, set()
        return loaded

    def take_failed_blocks(self):
        """Blocks that could not be filled: all of every request that `take_loaded` has named."""
        if not self._failed_blocks:
            return set()
        with self._condition:
            failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def close(self):
        """Ends the threads, each after the load that it is at; the others fail."""
        with self._condition:
            self._closed = True
            while self._queue:
                self._end(self._queue.popleft(), None)
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self):
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                load = self._queue.popleft()
            try:
                failed = self._fill(load)
            except Exception:  # noqa: BLE001 - the request must not wait for ever
                failed = None
            with self._condition:
                self._end(load, failed)

    def _end(self, load, failed):
        """Together, so that nobody sees a request that has ended without the blocks that it lacks."""
        self._failed_blocks |= {block_id for _, block_id in load.blocks} if failed is None else failed
        self._loaded.add(load.request_id)
