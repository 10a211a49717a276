"""The background thread: bounded, orderly, and off the memory that is handed out anew."""

import threading

import pytest

from infera_kvd.engine.counters import Counters
from infera_kvd.engine.options import Keep
from infera_kvd.engine.saver import BATCH_BLOCKS_MAX, BATCH_BYTES_MAX, Item, Saver

WAIT_SECONDS = 30


class Gate:
    """A store that stops in every batch until it is let on."""

    def __init__(self, *, is_open=False):
        self.batches = []
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        if is_open:
            self.open.set()

    def __call__(self, items):
        self.entered.release()
        assert self.open.wait(WAIT_SECONDS)
        self.batches.append(items)

    def wait_until_entered(self):
        assert self.entered.acquire(timeout=WAIT_SECONDS)


def item(block_id, request_id="r", keep=None):
    """One block of a request."""
    return Item(request_id, block_id, b"k%d" % block_id, keep or Keep(), None)


@pytest.fixture
def counters():
    return Counters()


def test_everything_is_stored_in_order(counters):
    gate = Gate(is_open=True)
    saver = Saver(gate, counters, 4, 1000)
    saver.add([item(i) for i in range(300)])
    assert saver.drain(WAIT_SECONDS)
    saver.close(0)
    assert [one.block_id for batch in gate.batches for one in batch] == list(range(300))
    assert max(len(batch) for batch in gate.batches) <= BATCH_BLOCKS_MAX


def test_batches_are_bounded_by_bytes_and_of_one_kind(counters):
    gate = Gate()
    saver = Saver(gate, counters, BATCH_BYTES_MAX // 2, 1000)
    saver.add([item(i) for i in range(4)] + [item(9, keep=Keep("short"))])
    gate.open.set()
    saver.close(WAIT_SECONDS)
    assert [len(batch) for batch in gate.batches] == [2, 2, 1]


def test_a_full_queue_drops_the_tail_and_never_waits(counters):
    gate = Gate()
    saver = Saver(gate, counters, 4, 3)
    saver.add([item(0)])
    gate.wait_until_entered()
    saver.add([item(i) for i in range(1, 6)])
    assert counters.totals()["save_dropped_blocks"] == 2
    gate.open.set()
    saver.close(WAIT_SECONDS)
    assert [one.block_id for batch in gate.batches for one in batch] == [0, 1, 2, 3]


def test_a_request_is_done_when_its_last_block_is(counters):
    gate = Gate()
    saver = Saver(gate, counters, 4, 10)
    assert saver.is_done("r")
    saver.add([item(0)])
    gate.wait_until_entered()
    saver.add([item(1)])
    assert not saver.is_done("r")
    assert saver.is_done("another")
    gate.open.set()
    assert saver.drain(WAIT_SECONDS)
    assert saver.is_done("r")
    saver.close(0)


def test_waiting_blocks_are_let_go_at_once(counters):
    gate = Gate()
    saver = Saver(gate, counters, 4, 10)
    saver.add([item(0)])
    gate.wait_until_entered()
    saver.add([item(1), item(2), item(3)])
    saver.let_go({1, 3, 99})
    assert counters.totals()["save_abandoned_blocks"] == 2
    gate.open.set()
    saver.close(WAIT_SECONDS)
    assert [one.block_id for batch in gate.batches for one in batch] == [0, 2]


def test_what_is_being_copied_is_waited_for(counters):
    gate = Gate()
    saver = Saver(gate, counters, 4, 10)
    saver.add([item(0)])
    gate.wait_until_entered()
    stored_before = []
    waiting = threading.Thread(target=lambda: (saver.let_go({0}), stored_before.extend(gate.batches)))
    waiting.start()
    gate.open.set()
    waiting.join(WAIT_SECONDS)
    assert not waiting.is_alive()
    assert len(stored_before) == 1
    saver.close(0)


def test_the_end_gives_up_what_takes_too_long(counters):
    gate = Gate()
    saver = Saver(gate, counters, 4, 10)
    saver.add([item(0)])
    gate.wait_until_entered()
    saver.add([item(1)])
    closing = threading.Thread(target=saver.close, args=(0,))
    closing.start()
    while not counters.totals()["save_abandoned_blocks"]:
        assert closing.is_alive()
    gate.open.set()
    closing.join(WAIT_SECONDS)
    assert not closing.is_alive()
    assert [one.block_id for batch in gate.batches for one in batch] == [0]
    saver.add([item(2)])
    assert counters.totals()["save_dropped_blocks"] == 1


def test_a_store_that_fails_does_not_end_the_thread(counters):
    def store(items):
        raise RuntimeError("broken")

    saver = Saver(store, counters, 4, 10)
    saver.add([item(0)])
    assert saver.drain(WAIT_SECONDS)
    saver.add([item(1)])
    saver.close(WAIT_SECONDS)
    assert saver.is_done("r")
    assert counters.totals()["save_failed_blocks"] == 2
