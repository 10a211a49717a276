"""The background of a tier: rows on their way between vLLM's memory and the arena, in jobs that vLLM has numbered.

Each job that is taken is reported once, whatever happens, and nothing touches its rows after that: vLLM hands the
memory out anew. So `drain` and `close` wait for the call that is being made without a limit of their own: its limit
is the client's deadline, and to return before it would let it write into somebody else's row.
"""

import collections
import dataclasses
import threading
import time

from infera_kvd.engine.saver import Saver


@dataclasses.dataclass(frozen=True)
class Finished:
    """The end of a job. `done` and `failed`: its keys, each in one of the two."""

    job_id: int
    is_load: bool
    done: tuple[bytes, ...]
    failed: tuple[bytes, ...]
    seconds: float


@dataclasses.dataclass(frozen=True)
class _Promotion:
    job_id: int
    rows: tuple[tuple[bytes, int], ...]
    begun: float


class Promotions:
    """Loads, in the order in which they come, in a thread.

    `fill(rows)` fills a batch of rows, (key, row number) each, and returns the indices of those that could not be
    filled. A prefix is what is worth having: behind a batch with a failure nothing of the job is tried. What waits is
    bounded by the engine: it has made room for every row.
    """

    def __init__(self, fill, batch_rows, name="infera-kvd-tier-load"):
        self._fill = fill
        self._batch_rows = batch_rows
        self._condition = threading.Condition()
        self._queue = collections.deque()
        self._finished = []
        self._is_filling = False
        self._gives_up = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, job_id, rows):
        """Takes a job. `rows`: (key, row number) each."""
        with self._condition:
            self._queue.append(_Promotion(job_id, tuple(rows), time.monotonic()))
            self._condition.notify_all()

    def take_finished(self):
        """The jobs that have ended since the last call."""
        with self._condition:
            finished, self._finished = self._finished, []
        return finished

    def drain(self, seconds):
        """Until every job has ended: within `seconds` as it should, then by failing what is left."""
        with self._condition:
            self._condition.wait_for(self._is_idle, seconds)
            self._gives_up = True
            while self._queue:
                self._end(self._queue.popleft(), 0, ())
            self._condition.wait_for(self._is_idle)
            self._gives_up = False

    def close(self):
        """Fails what is waiting and ends the thread after the batch that it is at."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self.drain(0)
        self._thread.join()

    def _is_idle(self):
        return not self._queue and not self._is_filling

    def _run(self):
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                job = self._queue.popleft()
                self._is_filling = True
            tried, failed = 0, ()
            try:
                while tried < len(job.rows) and not failed and not self._gives_up:
                    batch = job.rows[tried : tried + self._batch_rows]
                    failed = [tried + index for index in self._fill(batch)]
                    tried += len(batch)
            except Exception:  # noqa: BLE001 - the job must be reported; the batch that raised counts as not tried
                failed = ()
            with self._condition:
                self._is_filling = False
                self._end(job, tried, failed)
                self._condition.notify_all()

    def _end(self, job, tried, failed):
        lost = {*failed, *range(tried, len(job.rows))}
        keys = [key for key, _ in job.rows]
        self._finished.append(
            Finished(
                job.job_id,
                True,
                tuple(key for index, key in enumerate(keys) if index not in lost),
                tuple(key for index, key in enumerate(keys) if index in lost),
                time.monotonic() - job.begun,
            )
        )


@dataclasses.dataclass
class _Cascade:
    keys: tuple[bytes, ...]
    begun: float
    stored: set[bytes] = dataclasses.field(default_factory=set)


class Cascades:
    """Stores, through the saver that the connectors have: bounded, in batches, dropped when the queue is full.

    `store(items)` stores a batch and returns the keys that are stored now.
    """

    def __init__(self, store, counters, row_bytes, queue_rows_max, name="infera-kvd-tier-save"):
        self._store = store
        self._lock = threading.Lock()
        self._jobs = {}
        self._saver = Saver(self._store_batch, counters, row_bytes, queue_rows_max, name)

    def add(self, job_id, keys, items):
        """Takes a job. `keys`: all of its keys; `items`: those to be stored, each with the job as its request."""
        with self._lock:
            self._jobs[job_id] = _Cascade(tuple(keys), time.monotonic())
        self._saver.add(items)

    def take_finished(self):
        """The jobs that have ended since the last call."""
        with self._lock:
            jobs = list(self._jobs.items())
        finished = []
        for job_id, job in jobs:
            if self._saver.is_done(job_id):
                with self._lock:
                    del self._jobs[job_id]
                done = tuple(key for key in job.keys if key in job.stored)
                failed = tuple(key for key in job.keys if key not in job.stored)
                finished.append(Finished(job_id, False, done, failed, time.monotonic() - job.begun))
        return finished

    def drain(self, seconds, rows):
        """Until nothing is read any more: within `seconds` as it should, then by giving up what waits.

        `rows`: the numbers of all rows there are.
        """
        if not self._saver.drain(seconds):
            self._saver.let_go(rows)

    def close(self, seconds):
        """Stores what it can within `seconds`, gives up the rest and ends the thread."""
        self._saver.close(seconds)

    def _store_batch(self, items):
        stored = set(self._store(items))
        with self._lock:
            for item in items:
                if item.key in stored:
                    self._jobs[item.request_id].stored.add(item.key)
