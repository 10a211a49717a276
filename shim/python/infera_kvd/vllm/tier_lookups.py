"""What a tier knows about which rows are stored: answers at once, and asks the daemon in the background.

vLLM asks for one key at a time, for all keys of a prompt in a step, and again in each step until it has an answer. So
the keys of a step, of all requests, are asked together when the step ends, and the next step finds the answers. All
methods but the thread's are the scheduler thread's alone.
"""

import collections
import threading
import time

# How long an answer holds. It has to last into the next step only: what is found is promoted there. Far below the
# window in which the daemon keeps what it has reported (30 s by default).
ANSWER_SECONDS = 1.0
# Keys that wait for an answer. Beyond, the answer is "not stored": the prompt is computed.
WAITING_KEYS_MAX = 16384
# Keys that are remembered because they could not be loaded or stored; the oldest go first.
FAILED_KEYS_MAX = 65536


class Lookups:
    """Answers by key. `ask(keys)` says for each of a list of keys whether it is stored; it may take a while."""

    def __init__(self, ask, clock=time.monotonic, name="infera-kvd-tier-lookup"):
        self._ask = ask
        self._clock = clock
        self._known = {}
        self._wanted = {}
        self._asked = set()
        self._failed = {}
        self._condition = threading.Condition()
        self._queue = []
        self._answers = collections.deque()
        self._generation = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def answer(self, key):
        """Whether `key` is stored; `None` if that is not known yet: ask again in the next step."""
        if self._answers:
            self._take_answers()
        if key in self._failed:
            return False
        known = self._known.get(key)
        if known is not None:
            return known[0]
        if key not in self._asked:
            if len(self._asked) + len(self._wanted) >= WAITING_KEYS_MAX and key not in self._wanted:
                return False
            self._wanted[key] = None
        return None

    def step_ends(self):
        """Asks what this step wanted to know, and forgets what was answered too long ago."""
        # Here and not in `answer`: each answer is there for a whole step, however long steps take.
        oldest = self._clock() - ANSWER_SECONDS
        while self._known:
            key = next(iter(self._known))
            if self._known[key][1] > oldest:
                break
            del self._known[key]
        if self._wanted:
            wanted, self._wanted = list(self._wanted), {}
            self._asked.update(wanted)
            with self._condition:
                self._queue.append((self._generation, wanted))
                self._condition.notify_all()

    def fail(self, keys):
        """These could not be loaded. They are not stored until `stored` says so, or the engine would try for ever."""
        for key in keys:
            self._known.pop(key, None)
            self._failed[key] = None
        while len(self._failed) > FAILED_KEYS_MAX:
            del self._failed[next(iter(self._failed))]

    def has_failed(self, key):
        """Whether this key could not be loaded and was not stored since. For every thread."""
        return key in self._failed

    def stored(self, keys):
        """These are stored now."""
        for key in keys:
            self._failed.pop(key, None)
            self._known.pop(key, None)

    def forget(self):
        """Everything that is known belongs to a namespace that is not used any more."""
        self._known.clear()
        self._wanted.clear()
        self._asked.clear()
        self._failed.clear()
        self._generation += 1

    def close(self):
        """Ends the thread after the question that it is at."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._thread.join()

    def _take_answers(self):
        now = self._clock()
        while self._answers:
            generation, keys, found = self._answers.popleft()
            if generation != self._generation:
                continue
            self._asked.difference_update(keys)
            self._known.update((key, (is_stored, now)) for key, is_stored in zip(keys, found, strict=True))

    def _run(self):
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._queue or self._closed)
                if self._closed:
                    return
                questions, self._queue = self._queue, []
            # Of one generation, but for the moment after `forget`.
            for generation in sorted({generation for generation, _ in questions}):
                keys = [key for number, wanted in questions if number == generation for key in wanted]
                try:
                    found = list(self._ask(keys))
                except Exception:  # noqa: BLE001 - the requests must not wait for ever
                    found = [False] * len(keys)
                self._answers.append((generation, keys, found))
