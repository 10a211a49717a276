"""Jobs that are done beside the engine's own threads, in the order in which they come."""

import collections
import threading


class Background:
    """A queue and the threads that empty it. Each job ends and is told once, whatever happens.

    `do(job, goes_on)` does a job and returns its outcome; a long one asks `goes_on()` between its parts and ends early if
    that is false. `threads` threads call it. What waits is bounded by the engine: it has made room for every job.
    """

    def __init__(self, do, name, threads=1):
        self._do = do
        self._condition = threading.Condition()
        self._waiting = collections.deque()
        self._ended = []
        self._running = 0
        self._gives_up = False
        self._closed = False
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def add(self, job):
        """Takes a job. After the end of the threads it is told like the others that were not begun."""
        with self._condition:
            if self._closed:
                self._ended.append((job, None))
            else:
                self._waiting.append(job)
                self._condition.notify_all()

    def take_ended(self):
        """Each job that has ended since the last call, with its outcome: `None` if it raised or was not begun."""
        # Asked in every step, nearly always in vain. What comes in at this moment is told in the next.
        if not self._ended:
            return []
        with self._condition:
            ended, self._ended = self._ended, []
        return ended

    def drain(self, seconds):
        """Returns when every job has ended: for `seconds` as it should, then by ending early or not being begun."""
        with self._condition:
            self._condition.wait_for(self._is_idle, seconds)
            self._gives_up = True
            self._ended += [(job, None) for job in self._waiting]
            self._waiting.clear()
            # No limit of its own: to return before would let a call write into memory that is somebody else's by then. Such
            # a call has the client's deadline.
            self._condition.wait_for(self._is_idle)
            self._gives_up = self._closed

    def close(self):
        """Ends the threads: jobs under way end early, the others are not begun."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self.drain(0)
        for thread in self._threads:
            thread.join()

    def _goes_on(self):
        return not self._gives_up

    def _is_idle(self):
        return not self._waiting and not self._running

    def _run(self):
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                job = self._waiting.popleft()
                self._running += 1
            try:
                outcome = self._do(job, self._goes_on)
            except Exception:  # noqa: BLE001 - somebody waits for the end of the job
                outcome = None
            with self._condition:
                self._running -= 1
                self._ended.append((job, outcome))
                self._condition.notify_all()
