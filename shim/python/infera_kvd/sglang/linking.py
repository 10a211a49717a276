"""What the linker does between the device's pools and the daemon: plain Python.

SGLang asks in its scheduler's thread, between steps: which lengths of a prefix are there (`lookup`), to load one (`load`,
then `start`), to store what was computed (`offload`). A load is copied layer by layer in one background thread, so that
the first layers of a step run while the later ones still come; an offload is copied whole in another.

SGLang ends the requests of a batch whose load fails, so what is to be loaded is pinned first: `load` takes the daemon's
leases on all its pages, after which neither an eviction nor the daemon's death can make it fail. If they cannot be had the
load is refused and SGLang computes; only where several ranks have to agree it must fail instead.
"""

import collections
import queue
import threading
import time

from infera_kvd.engine.saver import Item, Saver
from infera_kvd.sglang.pages import page_starts, parents

# A look-up that took longer than this is followed by a rest of so many times its length: a daemon that hangs must not
# take more than a tenth of the scheduler's time.
SLOW_SECONDS = 0.02
REST_TIMES = 9


class Layers:
    """The device's pools: for each layer a list of (flat writable memoryview of bytes, bytes of one slot)."""

    def __init__(self, layers, page_tokens):
        self._layers = layers
        self._page_tokens = page_tokens

    def __len__(self):
        return len(self._layers)

    @property
    def page_bytes(self):
        """Bytes of one page's value: its runs, layer after layer."""
        return sum(row * self._page_tokens for layer in self._layers for _, row in layer)

    def runs(self, start):
        """All runs of the page that begins at slot `start`."""
        return [self._run(memory, row, start) for layer in self._layers for memory, row in layer]

    def fill(self, pages):
        """Copies layer by layer into pages; a generator that stops behind each layer. `pages`: (value, first slot)."""
        at = 0
        for layer in self._layers:
            for memory, row in layer:
                end = at + row * self._page_tokens
                for value, start in pages:
                    self._run(memory, row, start)[:] = value[at:end]
                at = end
            yield

    def _run(self, memory, row, start):
        return memory[start * row : (start + self._page_tokens) * row]


class Rest:
    """Bounds the share of time that slow questions take."""

    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._until = clock()

    def ask(self, question, otherwise):
        """The answer, or `otherwise` while the last one was too slow too recently."""
        begun = self._clock()
        if begun < self._until:
            return otherwise
        answer = question()
        ended = self._clock()
        if ended - begun > SLOW_SECONDS:
            self._until = ended + REST_TIMES * (ended - begun)
        return answer


class Linking:
    """One rank's look-ups, loads and offloads.

    `done`: SGLang's counter of loaded layers. `alone`: whether no other rank has to agree. `stores`: false on a rank whose
    bytes another rank stores.
    """

    def __init__(self, store, layers, page_tokens, options, keep, counters, done, *, alone, stores, rest=None):
        self._store = store
        self._layers = layers
        self._page_tokens = page_tokens
        self._keep = keep
        self._counters = counters
        self._done = done
        self._alone = alone
        self._stores = stores
        self._drain_seconds = options.save_drain_seconds
        self._rest = rest or Rest()
        self._queued = {}
        self._offloads = collections.deque()
        self._offloaded = 0
        self._unstored = set()
        self._saver = Saver(self._save, counters, layers.page_bytes, options.save_queue_blocks)
        self._loads = queue.Queue()
        self._loader = threading.Thread(target=self._load_all, name="infera-kvd-load", daemon=True)
        self._loader.start()

    # Loads.

    def lookup(self, names):
        """Every length of the prefix, in pages, that is there."""
        return list(range(1, self._rest.ask(lambda: self._store.leading(names), 0) + 1))

    def load(self, request_id, names, slots):
        """Takes a load into `slots` for the next start. False: compute instead."""
        try:
            starts = page_starts(slots, self._page_tokens)
        except ValueError:
            return False
        views = self._store.fetch(names) if len(starts) == len(names) else []
        if len(views) < len(names):
            self._counters.add("load_failed_blocks", len(names) - len(views))
            if self._alone or len(starts) != len(names):
                return False
            views = None
        self._queued[request_id] = (views, starts)
        return True

    def cancel(self, request_id):
        """Gives up a load that has not started. Whether there was one."""
        return self._queued.pop(request_id, None) is not None

    def start(self):
        """Starts what is queued: the number of the batch, -1 if nothing is."""
        if not self._queued:
            return -1
        index = self._done.update_producer()
        loads, self._queued = list(self._queued.values()), {}
        self._loads.put((index, loads))
        return index

    # Offloads. SGLang keeps their slots as they are until it has taken the result, and takes results in order.

    def offload(self, names, slots):
        """Takes pages to be stored. False: they are in no state to be."""
        try:
            starts = page_starts(slots, self._page_tokens)
        except ValueError:
            return False
        if len(starts) != len(names):
            return False
        self._offloaded += 1
        number = self._offloaded
        if self._stores:
            named = zip(names, parents(names), starts, strict=True)
            items = [Item(number, start, name, self._keep, parent) for name, parent, start in named]
            if self._saver.add(items) < len(items):
                self._unstored.add(number)
        self._offloads.append((number, set(starts)))
        return True

    def completed(self):
        """How many offloads, the oldest ones, are through."""
        count = 0
        for number, _ in self._offloads:
            if not self._saver.is_done(number):
                break
            count += 1
        return count

    def pop(self):
        """The result of the oldest offload: whether all of it is stored."""
        number, _ = self._offloads.popleft()
        stored = number not in self._unstored
        self._unstored.discard(number)
        return stored

    # Housekeeping.

    def reset(self):
        """Gives up what waits, and returns when nothing touches the pools any more. What was stored is not found again."""
        self._queued.clear()
        self._loads.join()
        self._saver.let_go(set().union(*(starts for _, starts in self._offloads)))
        self._store.forget()
        self._offloads.clear()
        self._unstored.clear()
        self._done.reset()

    def close(self):
        """Stores what is still waiting, within the time that was set for it, and ends the threads."""
        self._queued.clear()
        self._loads.put(None)
        self._loader.join()
        self._saver.close(self._drain_seconds)

    def _load_all(self):
        while (batch := self._loads.get()) is not None:
            try:
                self._load(*batch)
            finally:
                # Its leases with it.
                batch = None
                self._loads.task_done()
        self._loads.task_done()

    def _load(self, index, loads):
        begun = time.monotonic()
        try:
            if any(views is None for views, _ in loads):
                raise LookupError("pages were gone between look-up and load")
            pages = [(memoryview(view), start) for views, starts in loads for view, start in zip(views, starts, strict=True)]
            for layer, _ in enumerate(self._layers.fill(pages)):
                self._done.complete(index, layer)
        except Exception as error:  # noqa: BLE001 - SGLang waits for each layer
            self._done.fail(index, error)
            return
        self._counters.add("loaded_blocks", len(pages))
        self._counters.add("loaded_bytes", len(pages) * self._layers.page_bytes)
        self._counters.add("load_microseconds", int((time.monotonic() - begun) * 1e6))

    def _save(self, items):
        stored = [False] * len(items)
        try:
            sources = [self._layers.runs(item.block_id) for item in items]
            stored = self._store.save_each([item.key for item in items], sources, [item.lineage for item in items])
        finally:
            self._unstored |= {item.request_id for item, is_stored in zip(items, stored, strict=True) if not is_stored}
