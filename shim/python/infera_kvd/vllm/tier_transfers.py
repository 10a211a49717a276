"""The background of a tier: rows on their way between vLLM's memory and the arena, in jobs that vLLM has numbered.

Each job that is taken is reported once, whatever happens, and nothing touches its rows after that: vLLM hands the
memory out anew. So `drain` and `close` wait for the call that is being made without a limit of their own: its limit
is the client's deadline, and to return before it would let it write into somebody else's row.
"""

import dataclasses
import threading
import time

from infera_kvd.engine.background import Background
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

    def end(self, failed):
        """How it ended. `failed`: the indices of the rows that were not filled."""
        keys = [key for key, _ in self.rows]
        return Finished(
            self.job_id,
            True,
            tuple(key for index, key in enumerate(keys) if index not in failed),
            tuple(key for index, key in enumerate(keys) if index in failed),
            time.monotonic() - self.begun,
        )


class Promotions:
    """Loads, in the order in which they come, in a thread.

    `fill(rows, goes_on)` fills rows, (key, row number) each, and returns the indices of those that were not filled; see
    `Background`.
    """

    def __init__(self, fill, name="infera-kvd-tier-load"):
        self._background = Background(lambda job, goes_on: job.end(set(fill(job.rows, goes_on))), name)

    def add(self, job_id, rows):
        """Takes a job. `rows`: (key, row number) each."""
        self._background.add(_Promotion(job_id, tuple(rows), time.monotonic()))

    def take_finished(self):
        """The jobs that have ended since the last call."""
        return [finished or job.end(range(len(job.rows))) for job, finished in self._background.take_ended()]

    def drain(self, seconds):
        """Until every job has ended: within `seconds` as it should, then by failing what is left."""
        self._background.drain(seconds)

    def close(self):
        """Fails what is waiting and ends the thread after the part that it is at."""
        self._background.close()


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
