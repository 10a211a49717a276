"""What the connector did, in numbers: one set for each half, added to by several threads."""

import threading

NAMES = (
    "lookups",
    "lookup_blocks",
    "lookup_hit_blocks",
    "load_skipped_blocks",
    "loaded_blocks",
    "loaded_bytes",
    "load_failed_blocks",
    "load_microseconds",
    "saved_blocks",
    "saved_bytes",
    "save_present_blocks",
    "save_refused_blocks",
    "save_failed_blocks",
    "save_dropped_blocks",
    "save_abandoned_blocks",
    "daemon_losses",
)


class Counters:
    """Whole numbers by name, since the start and since they were last taken."""

    def __init__(self):
        self._lock = threading.Lock()
        self._totals = dict.fromkeys(NAMES, 0)
        self._interval = {}

    def add(self, name, count=1):
        """Counts `count` more of `name`."""
        if count == 0:
            return
        with self._lock:
            self._totals[name] += count
            self._interval[name] = self._interval.get(name, 0) + count

    def take(self):
        """What was counted since the last call; empty if nothing was."""
        # Asked in every step, nearly always in vain.
        if not self._interval:
            return {}
        with self._lock:
            taken, self._interval = self._interval, {}
        return taken

    def totals(self):
        """What was counted since the start, every name."""
        with self._lock:
            return dict(self._totals)


def added(left, right):
    """The sum of two sets of numbers."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def in_words(numbers):
    """One line for a log, in the order of `NAMES`, without zeros."""
    return ", ".join(f"{name} {numbers[name]}" for name in NAMES if numbers.get(name))
