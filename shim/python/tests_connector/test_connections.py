"""Loads at once, each with a connection of its own."""

import threading

import pytest
from stand_ins import Client

from infera_kvd.engine.connections import Connections
from infera_kvd.engine.loader import Loader
from infera_kvd.vllm.plan import Load


class Slow(Client):
    """A client that stays in its call until it may go on; `meeting` is where all calls meet."""

    def __init__(self, meeting):
        super().__init__()
        self.meeting = meeting

    def load(self, *arguments):
        """Waits for the others."""
        self.meeting.wait(timeout=60)
        return super().load(*arguments)


def test_as_many_loads_go_on_at_once_as_there_are_connections():
    meeting = threading.Barrier(2)
    connections = Connections([Slow(meeting), Slow(meeting)])

    def fill(load):
        answers = connections.load("m", "c", [b"k"], [[bytearray(1)]])
        assert answers == ["miss"]
        return set()

    loader = Loader(fill, threads=2)
    for number in range(4):
        loader.add(Load(str(number), ((b"h", number),)))
    loaded = set()
    while len(loaded) < 4:
        loaded |= loader.take_loaded()
    loader.close()
    assert loader.take_failed_blocks() == set(), "with one at a time, none would meet another"


def test_trouble_is_that_of_the_latest_call():
    broken = Client()
    broken.trouble = "gone"
    connections = Connections([broken, Client()])
    found = []
    for _ in range(4):
        connections.load("m", "c", [b"k"], [[bytearray(1)]])
        found.append(connections.trouble)
    assert found == ["gone", None, "gone", None]


def test_a_client_that_raises_is_used_again_and_all_are_closed():
    client = Client()
    client.fault = RuntimeError("broken")
    connections = Connections([client])
    for _ in range(2):
        with pytest.raises(RuntimeError):
            connections.load("m", "c", [b"k"], [[bytearray(1)]])
    connections.close()
    assert client.closed
