"""Every job is reported once, and when a drain or the end is over nothing touches memory any more."""

import threading
import time

import pytest

from infera_kvd.engine.counters import Counters
from infera_kvd.engine.options import Keep
from infera_kvd.engine.saver import Item
from infera_kvd.vllm.tier_transfers import Cascades, Promotions

WAIT_SECONDS = 30
PART_ROWS = 2


class Gate:
    """A transfer that stops in every batch until it is let on. `failing`: the keys that it cannot move."""

    def __init__(self, *, is_open=True):
        self.batches = []
        self.failing = set()
        self.fault = None
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        if is_open:
            self.open.set()

    def move(self, keys):
        self.entered.release()
        assert self.open.wait(WAIT_SECONDS)
        self.batches.append(keys)
        if self.fault:
            raise self.fault
        return [index for index, key in enumerate(keys) if key in self.failing]

    def fill(self, rows, goes_on):
        """In parts, up to one in which something failed, as a daemon loads."""
        keys, failed = [key for key, _ in rows], []
        for first in range(0, len(keys), PART_ROWS):
            if failed or (first > 0 and not goes_on()):
                return [*failed, *range(first, len(keys))]
            failed = [first + index for index in self.move(keys[first : first + PART_ROWS])]
        return failed

    def store(self, items):
        failed = self.move([item.key for item in items])
        return [item.key for index, item in enumerate(items) if index not in failed]

    def wait_until_entered(self):
        assert self.entered.acquire(timeout=WAIT_SECONDS)


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def promotions(gate):
    made = Promotions(gate.fill)
    yield made
    gate.open.set()
    made.close()


@pytest.fixture
def counters():
    return Counters()


@pytest.fixture
def cascades(gate, counters):
    made = Cascades(gate.store, counters, 4, 8)
    yield made
    gate.open.set()
    made.close(0)


def rows(*keys):
    """Rows of a load."""
    return [(key, number) for number, key in enumerate(keys)]


def store(cascades, job_id, keys, keep=None):
    """Hands over a job of stores."""
    items = [Item(job_id, number, key, keep or Keep(), None) for number, key in enumerate(keys)]
    cascades.add(job_id, keys, items)


def finished(transfers, count=1):
    """The next jobs to end, as (number, done, failed)."""
    found, deadline = [], time.monotonic() + WAIT_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += transfers.take_finished()
        time.sleep(0.001)
    return [(job.job_id, job.done, job.failed) for job in found]


def test_loads_end_in_order_and_are_reported_once(promotions, gate):
    promotions.add(1, rows(b"a", b"b", b"c"))
    promotions.add(2, rows(b"d"))
    assert finished(promotions, 2) == [(1, (b"a", b"b", b"c"), ()), (2, (b"d",), ())]
    assert gate.batches == [[b"a", b"b"], [b"c"], [b"d"]]
    assert promotions.take_finished() == []


def test_behind_a_failed_batch_nothing_is_tried(promotions, gate):
    gate.failing = {b"c"}
    promotions.add(1, rows(b"a", b"b", b"c", b"d", b"e"))
    assert finished(promotions) == [(1, (b"a", b"b", b"d"), (b"c", b"e"))]
    assert gate.batches == [[b"a", b"b"], [b"c", b"d"]]


def test_a_load_that_raises_fails_and_the_next_is_served(promotions, gate):
    gate.fault = RuntimeError("gone")
    promotions.add(1, rows(b"a", b"b", b"c"))
    assert finished(promotions) == [(1, (), (b"a", b"b", b"c"))]
    gate.fault = None
    promotions.add(2, rows(b"a"))
    assert finished(promotions) == [(2, (b"a",), ())]


def test_a_job_without_rows_ends(promotions):
    promotions.add(1, [])
    assert finished(promotions) == [(1, (), ())]


def test_a_drain_in_time_loses_nothing(promotions, cascades):
    promotions.add(1, rows(b"a", b"b", b"c"))
    store(cascades, 2, [b"d", b"e"])
    promotions.drain(WAIT_SECONDS)
    cascades.drain(WAIT_SECONDS, range(9))
    assert finished(promotions) == [(1, (b"a", b"b", b"c"), ())]
    assert finished(cascades) == [(2, (b"d", b"e"), ())]


def opened_later(gate):
    """Lets the batch on, a while after somebody began to wait for it."""
    threading.Timer(0.2, gate.open.set).start()


def test_a_drain_that_takes_too_long_fails_what_waits_but_never_leaves_a_copy_under_way(promotions, gate):
    gate.open.clear()
    promotions.add(1, rows(b"a", b"b", b"c"))
    promotions.add(2, rows(b"d"))
    gate.wait_until_entered()
    opened_later(gate)
    promotions.drain(0.01)
    assert gate.batches == [[b"a", b"b"]]
    assert finished(promotions, 2) == [(2, (), (b"d",)), (1, (b"a", b"b"), (b"c",))]
    promotions.add(3, rows(b"e"))
    assert finished(promotions) == [(3, (b"e",), ())]


def test_the_same_for_stores(gate, counters):
    gate.open.clear()
    cascades = Cascades(gate.store, counters, 4, 8)
    store(cascades, 1, [b"a"])
    gate.wait_until_entered()
    store(cascades, 2, [b"b"])
    opened_later(gate)
    cascades.drain(0.01, range(9))
    assert gate.batches == [[b"a"]]
    assert finished(cascades, 2) == [(1, (b"a",), ()), (2, (), (b"b",))]
    cascades.close(0)


def test_what_is_refused_fails_alone(cascades, gate):
    gate.failing = {b"b"}
    store(cascades, 1, [b"a", b"b", b"c"])
    assert finished(cascades) == [(1, (b"a", b"c"), (b"b",))]


def test_a_store_that_raises_fails(cascades, gate):
    gate.fault = RuntimeError("gone")
    store(cascades, 1, [b"a"])
    assert finished(cascades) == [(1, (), (b"a",))]


def test_a_full_queue_drops_and_the_job_ends_all_the_same(cascades, gate, counters):
    gate.open.clear()
    store(cascades, 1, [b"first"])
    gate.wait_until_entered()
    keys = [b"%d" % number for number in range(12)]
    store(cascades, 2, keys)
    store(cascades, 3, [b"late"])
    gate.open.set()
    assert sorted(finished(cascades, 3)) == [
        (1, (b"first",), ()),
        (2, tuple(keys[:8]), tuple(keys[8:])),
        (3, (), (b"late",)),
    ]
    assert counters.totals()["save_dropped_blocks"] == 5


def test_nothing_to_store_ends_at_once(cascades, gate):
    cascades.add(1, [b"a"], [])
    assert finished(cascades) == [(1, (), (b"a",))]
    assert gate.batches == []


def test_the_end_fails_what_waits_and_joins(gate):
    gate.open.clear()
    promotions = Promotions(gate.fill)
    promotions.add(1, rows(b"a", b"b", b"c"))
    gate.wait_until_entered()
    promotions.add(2, rows(b"d"))
    opened_later(gate)
    promotions.close()
    assert "infera-kvd-tier-load" not in {thread.name for thread in threading.enumerate()}
    assert {job.job_id for job in promotions.take_finished()} == {1, 2}
