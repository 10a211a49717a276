"""Loads of one rank: what is given up, and that it is reported."""

import threading
import time

import pytest
from stand_ins import Client, Log

from infera_kvd.engine import daemon as daemon_module
from infera_kvd.engine.counters import Counters
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.keys import Shard, block_key
from infera_kvd.engine.options import Options
from infera_kvd.vllm.plan import Load, Step
from infera_kvd.vllm.worker import WorkerHalf

WAIT_SECONDS = 30
BLOCKS = 4
SHARD = Shard("m", "c", 4)
HASHES = [b"hash %d" % number for number in range(BLOCKS)]


class Rank:
    """A rank with a daemon that has all blocks. Each call loads one of them."""

    def __init__(self):
        self.client, self.log = Client(), Log()
        self.client.values = {(SHARD.model, SHARD.compat_key, block_key(name)): name[-4:] for name in HASHES}
        self.memory = [bytearray(4) for _ in range(BLOCKS)]
        self.half = WorkerHalf(
            Daemon([self.client], Counters(), self.log),
            Daemon([self.client], Counters(), self.log),
            SHARD,
            [(self.memory, 1)],
            4,
            Options(),
            Counters(),
            lambda *hashes, **about: None,
        )

    def load(self, seconds=None, names=HASHES):
        """Begins to load all blocks."""
        blocks = tuple(zip(names, range(BLOCKS), strict=True))
        self.half.load(Step(loads=(Load("r", blocks, seconds),)))

    def failed(self):
        """Blocks that were not filled, once the load has ended."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if self.half.take_loaded() == {"r"}:
                return self.half.take_failed_blocks()
            time.sleep(0.001)
        raise TimeoutError

    def calls(self):
        """How many calls were made."""
        return len(self.client.calls)


@pytest.fixture
def rank(monkeypatch):
    monkeypatch.setattr(daemon_module, "LOAD_BYTES", SHARD.block_bytes)
    made = Rank()
    yield made
    made.half.close()


def test_a_load_fills_every_block(rank):
    rank.load(seconds=WAIT_SECONDS)
    assert rank.failed() == set()
    assert rank.memory == [name[-4:] for name in HASHES]
    assert rank.calls() == BLOCKS


def test_what_computing_overtakes_is_left_to_it(rank):
    rank.load(seconds=0.0)
    assert rank.failed() == {1, 2, 3}, "a part is always tried"
    assert rank.calls() == 1


def test_a_load_of_nobody_knows_what_fails_without_a_call(rank):
    rank.load(names=[None] * BLOCKS)
    assert rank.failed() == set(range(BLOCKS))
    assert rank.calls() == 0
    assert rank.memory == [bytearray(4)] * BLOCKS


def test_the_end_of_a_rank_waits_for_one_call_and_not_for_a_whole_load(rank):
    entered, may_go_on, load = threading.Event(), threading.Event(), rank.client.load

    def slow(*arguments):
        entered.set()
        assert may_go_on.wait(WAIT_SECONDS)
        return load(*arguments)

    rank.client.load = slow
    rank.load()
    assert entered.wait(WAIT_SECONDS)
    # As the client's own deadline would.
    threading.Timer(0.2, may_go_on.set).start()
    rank.half.close()
    assert rank.calls() == 1
    assert rank.failed() == {1, 2, 3}
    assert rank.log.lines == []
